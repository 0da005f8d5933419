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

{{/* No selector of the controller's pods matches these labels. */}}
{{- define "tightship-lib.releaseLabels" -}}
app.kubernetes.io/name: {{ printf "%s-release" (include "tightship-lib.name" .) }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* Takes a dict: root, weight, and perhaps name and namespace. */}}
{{- define "tightship-lib.releaseMetadata" -}}
{{- $live := and (eq (include "tightship-lib.installed" .root) "true") (eq (include "tightship-lib.live" .root) "true") -}}
{{- $hook := dict "helm.sh/hook" (ternary "post-delete" "post-upgrade,post-rollback" $live) -}}
{{- $_ := set $hook "helm.sh/hook-weight" (toString .weight) -}}
{{- $_ := set $hook "helm.sh/hook-delete-policy" "before-hook-creation,hook-succeeded" -}}
{{- $name := .name | default (include "tightship-lib.releaseName" .root) -}}
{{- include "tightship-lib.metadata" (dict "root" .root "name" $name "namespace" .namespace "annotations" $hook) -}}
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
- apiGroups: [lifecycle.k8s.io]
  resources: [evictionrequests]
  verbs: [delete]
{{- if include "tightship-lib.costs" . }}
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
{{- if eq (include "tightship-lib.givesBack" .) "true" -}}
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
{{- $policed = list "Leases" "Nodes" "Requests" }}
{{- end }}
{{- if include "tightship-lib.costs" . }}
{{- $policed = append $policed "Pods" }}
{{- end }}
{{- range $what := $policed }}
{{- $policy := printf "%s.%s.%s" $name $namespace ($what | lower) }}
{{- $metadata := include "tightship-lib.releaseMetadata" (dict "root" $ "weight" -5 "name" $policy "namespace" "-") }}
{{ include "tightship-lib.policy" (dict "root" $ "name" $policy "metadata" $metadata "account" (include "tightship-lib.releaseAccount" $) "spec" (printf "tightship-lib.policyOf%s" $what)) }}
{{- end }}
---
apiVersion: batch/v1
kind: Job
metadata:
  {{- include "tightship-lib.releaseMetadata" (dict "root" . "weight" 0) | nindent 2 }}
spec:
  backoffLimit: 3
  # Below the five minutes that Helm waits by default.
  activeDeadlineSeconds: 240
  template:
    metadata:
      labels:
        {{- include "tightship-lib.releaseLabels" . | nindent 8 }}
        {{- include "tightship-lib.partLabels" . | nindent 8 }}
      {{- with $v.commonAnnotations }}
      annotations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
    spec:
      {{- include "tightship-lib.releasePod" . | nindent 6 }}
{{- end -}}
{{- end -}}

{{- define "tightship-lib.releasePod" -}}
{{- $v := .Values -}}
restartPolicy: Never
serviceAccountName: {{ include "tightship-lib.releaseAccount" . }}
automountServiceAccountToken: {{ empty $v.kubeconfig.secretName }}
{{ include "tightship-lib.pod" . }}
{{- with $v.priorityClassName | default $v.global.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
containers:
  - name: release
    {{- include "tightship-lib.controllerContainer" . | nindent 4 }}
    args: [run]
    env:
      {{- include "tightship-lib.releaseEnv" . | nindent 6 }}
      {{- include "tightship-lib.claimsEnv" . | nindent 6 }}
      {{- with $v.env }}
      {{- tpl (toYaml .) $ | nindent 6 }}
      {{- end }}
    {{- with include "tightship-lib.kubeconfigMount" . }}
    volumeMounts:
      {{- . | nindent 6 }}
    {{- end }}
{{- with include "tightship-lib.kubeconfigVolume" . }}
volumes:
  {{- . | nindent 2 }}
{{- end }}
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
{{- end -}}
