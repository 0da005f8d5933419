{{/* Values of `global` are defaults of the values of the same name: lists add up, and the global part comes first; mappings
     merge by key; anything else of a controller's own wins where it is not the chart's default. Values of another kind
     are other charts'. Changes .Values, as often as somebody asks. */}}
{{- define "tightship-lib.settle" -}}
{{- $defaults := include "tightship-lib.defaults" . | fromYaml -}}
{{- range $key, $all := .Values.global -}}
{{- if hasKey $defaults $key -}}
{{- $settled := include "tightship-lib.settled" (dict "own" (index $.Values $key) "all" $all "default" (index $defaults $key)) | fromYaml -}}
{{- $_ := set $.Values $key $settled.value -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Takes a dict: own, all, and default. */}}
{{- define "tightship-lib.settled" -}}
{{- $own := kindIs "invalid" .own | ternary (empty .default | ternary .default .own) .own -}}
{{- $value := $own -}}
{{- if and (kindIs "map" $own) (kindIs "map" .all) -}}
{{- range $key, $all := .all -}}
{{- $default := kindIs "map" $.default | ternary $.default dict -}}
{{- /* A part that the user has taken away stays away; Helm takes those away whose default is null. */}}
{{- if or (hasKey $own $key) (empty (index $default $key)) -}}
{{- $part := dict "own" (index $own $key) "all" $all "default" (index $default $key) -}}
{{- $_ := set $value $key (include "tightship-lib.settled" $part | fromYaml).value -}}
{{- end -}}
{{- end -}}
{{- else if and (kindIs "slice" $own) (kindIs "slice" .all) -}}
{{- $value = concat .all $own | uniq -}}
{{- else if not (or (kindIs "map" $own) (kindIs "slice" $own) (kindIs "invalid" .all) (eq (toJson .all) "\"\"") (ne (toJson $own) (toJson .default))) -}}
{{- $value = .all -}}
{{- end -}}
{{ toYaml (dict "value" $value) }}
{{- end -}}
