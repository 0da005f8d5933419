{{/* What is of this controller alone; tightship-lib calls these by the controller's name. */}}

{{/* A controller that evicts begins with a dry run, until somebody has looked at what it would do. */}}
{{- define "node-compactor.dryRun" -}}
true
{{- end -}}

{{- define "node-compactor.acts" -}}
{{- ternary "false" "true" (eq (include "tightship-lib.dryRun" .) "true") -}}
{{- end -}}

{{- define "node-compactor.env" -}}
- name: SLEEP_DURATION_BETWEEN_ITERATIONS_SECONDS
  value: {{ include "tightship-lib.text" .Values.interval | quote }}
{{ include "tightship-lib.claimsEnv" . }}
{{- end -}}

{{- define "node-compactor.mounts" -}}{{- end -}}

{{- define "node-compactor.volumes" -}}{{- end -}}

{{- define "node-compactor.config" -}}
estafette-k8s-node-compactor-config.yaml: |
  {{- toYaml .Values.config | nindent 2 }}
{{- end -}}

{{- define "node-compactor.clusterRules" -}}
{{- include "tightship-lib.nodeRules" (list . .Values.config.evictionMethod .Values.config.scaleUpVeto .Values.config.disabledRules) -}}
{{- end -}}

{{- define "node-compactor.namespaces" -}}[]{{- end -}}

{{- define "node-compactor.ownRules" -}}{{- end -}}

{{- define "node-compactor.ports" -}}[]{{- end -}}

{{/* "true" where a replica should lead. */}}
{{- define "node-compactor.leads" -}}
{{- and (eq (include "node-compactor.acts" .) "true") .Values.leaderElection.enabled -}}
{{- end -}}

{{- define "node-compactor.notes" -}}
{{- $pools := list -}}
{{- range $name, $pool := .Values.config.nodePools -}}
{{- if $pool.enabled -}}{{- $pools = append $pools $name -}}{{- end -}}
{{- end -}}
{{- if not .Values.configMap.create -}}
Its pools are in the ConfigMap {{ include "tightship-lib.configMapName" . }}.
{{- else if $pools -}}
The controller {{ ternary "would drain" "drains" (eq (include "tightship-lib.dryRun" .) "true") }} underutilized nodes of the pools {{ join ", " $pools }}.
{{- else -}}
No pool is enabled, so nothing is ever drained: say which in {{ include "tightship-lib.valuesOf" . }}config.nodePools.
{{- end -}}
{{- end -}}

{{- define "node-compactor.leaving" -}}
{{- if eq (include "tightship-lib.givesBack" .) "true" -}}
Before you uninstall it, or make it a dry run again, note that this aborts drains under way: a Job gives their
nodes back, and Helm waits for it. To let the drains finish first, disable its pools ({{ include "tightship-lib.valuesOf" . }}config.nodePools.NAME.enabled=false), and wait
until no node has a taint tightship.dev/draining or tightship.dev/candidate.
{{- else -}}
Before you uninstall it, or make it a dry run again, disable its pools ({{ include "tightship-lib.valuesOf" . }}config.nodePools.NAME.enabled=false), and wait until
no node has a taint tightship.dev/draining or tightship.dev/candidate: giveBack.enabled is false, so nobody ends such a
drain, and its node stays cordoned. Did that happen? Install it again, switched off like that: the controller ends what is left.
{{- end -}}
{{- end -}}
