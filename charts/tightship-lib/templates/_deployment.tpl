{{/* The controller itself. */}}

{{- define "tightship-lib.deployment" -}}
{{- include "tightship-lib.checks" . -}}
{{- $v := .Values -}}
{{- $notes := dict "kubectl.kubernetes.io/default-container" (include "tightship-lib.controller" .) -}}
{{- if $v.configMap.mounted -}}{{- $_ := set $notes "checksum/config" (toYaml $v.config | sha256sum) -}}{{- end -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  {{- include "tightship-lib.metadata" (dict "root" . "annotations" $v.deploymentAnnotations) | nindent 2 }}
spec:
  replicas: {{ include "tightship-lib.replicas" . }}
  revisionHistoryLimit: {{ include "tightship-lib.text" $v.revisionHistoryLimit }}
  strategy:
    {{- include "tightship-lib.strategy" . | nindent 4 }}
  selector:
    matchLabels:
      {{- include "tightship-lib.selectorLabels" . | nindent 6 }}
  template:
    {{- include "tightship-lib.podTemplate" (dict
      "root" .
      "part" ""
      "annotations" $notes
      "account" (include "tightship-lib.serviceAccountName" .)
      "pod" (include "tightship-lib.replicaPod" .)
      "container" (include "tightship-lib.controllerContainer" .)
      "env" (include "tightship-lib.controllerEnv" .)
      "mounts" (include "tightship-lib.mounts" .)
      "volumes" (include "tightship-lib.volumes" .)) | nindent 4 }}
{{- end -}}

{{/* Two replicas where one takes over from the other, and one where each would make its own plan. */}}
{{- define "tightship-lib.replicas" -}}
{{- $own := .Values.replicaCount -}}
{{- if not (kindIs "invalid" $own) -}}
{{- include "tightship-lib.text" $own -}}
{{- else -}}
{{- ternary 2 1 (and (include "tightship-lib.live" . | eq "true") .Values.leaderElection.enabled) -}}
{{- end -}}
{{- end -}}

{{- define "tightship-lib.strategy" -}}
{{- if .Values.strategy -}}
{{ toYaml .Values.strategy }}
{{- else if .Values.leaderElection.enabled -}}
{{- /* Two pods on one node can't both have the node's ports. */ -}}
{{- $surge := ternary 0 1 .Values.hostNetwork -}}
type: RollingUpdate
rollingUpdate:
  maxSurge: {{ $surge }}
  maxUnavailable: {{ sub 1 $surge }}
{{- else -}}
{{/* Without election nothing keeps the old replica from acting beside the new one. */ -}}
type: Recreate
{{- end -}}
{{- end -}}

{{/* What is in the pod for replicas that stay. */}}
{{- define "tightship-lib.replicaPod" -}}
{{- with .Values.topologySpreadConstraints }}
topologySpreadConstraints:
  {{- $selector := dict "matchLabels" (include "tightship-lib.selectorLabels" $ | fromYaml) }}
  {{- range . }}
  - {{- merge (dict) . (dict "labelSelector" $selector) | toYaml | nindent 4 }}
  {{- end }}
{{- end }}
{{- with .Values.extraContainers }}
containers:
  {{- tpl (toYaml .) $ | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "tightship-lib.controllerContainer" -}}
{{- $v := .Values -}}
name: {{ include "tightship-lib.controller" . }}
command: [{{ include "tightship-lib.controller" . }}]
args:
  - run
  {{- range $v.extraArgs }}
  - {{ tpl . $ | quote }}
  {{- end }}
ports:
  - name: {{ include "tightship-lib.scheme" . }}
    containerPort: {{ $v.http.port }}
    protocol: TCP
  {{- if eq (include "tightship-lib.probes" .) "probes" }}
  - name: probes
    containerPort: {{ $v.http.probePort }}
    protocol: TCP
  {{- end }}
  {{- range $v.http.extraPorts }}
  - name: {{ include "tightship-lib.scheme" $ }}-{{ . }}
    containerPort: {{ . }}
    protocol: TCP
  {{- end }}
{{- range $kind, $path := dict "livenessProbe" "/healthz" "readinessProbe" "/readyz" "startupProbe" "/healthz" }}
{{- $probe := index $v $kind }}
{{- $get := dict "path" $path "port" (include "tightship-lib.probes" $) }}
{{- if and $v.http.secure.enabled (ne $get.port "probes") }}
{{- $_ := set $get "scheme" "HTTPS" }}
{{- end }}
{{- if $probe.enabled }}
{{ $kind }}:
  {{- toYaml (merge (omit $probe "enabled") (dict "httpGet" $get)) | nindent 2 }}
{{- end }}
{{- end }}
{{- end -}}

{{/* What is served, as names of ports have to begin: http or https. */}}
{{- define "tightship-lib.scheme" -}}
{{- ternary "https" "http" .Values.http.secure.enabled -}}
{{- end -}}

{{/* The name of the container port for probes: a port that serves everything already has a name. */}}
{{- define "tightship-lib.probes" -}}
{{- $http := .Values.http -}}
{{- if eq (toString $http.probePort) (toString $http.port) -}}
{{ include "tightship-lib.scheme" . }}
{{- else if has (toString $http.probePort) ($http.extraPorts | default list | toStrings) -}}
{{ include "tightship-lib.scheme" . }}-{{ $http.probePort }}
{{- else -}}
probes
{{- end -}}
{{- end -}}

{{/* Only of the controller itself: the other pods outlive the ConfigMap, or serve nothing. */}}
{{- define "tightship-lib.mounts" -}}
{{- if .Values.configMap.mounted }}
- name: config
  mountPath: /etc/tightship/config
  readOnly: true
{{- end }}
{{- if include "tightship-lib.tlsSecret" . }}
- name: tls
  mountPath: /etc/tightship/tls
  readOnly: true
{{- end }}
{{- with .Own.mounts }}
{{ . }}
{{- end }}
{{- end -}}

{{- define "tightship-lib.volumes" -}}
{{- if .Values.configMap.mounted }}
- name: config
  configMap:
    name: {{ include "tightship-lib.configMapName" . }}
{{- end }}
{{- with include "tightship-lib.tlsSecret" . }}
- name: tls
  secret:
    secretName: {{ . }}
{{- end }}
{{- with .Own.volumes }}
{{ . }}
{{- end }}
{{- end -}}

{{- define "tightship-lib.controllerEnv" -}}
{{ include "tightship-lib.env" . }}
- name: INTERVAL
  value: {{ include "tightship-lib.text" .Values.interval | quote }}
{{- with .Own.env }}
{{ . }}
{{- end }}
{{ include "tightship-lib.claimsEnv" . }}
{{- end -}}

{{/* The environment of every controller: its process settings (docs/settings.md, "The process"). */}}
{{- define "tightship-lib.env" -}}
{{- $v := .Values -}}
- name: POD_NAME
  valueFrom:
    fieldRef:
      fieldPath: metadata.name
- name: NAMESPACE
  valueFrom:
    fieldRef:
      fieldPath: metadata.namespace
- name: DRY_RUN
  value: {{ include "tightship-lib.dryRun" . | quote }}
{{- if $v.configMap.mounted }}
- name: CONFIG_PATH
  value: /etc/tightship/config
{{- end }}
- name: CONFIG_MAP_NAME
  value: {{ include "tightship-lib.configMapName" . }}
{{- with $v.clusterName | default .Values.global.clusterName }}
- name: CLUSTER_NAME
  value: {{ . | quote }}
{{- end }}
- name: LOG_LEVEL
  value: {{ $v.log.level | default (kindIs "string" .Values.global.logLevel | ternary .Values.global.logLevel "") | default "info" }}
- name: LOG_FORMAT
  value: {{ $v.log.format | default .Values.global.logFormat | default "text" }}
- name: HTTP_HOST
  value: {{ $v.http.host | quote }}
- name: HTTP_PORTS
  value: {{ concat (list $v.http.port) ($v.http.extraPorts | default list) | join "," | quote }}
- name: HTTP_PROBE_PORT
  value: {{ $v.http.probePort | quote }}
- name: HTTP_SECURE
  value: {{ $v.http.secure.enabled | quote }}
{{- if include "tightship-lib.tlsSecret" . }}
- name: HTTP_TLS_PATH
  value: /etc/tightship/tls
{{- end }}
- name: REQUEST_TIMEOUT
  value: {{ include "tightship-lib.text" $v.requestTimeout | quote }}
- name: LEADER_ELECT
  value: {{ $v.leaderElection.enabled | quote }}
- name: LEASE_NAME
  value: {{ include "tightship-lib.leaseName" . }}
- name: LEASE_DURATION
  value: {{ include "tightship-lib.text" $v.leaderElection.leaseDuration | quote }}
- name: LEASE_RENEW_DEADLINE
  value: {{ include "tightship-lib.text" $v.leaderElection.renewDeadline | quote }}
- name: LEASE_RETRY_PERIOD
  value: {{ include "tightship-lib.text" $v.leaderElection.retryPeriod | quote }}
- name: STOP_TIMEOUT
  value: {{ include "tightship-lib.text" $v.shutdown.timeout | quote }}
- name: STOP_GRACE
  value: {{ include "tightship-lib.text" $v.shutdown.grace | quote }}
{{- if $v.kubeconfig.secretName }}
- name: TIGHTSHIP_KUBECONFIG
  value: /etc/tightship/kubeconfig/config
{{- end }}
{{- with $v.kubeconfig.context }}
- name: KUBE_CONTEXT
  value: {{ . | quote }}
{{- end }}
{{- end -}}

{{/* Controllers of nodes share one Lease with claims; each has a ConfigMap of landings, if any. */}}
{{- define "tightship-lib.claimsEnv" -}}
{{- if include "tightship-lib.drains" . -}}
- name: CLAIMS_LEASE_NAME
  value: {{ .Values.claims.leaseName }}
- name: CLAIMS_LEASE_NAMESPACE
  value: {{ include "tightship-lib.claimsNamespace" . }}
- name: LANDINGS_CONFIG_MAP_NAME
  value: {{ include "tightship-lib.landingsName" . }}
{{- end -}}
{{- end -}}

{{- define "tightship-lib.claimsNamespace" -}}
{{- .Values.claims.namespace | default (include "tightship-lib.namespace" .) -}}
{{- end -}}
