{{/* What is of this controller alone; tightship-lib calls these by the controller's name. */}}

{{/* A controller that evicts begins with a dry run, until somebody has looked at what it would do. */}}
{{- define "node-refiner.dryRun" -}}
true
{{- end -}}

{{/* Whatever drainer_enabled says: a drain under way must be finished when it is switched off. */}}
{{- define "node-refiner.acts" -}}
{{- ternary "false" "true" (eq (include "tightship-lib.dryRun" .) "true") -}}
{{- end -}}

{{- define "node-refiner.env" -}}
- name: CALCULATION_LOOP_FREQUENCY_SECONDS
  value: {{ include "tightship-lib.text" .Values.interval | quote }}
{{ include "tightship-lib.claimsEnv" . }}
{{- end -}}

{{- define "node-refiner.mounts" -}}{{- end -}}

{{- define "node-refiner.volumes" -}}{{- end -}}

{{/* One key a setting, every value a text; lists are written with commas. */}}
{{- define "node-refiner.config" -}}
{{- range $key, $value := .Values.config }}
{{ $key }}: {{ include "tightship-lib.text" $value | quote }}
{{- else -}}
{}
{{- end }}
{{- end -}}

{{- define "node-refiner.clusterRules" -}}
{{- include "tightship-lib.nodeRules" (list . .Values.config.eviction_method .Values.config.scale_up_veto .Values.config.disabled_rules) -}}
{{- end -}}

{{- define "node-refiner.namespaces" -}}[]{{- end -}}

{{- define "node-refiner.ownRules" -}}{{- end -}}

{{- define "node-refiner.ports" -}}[]{{- end -}}

{{/* "true" where a replica should lead. */}}
{{- define "node-refiner.leads" -}}
{{- and (eq (include "node-refiner.acts" .) "true") .Values.leaderElection.enabled (ne (.Values.config.drainer_enabled | toString) "false") -}}
{{- end -}}

{{- define "node-refiner.notes" -}}
{{- $threshold := .Values.config.excess_nodes_threshold | default 2 -}}
{{- if not .Values.configMap.create -}}
Its thresholds are in the ConfigMap {{ include "tightship-lib.configMapName" . }}.
{{- else if eq (.Values.config.drainer_enabled | toString) "false" -}}
drainer_enabled is false: nothing is drained.
{{- else -}}
The controller {{ ternary "would drain" "drains" (eq (include "tightship-lib.dryRun" .) "true") }} a node whenever the cluster could do without {{ $threshold }}.
{{- end -}}
{{- end -}}

{{- define "node-refiner.leaving" -}}
{{- if eq (include "tightship-lib.givesBack" .) "true" -}}
Before you uninstall it, or make it a dry run again, note that this aborts drains under way: a Job gives their
nodes back, and Helm waits for it. To let the drains finish first, switch it off ({{ include "tightship-lib.valuesOf" . }}config.drainer_enabled=false), and wait
until no node has a taint tightship.dev/draining or tightship.dev/candidate.
{{- else -}}
Before you uninstall it, or make it a dry run again, switch it off ({{ include "tightship-lib.valuesOf" . }}config.drainer_enabled=false), and wait until
no node has a taint tightship.dev/draining or tightship.dev/candidate: giveBack.enabled is false, so nobody ends such a
drain, and its node stays cordoned. Did that happen? Install it again, switched off like that: the controller ends what is left.
{{- end -}}
{{- end -}}
