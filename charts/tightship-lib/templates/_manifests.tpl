{{/* Every object of a controller's chart. A chart includes this once, in templates/all.yaml, and passes what only its
     controller has. Takes a dict:
       root          the chart's root context
       clusterRules  text: the RBAC rules of the ClusterRole
     and, if the controller has them:
       namespaces    list: namespaces that get a Role with clusterRules each, instead of one ClusterRole
       ownRules      text: further RBAC rules in the release's namespace
       env, mounts, volumes  text: environment variables, volume mounts and volumes of the pod
       ports, peers  lists: ports of other servers that the NetworkPolicy lets the pod reach, and which servers
       forgottenAnnotations  list: annotations of nodes that the controller may remove, and not write
       idle          true: no replica has to lead, whatever leaderElection says
     Templates of this library find these under .Own, beside .Values, .Chart and the rest of the root context.

     With .Values.enabled=false the release is only the Job that gives nodes back, in the upgrade that takes the
     controller away. The parent chart names no condition for a controller that drains nodes: Helm would drop the chart,
     and with it the Job. `lookup` finds nothing where charts are rendered without a cluster; such a release has no Job. */}}

{{- define "tightship-lib.manifests" -}}
{{- range $key := list "root" "clusterRules" -}}
{{- $_ := required (printf "tightship-lib.manifests: %s is missing" $key) (index $ $key) -}}
{{- end -}}
{{- $context := merge (dict "Own" (omit . "root")) .root -}}
{{- if ne (include "tightship-lib.installed" .root) "true" -}}
{{ include "tightship-lib.release" $context }}
{{- else -}}
{{ include "tightship-lib.certificate" $context }}
---
{{ include "tightship-lib.configMap" $context }}
---
{{ include "tightship-lib.dashboards" $context }}
---
{{- range list "missing" "landingNotes" "costNotes" }}
{{- include (printf "tightship-lib.%s" .) $context | include "tightship-lib.comments" }}
{{- end }}
{{ include "tightship-lib.deployment" $context }}
---
{{ include "tightship-lib.extraObjects" $context }}
---
{{ include "tightship-lib.flowSchema" $context }}
---
{{ include "tightship-lib.landings" $context }}
---
{{ include "tightship-lib.monitors" $context }}
---
{{ include "tightship-lib.networkPolicy" $context }}
---
{{ include "tightship-lib.podDisruptionBudget" $context }}
---
{{ include "tightship-lib.policies" $context }}
---
{{ include "tightship-lib.prometheusRule" $context }}
---
{{ include "tightship-lib.rights" $context }}
---
{{ include "tightship-lib.secureRights" $context }}
---
{{ include "tightship-lib.release" $context }}
---
{{ include "tightship-lib.service" $context }}
---
{{ include "tightship-lib.serviceAccount" $context }}
---
{{ include "tightship-lib.test" $context }}
---
{{ include "tightship-lib.verticalPodAutoscaler" $context }}
{{- end -}}
{{- end -}}

{{/* "true" unless a parent chart has switched the controller off. */}}
{{- define "tightship-lib.installed" -}}
{{- ne (toString .Values.enabled) "false" -}}
{{- end -}}

{{/* "true" where the controller drains nodes: the values of its chart say where its claims are. */}}
{{- define "tightship-lib.drains" -}}
{{- if hasKey .Values "claims" -}}true{{- end -}}
{{- end -}}

{{/* "true" or "false"; a dry run unless values say otherwise: somebody has to read the plan first. */}}
{{- define "tightship-lib.dryRun" -}}
{{- ne (toString .Values.dryRun) "false" -}}
{{- end -}}

{{/* "true" where the controller may change anything. */}}
{{- define "tightship-lib.live" -}}
{{- if ne (include "tightship-lib.dryRun" .) "true" -}}true{{- end -}}
{{- end -}}
