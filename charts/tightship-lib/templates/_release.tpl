{{/* The Job that gives back the nodes of drains that nobody continues: after an uninstall, and after an upgrade or a
     rollback to a dry run, which has no rights to write, or to a release without the controller. The Job runs the
     controller with RELEASE, which waits until the former leader no longer leads. The Job's account and rights exist only
     while it runs. */}}

{{/* "true" if the chart runs the Job. With an account of its own and without rights, the Job could only fail. */}}
{{- define "tightship-lib.givesBack" -}}
{{- if include "tightship-lib.drains" . -}}
{{- and .Values.giveBack.enabled (or .Values.rbac.create (not .Values.serviceAccount.create)) -}}
{{- end -}}
{{- end -}}

{{- define "tightship-lib.releaseName" -}}
{{- include "tightship-lib.fullname" . }}-release
{{- end -}}

{{- define "tightship-lib.releaseAccount" -}}
{{- ternary (include "tightship-lib.releaseName" .) .Values.serviceAccount.name .Values.serviceAccount.create -}}
{{- end -}}

{{/* When the Job runs: the events of Helm, or nothing. A live controller may leave nodes behind when it goes. A dry run may
     find some only where a live controller was before: a rollback does not know, so its Job looks. An upgrade looks at
     what is installed. */}}
{{- define "tightship-lib.releaseEvents" -}}
{{- if eq (include "tightship-lib.givesBack" .) "true" -}}
{{- $installed := eq (include "tightship-lib.installed" .) "true" -}}
{{- $before := include "tightship-lib.before" . -}}
{{- if and $installed (include "tightship-lib.live" .) -}}
post-delete
{{- else if eq $before "live" -}}
post-upgrade,post-rollback
{{- else if and $installed (eq $before "unknown") -}}
post-upgrade,post-rollback
{{- else if $installed -}}
post-rollback
{{- end -}}
{{- end -}}
{{- end -}}

{{/* "true" if the Job may find deletion costs on pods: after a rollback always, since the manifest was made before it was known
     from which revision. Its rights and their fence last as long as the Job. */}}
{{- define "tightship-lib.releaseCosts" -}}
{{- if include "tightship-lib.costs" . -}}
true
{{- else if and (contains "rollback" (include "tightship-lib.releaseEvents" .)) (empty .Values.kubeconfig.secretName) -}}
{{- include "tightship-lib.fences" . -}}
{{- end -}}
{{- end -}}

{{/* What is installed now: live, dry, or unknown where nothing is, or where charts are rendered without a cluster. A Job that
     is still there has failed, and what it should have given back may still be held. */}}
{{- define "tightship-lib.before" -}}
{{- $namespace := include "tightship-lib.namespace" . -}}
{{- $deployment := lookup "apps/v1" "Deployment" $namespace (include "tightship-lib.fullname" .) -}}
{{- if lookup "batch/v1" "Job" $namespace (include "tightship-lib.releaseName" .) -}}
live
{{- else if $deployment -}}
{{- $dry := dict "name" "DRY_RUN" "value" "true" -}}
{{- ternary "dry" "live" (has $dry ((first $deployment.spec.template.spec.containers).env | default list)) -}}
{{- else -}}
unknown
{{- end -}}
{{- end -}}

{{/* Takes a dict: root, weight, and perhaps name, namespace and annotations. */}}
{{- define "tightship-lib.releaseMetadata" -}}
{{- $hook := dict "helm.sh/hook" (include "tightship-lib.releaseEvents" .root) -}}
{{- $_ := set $hook "helm.sh/hook-weight" (toString .weight) -}}
{{- $_ := set $hook "helm.sh/hook-delete-policy" "before-hook-creation,hook-succeeded" -}}
{{- $name := .name | default (include "tightship-lib.releaseName" .root) -}}
{{- include "tightship-lib.metadata" (dict "root" .root "name" $name "namespace" .namespace "annotations" (mergeOverwrite $hook (.annotations | default dict))) -}}
{{- end -}}

{{/* Takes a dict: root, kind, name, namespace, rules (as text). */}}
{{- define "tightship-lib.releaseRole" -}}
{{- $metadata := include "tightship-lib.releaseMetadata" (dict "root" .root "weight" -5 "name" .name "namespace" .namespace) -}}
{{- include "tightship-lib.grant" (merge (dict "metadata" $metadata "account" (include "tightship-lib.releaseAccount" .root)) .) }}
{{- end -}}

{{- define "tightship-lib.releaseClusterRules" -}}
{{ include "tightship-lib.nodeReads" . }}
{{ include "tightship-lib.autoscalerReads" . }}
{{ include "tightship-lib.bufferReads" . }}
- apiGroups: [""]
  resources: [nodes]
  verbs: [get, patch]
{{- if include "tightship-lib.releaseCosts" . }}
{{ include "tightship-lib.costRules" . }}
{{- end }}
{{- with .Values.rbac.additionalRules }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "tightship-lib.releaseOwnRules" -}}
{{- $leases := list (include "tightship-lib.leaseName" .) -}}
{{- if eq (include "tightship-lib.claimsNamespace" .) (include "tightship-lib.namespace" .) -}}
{{- $leases = append $leases .Values.claims.leaseName -}}
{{- end -}}
{{ include "tightship-lib.leaseRules" $leases }}
- apiGroups: [""]
  resources: [configmaps]
  resourceNames: [{{ include "tightship-lib.configMapName" . }}]
  verbs: [list, watch]
{{- end -}}

