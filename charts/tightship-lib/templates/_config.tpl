{{/* The live configuration. */}}

{{- define "tightship-lib.configMap" -}}
{{- if .Values.configMap.create -}}
apiVersion: v1
kind: ConfigMap
metadata:
  {{- include "tightship-lib.metadata" (dict "root" . "name" (include "tightship-lib.configMapName" .) "annotations" .Values.configMap.annotations) | nindent 2 }}
data:
  config.yaml: |
    {{- toYaml .Values.config | nindent 4 }}
{{- end -}}
{{- end -}}

{{/* A value as a string: a whole number without an exponent, a list with commas. */}}
{{- define "tightship-lib.text" -}}
{{- if kindIs "slice" . -}}
{{- join "," . -}}
{{- else if kindIs "map" . -}}
{{- toJson . -}}
{{- else if and (kindIs "float64" .) (eq (floor .) .) -}}
{{- int64 . -}}
{{- else -}}
{{- . -}}
{{- end -}}
{{- end -}}

{{/* Objects of the user. Strings and maps are both templates. */}}
{{- define "tightship-lib.extraObjects" -}}
{{- range .Values.extraObjects }}
---
{{ tpl (kindIs "string" . | ternary . (toYaml .)) $ }}
{{- end }}
{{- end -}}
