{{/* What is live, what is a dry run, and how to watch it work. A chart defines CONTROLLER.notes, the effect of its
     values, and CONTROLLER.leaving, how to uninstall it so that nothing is left. */}}

{{/* What to write before the name of a value: nothing, or in a parent chart the name or alias of this one. */}}
{{- define "tightship-lib.valuesOf" -}}
{{- ternary "" (printf "%s." .Chart.Name) .Chart.IsRoot -}}
{{- end -}}

{{- define "tightship-lib.notes" -}}
{{- $controller := include "tightship-lib.controller" . -}}
{{- $name := include "tightship-lib.fullname" . -}}
{{- $kubectl := printf "kubectl --namespace %s" (include "tightship-lib.namespace" .) -}}
{{- $dry := eq (include "tightship-lib.dryRun" .) "true" -}}
{{ $controller }} {{ .Chart.AppVersion }}: {{ ternary "DRY RUN. The controller judges and shows, and changes nothing." "LIVE." $dry }}
{{ include (printf "%s.notes" $controller) . | trim }}

  {{ $kubectl }} logs deployment/{{ $name }}
  {{ $kubectl }} exec deployment/{{ $name }} -- {{ $controller }} plan
  {{ $kubectl }} port-forward service/{{ $name }} {{ .Values.http.port }}:{{ .Values.service.port | default .Values.http.port }}   # then http://localhost:{{ .Values.http.port }}
{{- range $key, $api := dict "serviceMonitor" "monitoring.coreos.com/v1/ServiceMonitor" "podMonitor" "monitoring.coreos.com/v1/PodMonitor" "prometheusRule" "monitoring.coreos.com/v1/PrometheusRule" "verticalPodAutoscaler" "autoscaling.k8s.io/v1/VerticalPodAutoscaler" }}
{{- if and (index $.Values $key).enabled (not (include "tightship-lib.served" (list $ $api))) }}
WARNING: {{ include "tightship-lib.valuesOf" $ }}{{ $key }}.enabled is true, but this cluster does not know {{ $api }}, so none was created.
{{- end }}
{{- end }}
{{- if not $dry }}
{{ include (printf "%s.leaving" $controller) . | trim }}
{{- else if and .Release.IsUpgrade (hasKey .Values "giveBack") }}
{{- if eq (include "tightship-lib.givesBack" .) "true" }}
If drains were under way, a Job has given their nodes back.
{{- else }}
WARNING: giveBack.enabled is false: if a drain was under way, its node stays cordoned. kubectl get nodes shows such a node.
{{- end }}
{{- end }}
{{- if and (gt (.Values.replicaCount | int) 1) $dry }}
In a dry run there is no leader election: every replica judges for itself.
{{- end }}
{{- end -}}