{{- define "tightship-lib.release" -}}
{{- $v := .Values -}}
{{- if include "tightship-lib.releaseEvents" . -}}
{{- $namespace := include "tightship-lib.namespace" . -}}
{{- $there := include "tightship-lib.claimsNamespace" . -}}
{{- $name := include "tightship-lib.releaseName" . -}}
{{- $everywhere := printf "%s:%s" $namespace $name -}}
{{- if $v.serviceAccount.create }}
---
apiVersion: v1
kind: ServiceAccount
metadata:
  {{- include "tightship-lib.releaseMetadata" (dict "root" . "weight" -5) | nindent 2 }}
automountServiceAccountToken: false
{{- end }}
{{- if $v.rbac.create }}
{{- include "tightship-lib.releaseRole" (dict "root" . "kind" "ClusterRole" "name" $everywhere "namespace" "-" "rules" (include "tightship-lib.releaseClusterRules" .)) }}
{{- include "tightship-lib.releaseRole" (dict "root" . "kind" "Role" "name" $name "namespace" $namespace "rules" (include "tightship-lib.releaseOwnRules" .)) }}
{{- if ne $there $namespace }}
{{- include "tightship-lib.releaseRole" (dict "root" . "kind" "Role" "name" $everywhere "namespace" $there "rules" (include "tightship-lib.leaseRules" (list $v.claims.leaseName))) }}
{{- end }}
{{- end }}
{{- $policed := list }}
{{- if include "tightship-lib.holdsAccounts" . }}
{{- $policed = list "Leases" "Nodes" }}
{{- end }}
{{- if include "tightship-lib.releaseCosts" . }}
{{- $policed = append $policed "Pods" }}
{{- end }}
{{- range $what := $policed }}
{{- $policy := printf "%s.%s.%s" $name $namespace ($what | lower) }}
{{- $metadata := include "tightship-lib.releaseMetadata" (dict "root" $ "weight" -5 "name" $policy "namespace" "-") }}
{{ include "tightship-lib.policy" (dict "root" $ "name" $policy "metadata" $metadata "account" (include "tightship-lib.releaseAccount" $) "spec" (printf "tightship-lib.policyOf%s" $what)) }}
{{- end }}
{{- if $v.networkPolicy.enabled }}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  {{- include "tightship-lib.releaseMetadata" (dict "root" . "weight" -5) | nindent 2 }}
spec:
  podSelector:
    matchLabels:
      {{- include "tightship-lib.labelsOf" (list . "release") | nindent 6 }}
  policyTypes: [Ingress, Egress]
  egress:
    {{- include "tightship-lib.egressToNames" . | nindent 4 }}
    {{- include "tightship-lib.egressToApi" . | nindent 4 }}
{{- end }}
{{- if not $v.giveBack.leftToParent }}
{{- include "tightship-lib.releaseJobs" (list .) }}
{{- end }}
{{- end -}}
{{- end -}}

{{/* The Jobs of some controllers. Those that run at the same time are one hook, since Helm stops at the first hook that fails:
     a Job that can't start keeps no other from starting. Takes the root contexts. */}}
{{- define "tightship-lib.releaseJobs" -}}
{{- $together := dict -}}
{{- range $root := . -}}
{{- with include "tightship-lib.releaseEvents" $root -}}
{{- $_ := set $together . (append (index $together . | default list) $root) -}}
{{- end -}}
{{- end -}}
{{- range $events, $roots := $together }}
---
{{- if eq (len $roots) 1 }}
{{ include "tightship-lib.releaseJob" (first $roots) }}
{{- else }}
apiVersion: v1
kind: List
metadata:
  {{- include "tightship-lib.releaseMetadata" (dict "root" (first $roots) "weight" 0) | nindent 2 }}
items:
  {{- range $roots }}
  - {{- include "tightship-lib.releaseJob" . | nindent 4 }}
  {{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "tightship-lib.releaseJob" -}}
{{- $failing := dict "tightship.dev/if-this-job-fails" (printf "nodes in drain stay cordoned; this frees them: %s" (include "tightship-lib.rescue" .)) -}}
apiVersion: batch/v1
kind: Job
metadata:
  {{- include "tightship-lib.releaseMetadata" (dict "root" . "weight" 0 "annotations" $failing) | nindent 2 }}
spec:
  backoffLimit: 3
  # Below the five minutes that Helm waits by default.
  activeDeadlineSeconds: 240
  template:
    {{- include "tightship-lib.podTemplate" (dict
      "root" .
      "part" "release"
      "account" (include "tightship-lib.releaseAccount" .)
      "pod" "restartPolicy: Never"
      "container" (printf "name: release\ncommand: [%s]\nargs: [run]" (include "tightship-lib.controller" .))
      "env" (include "tightship-lib.releaseEnv" .)) | nindent 4 }}
{{- end -}}

{{/* What a person can do instead of the Job, with rights of their own. */}}
{{- define "tightship-lib.rescue" -}}
for node in $(kubectl get nodes -o go-template='{{ "{{range .items}}{{$node := .metadata.name}}{{range .spec.taints}}{{if eq .key \"tightship.dev/draining\"}}{{$node}} {{end}}{{end}}{{end}}" }}'); do kubectl taint node $node tightship.dev/draining- && kubectl uncordon $node; done
{{- end -}}

{{/* The controller's environment without what a pod that gives back and exits does not use. */}}
{{- define "tightship-lib.releaseEnv" -}}
{{- $left := list "DRY_RUN" "CONFIG_PATH" "HTTP_HOST" "HTTP_PORTS" "HTTP_PROBE_PORT" "HTTP_SECURE" "HTTP_TLS_PATH" -}}
{{- range include "tightship-lib.env" . | fromYamlArray }}
{{- if not (has .name $left) }}
- {{ toYaml . | nindent 2 | trim }}
{{- end }}
{{- end }}
- name: HTTP_PORTS
  value: "0"
- name: RELEASE
  value: "true"
{{ include "tightship-lib.claimsEnv" . }}
{{- end -}}
