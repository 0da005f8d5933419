{{/* ServiceMonitor and PodMonitor differ only in how they find the pods. */}}

{{- define "tightship-lib.endpoint" -}}
{{- $root := index . 0 -}}
{{- $m := index . 1 -}}
port: {{ include "tightship-lib.scheme" $root }}
path: /metrics
{{- if $root.Values.http.secure.enabled }}
scheme: https
tlsConfig:
  {{- $m.tlsConfig | default (include "tightship-lib.scrapeTls" $root | fromYaml) | toYaml | nindent 2 }}
authorization:
  {{- $own := dict "credentials" (dict "name" (include "tightship-lib.scraperName" $root) "key" "token") }}
  {{- $m.authorization | default $own | toYaml | nindent 2 }}
{{- else }}
scheme: http
{{- end }}
honorLabels: {{ $m.honorLabels }}
{{- with $m.interval }}
interval: {{ . }}
{{- end }}
{{- with $m.scrapeTimeout }}
scrapeTimeout: {{ . }}
{{- end }}
{{- with $m.relabelings }}
relabelings:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $m.metricRelabelings }}
metricRelabelings:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Nobody can verify a certificate that the controller makes for itself. */}}
{{- define "tightship-lib.scrapeTls" -}}
{{- with include "tightship-lib.tlsSecret" . -}}
ca:
  secret:
    name: {{ . }}
    key: ca.crt
serverName: {{ include "tightship-lib.fullname" $ }}.{{ include "tightship-lib.namespace" $ }}.svc
{{- else -}}
insecureSkipVerify: true
{{- end -}}
{{- end -}}

{{- define "tightship-lib.scraperName" -}}
{{- include "tightship-lib.fullname" . }}-scraper
{{- end -}}

{{/* With http.secure: an account that may read the metrics alone, and its token, where the operator looks for it: beside the
     monitor. Prometheus itself need not show a token of its own, which OpenShift refuses to take from a file. Takes
     (list root monitor). */}}
{{- define "tightship-lib.scraper" -}}
{{- $root := index . 0 -}}
{{- $m := index . 1 -}}
{{- if and $root.Values.http.secure.enabled (empty $m.authorization) }}
{{- $name := include "tightship-lib.scraperName" $root }}
{{- $namespace := $m.namespace | default (include "tightship-lib.namespace" $root) }}
{{- $role := printf "%s:scraper" (include "tightship-lib.clusterName" $root) }}
{{- $rules := "- nonResourceURLs: [/metrics]\n  verbs: [get]" }}
{{- $metadata := include "tightship-lib.metadata" (dict "root" $root "name" $role "namespace" "-") }}
{{- include "tightship-lib.grant" (dict "root" $root "kind" "ClusterRole" "name" $role "metadata" $metadata "account" $name "accountNamespace" $namespace "rules" $rules) }}
---
apiVersion: v1
kind: ServiceAccount
metadata:
  {{- include "tightship-lib.metadata" (dict "root" $root "name" $name "namespace" $namespace) | nindent 2 }}
automountServiceAccountToken: false
---
apiVersion: v1
kind: Secret
metadata:
  {{- include "tightship-lib.metadata" (dict "root" $root "name" $name "namespace" $namespace "annotations" (dict "kubernetes.io/service-account.name" $name)) | nindent 2 }}
type: kubernetes.io/service-account-token
{{- end }}
{{- end -}}

{{- define "tightship-lib.monitors" -}}
{{- range $kind, $endpoints := dict "ServiceMonitor" "endpoints" "PodMonitor" "podMetricsEndpoints" }}
{{- $m := index $.Values (untitle $kind) }}
{{- if and $m.enabled (include "tightship-lib.served" (list $ (printf "monitoring.coreos.com/v1/%s" $kind))) }}
{{- include "tightship-lib.scraper" (list $ $m) }}
---
apiVersion: monitoring.coreos.com/v1
kind: {{ $kind }}
metadata:
  {{- include "tightship-lib.metadata" (dict "root" $ "namespace" $m.namespace "labels" $m.labels "annotations" $m.annotations) | nindent 2 }}
spec:
  selector:
    matchLabels:
      {{- include "tightship-lib.selectorLabels" $ | nindent 6 }}
  namespaceSelector:
    matchNames: [{{ include "tightship-lib.namespace" $ }}]
  {{- with $m.jobLabel }}
  jobLabel: {{ . | quote }}
  {{- end }}
  {{- with $m.sampleLimit }}
  sampleLimit: {{ include "tightship-lib.text" . }}
  {{- end }}
  {{ $endpoints }}:
    - {{- include "tightship-lib.endpoint" (list $ $m) | nindent 6 }}
{{- end }}
{{- end }}
{{- end -}}

