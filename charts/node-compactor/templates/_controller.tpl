{{/* What only node-compactor has. */}}

{{- define "node-compactor.notes" -}}
{{- $pools := list -}}
{{- range $name, $pool := .Values.config.nodePools -}}
{{- if $pool.enabled -}}{{- $pools = append $pools $name -}}{{- end -}}
{{- end -}}
{{- $effect := "" -}}
{{- if not .Values.configMap.create -}}
{{- $effect = printf "The pools are in the ConfigMap %s." (include "tightship-lib.configMapName" .) -}}
{{- else if $pools -}}
{{- $verb := ternary "drains" "would drain" (include "tightship-lib.live" . | eq "true") -}}
{{- $effect = printf "The controller %s underutilized nodes of the pools %s." $verb (join ", " $pools) -}}
{{- else -}}
{{- $so := ternary ", so the controller drains nothing" "; the dry run shows what would be possible in every pool" (include "tightship-lib.live" . | eq "true") -}}
{{- $effect = printf "No pool is enabled%s. Enable pools in %sconfig.nodePools." $so (include "tightship-lib.valuesOf" .) -}}
{{- end -}}
{{- $leaving := dict "root" . "how" "disable its pools" "value" "config.nodePools.NAME.enabled=false" -}}
{{- include "tightship-lib.notes" (dict "root" . "effect" $effect "leaving" (include "tightship-lib.leaving" $leaving)) -}}
{{- end -}}
