{{/* What only node-refiner has. */}}

{{/* One key for each setting. Every value is a string; a list is written with commas. */}}
{{- define "node-refiner.config" -}}
{{- range $key, $value := .Values.config }}
{{ $key }}: {{ include "tightship-lib.text" $value | quote }}
{{- else -}}
{}
{{- end }}
{{- end -}}

{{- define "node-refiner.notes" -}}
{{- $effect := "" -}}
{{- if not .Values.configMap.create -}}
{{- $effect = printf "The thresholds are in the ConfigMap %s." (include "tightship-lib.configMapName" .) -}}
{{- else if eq (.Values.config.drainer_enabled | toString) "false" -}}
{{- $effect = "drainer_enabled is false, so the controller drains nothing." -}}
{{- else -}}
{{- $verb := ternary "drains" "would drain" (include "tightship-lib.live" . | eq "true") -}}
{{- $effect = printf "The controller %s a node whenever the number of excess nodes is %v or more." $verb (.Values.config.excess_nodes_threshold | default 2) -}}
{{- end -}}
{{- $leaving := dict "root" . "how" "switch its drainer off" "value" "config.drainer_enabled=false" -}}
{{- include "tightship-lib.notes" (dict "root" . "effect" $effect "leaving" (include "tightship-lib.leaving" $leaving)) -}}
{{- end -}}
