{{/* What to write before the name of a value: nothing, or in a parent chart the name or alias of this one. */}}
{{- define "tightship-lib.valuesOf" -}}
{{- ternary "" (printf "%s." .Chart.Name) .Chart.IsRoot -}}
{{- end -}}

{{/* What is live, what is a dry run, and how to watch it work. Takes a dict: root; effect, what the values come to; and
     leaving, how to uninstall the controller so that nothing is left. */}}
{{- define "tightship-lib.notes" -}}
{{- $effect := required "tightship-lib.notes: effect is missing" .effect -}}
{{- $leaving := required "tightship-lib.notes: leaving is missing" .leaving -}}
{{- with required "tightship-lib.notes: root is missing" .root -}}
{{- $controller := include "tightship-lib.controller" . -}}
{{- $name := include "tightship-lib.fullname" . -}}
{{- $kubectl := printf "kubectl --namespace %s" (include "tightship-lib.namespace" .) -}}
{{- $dry := eq (include "tightship-lib.dryRun" .) "true" -}}
{{ $controller }} {{ .Chart.AppVersion }}: {{ ternary "DRY RUN. The controller shows what it would do, and changes nothing." "LIVE." $dry }}
{{ $effect }}

  {{ $kubectl }} logs deployment/{{ $name }}
  {{ $kubectl }} exec deployment/{{ $name }} -- {{ $controller }} plan
  {{ $kubectl }} port-forward service/{{ $name }} {{ .Values.http.port }}:{{ .Values.service.port | default .Values.http.port }}   # then {{ ternary "https" "http" .Values.http.secure.enabled }}://localhost:{{ .Values.http.port }}
{{- if .Values.http.secure.enabled }}
Metrics, /status and the page need a bearer token: curl -k -H "Authorization: Bearer TOKEN" https://localhost:{{ .Values.http.port }}/status
{{- else }}
Metrics, /status and the page are plain HTTP, open to anyone on the pod network. A later release will set {{ include "tightship-lib.valuesOf" . }}http.secure.enabled=true by default.
{{- end }}
{{- include "tightship-lib.missing" . }}
{{- with include "tightship-lib.landingNotes" . }}
{{ . }}
{{- end }}
{{- with include "tightship-lib.costNotes" . }}
{{ . }}
{{- end }}
{{- if not $dry }}
{{ $leaving }}
{{- else if and .Release.IsUpgrade (include "tightship-lib.drains" .) (ne (include "tightship-lib.before" .) "dry") }}
{{- if eq (include "tightship-lib.givesBack" .) "true" }}
If a drain was under way, a Job has given its node back.
{{- else }}
WARNING: {{ include "tightship-lib.valuesOf" . }}giveBack.enabled is false. If a drain was under way, its node stays cordoned: kubectl get nodes shows the status SchedulingDisabled.
{{- end }}
{{- end }}
{{- if and (gt (include "tightship-lib.replicas" . | int) 1) $dry }}
A dry run has no leader election: each replica makes its own plan.
{{- end }}
{{- end -}}
{{- end -}}

{{/* How to uninstall a controller that drains nodes. Takes a dict: root, how to switch the controller off, and the value
     that does so. */}}
{{- define "tightship-lib.leaving" -}}
{{- $values := include "tightship-lib.valuesOf" .root -}}
{{- if eq (include "tightship-lib.givesBack" .root) "true" -}}
An uninstall or a return to a dry run aborts drains under way. A Job then gives the nodes back, and Helm waits for the Job.
To let the drains finish first, {{ .how }} ({{ $values }}{{ .value }}), and wait
until no node has the taint tightship.dev/draining or tightship.dev/candidate, or the label tightship.dev/leaving.
If Helm says that the Job {{ include "tightship-lib.releaseName" .root }} failed, nodes may still be cordoned. This frees them:
    {{ include "tightship-lib.rescue" .root }}
{{- else -}}
An uninstall or a return to a dry run aborts drains under way, and their nodes stay cordoned: {{ $values }}giveBack.enabled is false.
To let the drains finish first, {{ .how }} ({{ $values }}{{ .value }}), and wait
until no node has the taint tightship.dev/draining or tightship.dev/candidate, or the label tightship.dev/leaving.
To free a node that stayed cordoned, install the controller again with that value: the controller ends the drain and starts no other.
{{- end -}}
{{- end -}}

{{/* What to do next. Takes a dict: root, and the contexts of the controllers that are installed. */}}
{{- define "tightship-lib.nextSteps" -}}
{{- $release := printf "%s --namespace %s" .root.Release.Name .root.Release.Namespace -}}
Check:     helm test {{ $release }} --logs
{{- $dry := false }}
{{- range .controllers }}{{ if eq (include "tightship-lib.dryRun" .) "true" }}{{ $dry = true }}{{ end }}{{ end }}
{{- if $dry }}
Next:      watch the dry run for a few days, then let it change one pool, or one HPA, and no more:
           https://tightship.github.io/tightship/five-steps/#4-let-it-drain-one-pool
{{- end }}
{{- end -}}
