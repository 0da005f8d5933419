{{/* What only hpa-scaler has. */}}

{{- define "hpa-scaler.env" -}}
{{- with .Values.prometheusServerUrl }}
- name: PROMETHEUS_SERVER_URL
  value: {{ . | quote }}
{{- end }}
- name: MINIMUM_REPLICAS_LOWER_BOUND
  value: {{ include "tightship-lib.text" .Values.minimumReplicasLowerBound | quote }}
- name: ANNOTATION_PREFIX
  value: {{ .Values.annotationPrefix | quote }}
- name: CYCLE_DEADLINE
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

{{- define "hpa-scaler.clusterRules" -}}
- apiGroups: [autoscaling]
  resources: [horizontalpodautoscalers]
  verbs:
    - list
    {{- if .Values.watch }}
    - watch
    {{- end }}
    {{- if include "tightship-lib.live" . }}
    - get
    - patch
    {{- end }}
- apiGroups: [apps]
  resources: [deployments, statefulsets, replicasets]
  verbs: [get]
{{- if include "hpa-scaler.readsRollouts" . }}
- apiGroups: [argoproj.io]
  resources: [rollouts]
  verbs: [get]
{{- end }}
{{- if include "tightship-lib.live" . }}
{{ include "hpa-scaler.eventRules" . }}
{{- end }}
{{- end -}}

{{- define "hpa-scaler.eventRules" -}}
{{- if .Values.optionalRights.events -}}
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create]
{{- end -}}
{{- end -}}

{{/* Whoever grants a right must hold it, and the roles of a tenant name only kinds that there are. */}}
{{- define "hpa-scaler.readsRollouts" -}}
{{- $said := .Values.optionalRights.rollouts -}}
{{- if not (kindIs "invalid" $said) -}}
{{- if $said -}}true{{- end -}}
{{- else if empty .Values.config.namespaces -}}
true
{{- else -}}
{{- include "tightship-lib.served" (list . "argoproj.io/v1alpha1/Rollout") -}}
{{- end -}}
{{- end -}}

{{/* Events on the ConfigMap: without a ClusterRole, nothing else grants them. */}}
{{- define "hpa-scaler.ownRules" -}}
{{- if and .Values.config.namespaces (include "tightship-lib.live" .) -}}
{{- include "hpa-scaler.eventRules" . -}}
{{- end -}}
{{- end -}}

{{/* The ports of all Prometheus servers that the values name or allow. */}}
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
{{- .Values.prometheusEgress.ports | default ($ports | uniq) | toJson -}}
{{- end -}}

{{- define "hpa-scaler.notes" -}}
{{- $verb := ternary "sets" "would set" (include "tightship-lib.live" . | eq "true") -}}
{{- $effect := printf "The controller %s minReplicas of HPAs with the annotation %s/hpa-scaler: \"true\", and of no other HPAs." $verb .Values.annotationPrefix -}}
{{- if not (or .Values.prometheusServerUrl (dig "prometheusServers" "default" "url" "" .Values.config)) -}}
{{- $effect = printf "%s\nNo default Prometheus is set. Set %sprometheusServerUrl, or name a server in the annotations of each HPA." $effect (include "tightship-lib.valuesOf" .) -}}
{{- end -}}
{{- include "tightship-lib.notes" (dict "root" . "effect" $effect "leaving" (include "hpa-scaler.leaving" .)) -}}
{{- end -}}

{{- define "hpa-scaler.leaving" -}}
An uninstall leaves minReplicas of every HPA as it is. To give all HPAs back, run
`hpa-scaler release --all-namespaces` after the uninstall, with rights of your own.
{{- end -}}
