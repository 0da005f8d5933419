{{/* What only node-refiner has. */}}

{{- define "node-refiner.notes" -}}
{{- $effect := "" -}}
{{- if not .Values.configMap.create -}}
{{- $effect = printf "The thresholds are in the ConfigMap %s." (include "tightship-lib.configMapName" .) -}}
{{- else if eq (.Values.config.enabled | toString) "false" -}}
{{- $effect = "config.enabled is false, so the controller drains nothing." -}}
{{- else -}}
{{- $verb := ternary "drains" "would drain" (include "tightship-lib.live" . | eq "true") -}}
{{- $effect = printf "The controller %s a node whenever the number of excess nodes is %v or more." $verb (.Values.config.excessNodesThreshold | default 2) -}}
{{- end -}}
{{- $leaving := dict "root" . "how" "switch it off" "value" "config.enabled=false" -}}
{{- include "tightship-lib.notes" (dict "root" . "effect" $effect "leaving" (include "tightship-lib.leaving" $leaving)) -}}
{{- end -}}