{{/* The alerts of files/alerts.json. In an expression, SELECTOR stands for the labels of this controller's series, and
     THRESHOLD for the alert's threshold; prometheusRule.alerts.NAME replaces threshold, for, severity, or switches off. */}}
{{- define "tightship-lib.prometheusRule" -}}
{{- $p := .Values.prometheusRule -}}
{{- if and $p.enabled (include "tightship-lib.served" (list . "monitoring.coreos.com/v1/PrometheusRule")) -}}
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  {{- include "tightship-lib.metadata" (dict "root" . "namespace" $p.namespace "labels" $p.labels "annotations" $p.annotations) | nindent 2 }}
spec:
  groups:
    - name: {{ include "tightship-lib.clusterName" . }}
      {{- with $p.interval }}
      interval: {{ . }}
      {{- end }}
      rules:
        {{- include "tightship-lib.alerts" . | nindent 8 }}
        {{- with $p.additionalRules }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
{{- end -}}
{{- end -}}

{{- define "tightship-lib.alerts" -}}
{{- $p := .Values.prometheusRule -}}
{{- $controller := include "tightship-lib.controller" . -}}
{{- $selector := $p.selector | default (printf "namespace=%q,container=%q" (include "tightship-lib.namespace" .) $controller) -}}
{{- $leads := and (include "tightship-lib.live" .) .Values.leaderElection.enabled (not .Own.idle) -}}
{{- $known := .Files.Get "files/alerts.json" | fromJsonArray -}}
{{- $names := list -}}
{{- range $known -}}{{- $names = append $names .alert -}}{{- end -}}
{{- range $name, $_ := $p.alerts -}}
{{- if not (has $name $names) -}}
{{- fail (printf "prometheusRule.alerts.%s: no such alert; there are %s" $name (join ", " $names)) -}}
{{- end -}}
{{- end -}}
{{- range $alert := $known }}
{{- $own := index $p.alerts $alert.alert | default dict }}
{{- if and (ne (index $own "enabled" | toString) "false") (or (not $alert.leaders) $leads) }}
{{- $threshold := $alert.threshold }}
{{- if hasKey $own "threshold" }}
{{- $threshold = $own.threshold }}
{{- else if $alert.passes }}
{{- $threshold = maxf $threshold (include "tightship-lib.seconds" $.Values.interval | float64 | mulf $alert.passes) }}
{{- end }}
{{- $threshold = include "tightship-lib.text" $threshold }}
- alert: {{ $alert.alert }}
  expr: {{ $alert.expr | replace "SELECTOR" $selector | replace "THRESHOLD" $threshold | toRawJson }}
  for: {{ index $own "for" | default (index $alert "for") }}
  labels:
    severity: {{ $own.severity | default $alert.severity }}
    controller: {{ $controller }}
    {{- with $p.alertLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  annotations:
    summary: {{ $alert.summary | toRawJson }}
    description: {{ $alert.description | replace "THRESHOLD" $threshold | toRawJson }}
    {{- with $p.runbookUrl }}
    runbook_url: {{ printf "%s#%s" . $alert.anchor }}
    {{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Every file of dashboards/, as a ConfigMap for Grafana's sidecar, and as a GrafanaDashboard for the Grafana Operator. */}}
{{- define "tightship-lib.dashboards" -}}
{{- $g := .Values.grafanaDashboard -}}
{{- if $g.enabled }}
{{- $annotations := deepCopy $g.annotations }}
{{- with $g.folder }}
{{- $_ := set $annotations $g.folderAnnotation . }}
{{- end }}
{{- range $path, $_ := .Files.Glob "dashboards/*.json" }}
{{- $name := printf "%s-dashboard" (include "tightship-lib.fullname" $) }}
---
apiVersion: v1
kind: ConfigMap
metadata:
  {{- include "tightship-lib.metadata" (dict "root" $ "name" $name "namespace" $g.namespace "labels" $g.labels "annotations" $annotations) | nindent 2 }}
data:
  {{ base $path }}: {{ $.Files.Get $path | fromJson | toJson | toRawJson }}
{{- if and $g.operator.enabled (include "tightship-lib.served" (list $ "grafana.integreatly.org/v1beta1/GrafanaDashboard")) }}
---
apiVersion: grafana.integreatly.org/v1beta1
kind: GrafanaDashboard
metadata:
  {{- include "tightship-lib.metadata" (dict "root" $ "name" $name "namespace" $g.namespace) | nindent 2 }}
spec:
  instanceSelector:
    matchLabels:
      {{- toYaml $g.operator.instanceSelector | nindent 6 }}
  allowCrossNamespaceImport: true
  {{- with $g.folder }}
  folder: {{ . }}
  {{- end }}
  configMapRef:
    name: {{ $name }}
    key: {{ base $path }}
{{- end }}
{{- end }}
{{- end }}
{{- end -}}
