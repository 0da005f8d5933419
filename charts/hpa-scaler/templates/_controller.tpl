{{/* What is of this controller alone; tightship-lib calls these by the controller's name. */}}

{{/* Nothing is touched that has not opted in. */}}
{{- define "hpa-scaler.dryRun" -}}
false
{{- end -}}

{{- define "hpa-scaler.acts" -}}
{{- ternary "false" "true" (eq (include "tightship-lib.dryRun" .) "true") -}}
{{- end -}}

{{- define "hpa-scaler.env" -}}
- name: SLEEP_DURATION_BETWEEN_ITERATIONS_SECONDS
  value: {{ include "tightship-lib.text" .Values.interval | quote }}
{{- with .Values.prometheusServerUrl }}
- name: PROMETHEUS_SERVER_URL
  value: {{ . | quote }}
{{- end }}
- name: MINIMUM_REPLICAS_LOWER_BOUND
  value: {{ include "tightship-lib.text" .Values.minimumReplicasLowerBound | quote }}
- name: ANNOTATION_PREFIX
  value: {{ .Values.annotationPrefix | quote }}
- name: CYCLE_DEADLINE_SECONDS
  value: {{ include "tightship-lib.text" .Values.cycleDeadline | quote }}
- name: WATCH_HPAS
  value: {{ .Values.watch | quote }}
{{- if .Values.decisionLog.enabled }}
- name: DECISION_LOG
  value: /var/lib/hpa-scaler/decisions.jsonl
- name: DECISION_LOG_MEGABYTES
  value: {{ include "tightship-lib.text" .Values.decisionLog.megabytes | quote }}
{{- end }}
{{- end -}}

{{- define "hpa-scaler.mounts" -}}
{{- if .Values.decisionLog.enabled }}
- name: decisions
  mountPath: /var/lib/hpa-scaler
{{- end }}
{{- end -}}

{{- define "hpa-scaler.volumes" -}}
{{- if .Values.decisionLog.enabled }}
- name: decisions
  {{- toYaml .Values.decisionLog.volume | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "hpa-scaler.config" -}}
hpa-scaler-config.yaml: |
  {{- toYaml .Values.config | nindent 2 }}
{{- end -}}

{{- define "hpa-scaler.clusterRules" -}}
- apiGroups: [autoscaling]
  resources: [horizontalpodautoscalers]
  verbs:
    - list
    {{- if .Values.watch }}
    - watch
    {{- end }}
    {{- if eq (include "hpa-scaler.acts" .) "true" }}
    - get
    - patch
    {{- end }}
- apiGroups: [apps]
  resources: [deployments, statefulsets, replicasets]
  verbs: [get]
- apiGroups: [argoproj.io]
  resources: [rollouts]
  verbs: [get]
{{- if eq (include "hpa-scaler.acts" .) "true" }}
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create]
{{- end }}
{{- end -}}

{{/* Rights in these namespaces alone; without any, in the cluster. */}}
{{- define "hpa-scaler.namespaces" -}}
{{- .Values.config.namespaces | default list | toJson -}}
{{- end -}}

{{/* Events about its ConfigMap, where it has no rights in all namespaces. */}}
{{- define "hpa-scaler.ownRules" -}}
{{- if and .Values.config.namespaces (eq (include "hpa-scaler.acts" .) "true") -}}
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create]
{{- end -}}
{{- end -}}

{{/* The ports of the servers that are named, or may be. */}}
{{- define "hpa-scaler.ports" -}}
{{- $urls := concat (list .Values.prometheusServerUrl) (.Values.config.allowedServerURLs | default list) -}}
{{- range .Values.config.prometheusServers -}}
{{- $urls = append $urls (.url | default "") -}}
{{- end -}}
{{- $ports := list -}}
{{- range compact $urls -}}
{{- $host := regexReplaceAll "^[a-z]+://([^/]*).*$" . "${1}" -}}
{{- $port := regexFind ":[0-9]+$" $host | trimPrefix ":" -}}
{{- $ports = append $ports ($port | default (ternary "443" "80" (hasPrefix "https:" .)) | int) -}}
{{- end -}}
{{- $ports | uniq | toJson -}}
{{- end -}}

{{/* "true" where a replica should lead. */}}
{{- define "hpa-scaler.leads" -}}
{{- and (eq (include "hpa-scaler.acts" .) "true") .Values.leaderElection.enabled -}}
{{- end -}}

{{- define "hpa-scaler.notes" -}}
The controller {{ ternary "would set" "sets" (eq (include "tightship-lib.dryRun" .) "true") }} the floors of HPAs with the annotation {{ .Values.annotationPrefix }}/hpa-scaler: "true", and of no other HPAs.
{{- if not (or .Values.prometheusServerUrl (dig "prometheusServers" "default" "url" "" .Values.config)) }}
No Prometheus is named for HPAs that name none themselves: say which in {{ include "tightship-lib.valuesOf" . }}prometheusServerUrl.
{{- end -}}
{{- end -}}

{{- define "hpa-scaler.leaving" -}}
Before you uninstall it, note that an uninstall leaves the floors as they are. Afterwards run
`hpa-scaler release --all-namespaces` with your own rights: that gives all HPAs back.
{{- end -}}
