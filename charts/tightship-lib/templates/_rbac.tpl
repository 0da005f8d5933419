{{/* The account and its rights. */}}

{{- define "tightship-lib.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- $account := .Values.serviceAccount -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  {{- include "tightship-lib.metadata" (dict "root" . "name" (include "tightship-lib.serviceAccountName" .) "labels" $account.labels "annotations" $account.annotations) | nindent 2 }}
automountServiceAccountToken: {{ $account.automountServiceAccountToken }}
{{- end -}}
{{- end -}}

{{- define "tightship-lib.subjects" -}}
- kind: ServiceAccount
  name: {{ include "tightship-lib.serviceAccountName" . }}
  namespace: {{ include "tightship-lib.namespace" . }}
{{- end -}}

{{- define "tightship-lib.clusterRole" -}}
{{- if .Values.rbac.create -}}
{{- $name := include "tightship-lib.clusterName" . -}}
{{- range $namespace := .Own.namespaces | default (list "-") }}
{{- $kind := ternary "ClusterRole" "Role" (eq $namespace "-") }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $kind }}
metadata:
  {{- include "tightship-lib.metadata" (dict "root" $ "name" $name "namespace" $namespace) | nindent 2 }}
rules:
  {{- $.Own.clusterRules | nindent 2 }}
  {{- with $.Values.rbac.additionalRules }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $kind }}Binding
metadata:
  {{- include "tightship-lib.metadata" (dict "root" $ "name" $name "namespace" $namespace) | nindent 2 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ $kind }}
  name: {{ $name }}
subjects:
  {{- include "tightship-lib.subjects" $ | nindent 2 }}
{{- end }}
{{- end -}}
{{- end -}}

{{/* The release's namespace: Leases, the configuration, and what only this controller needs. */}}
{{- define "tightship-lib.role" -}}
{{- if .Values.rbac.create -}}
{{- $rules := include "tightship-lib.ownRules" . | trim -}}
{{- if $rules }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  {{- include "tightship-lib.metadata" (dict "root" .) | nindent 2 }}
rules:
  {{- $rules | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  {{- include "tightship-lib.metadata" (dict "root" .) | nindent 2 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: {{ include "tightship-lib.fullname" . }}
subjects:
  {{- include "tightship-lib.subjects" . | nindent 2 }}
{{- end }}
{{- end -}}
{{- end -}}

{{- define "tightship-lib.ownRules" -}}
{{- $leases := list -}}
{{- if include "tightship-lib.live" . -}}
{{- if .Values.leaderElection.enabled -}}
{{- $leases = append $leases (include "tightship-lib.leaseName" .) -}}
{{- end -}}
{{- if include "tightship-lib.drains" . -}}
{{- if eq (include "tightship-lib.claimsNamespace" .) (include "tightship-lib.namespace" .) -}}
{{- $leases = append $leases .Values.claims.leaseName -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- with $leases }}
{{ include "tightship-lib.leaseRules" . }}
{{- end }}
{{- if not .Values.configMap.mounted }}
- apiGroups: [""]
  resources: [configmaps]
  resourceNames: [{{ include "tightship-lib.configMapName" . }}]
  verbs: [list, watch]
{{- end }}
{{- with .Own.ownRules }}
{{ . }}
{{- end }}
{{- end -}}

{{/* Kubernetes can't restrict `create` by name. Takes the names of the Leases. */}}
{{- define "tightship-lib.leaseRules" -}}
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [create]
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  resourceNames: {{ toJson . }}
  verbs: [get, update]
{{- end -}}

{{/* The Lease with the claims, if it is in another namespace. */}}
{{- define "tightship-lib.claimsRole" -}}
{{- if and .Values.rbac.create (include "tightship-lib.drains" .) (include "tightship-lib.live" .) -}}
{{- $there := include "tightship-lib.claimsNamespace" . -}}
{{- if ne $there (include "tightship-lib.namespace" .) -}}
{{- $name := include "tightship-lib.clusterName" . }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  {{- include "tightship-lib.metadata" (dict "root" . "name" $name "namespace" $there) | nindent 2 }}
rules:
  {{- include "tightship-lib.leaseRules" (list .Values.claims.leaseName) | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  {{- include "tightship-lib.metadata" (dict "root" . "name" $name "namespace" $there) | nindent 2 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: {{ $name }}
subjects:
  {{- include "tightship-lib.subjects" . | nindent 2 }}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* What every controller of nodes reads. */}}
{{- define "tightship-lib.nodeReads" -}}
- apiGroups: [""]
  resources: [nodes, pods, persistentvolumeclaims, persistentvolumes, namespaces, replicationcontrollers]
  verbs: [list, watch]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [list, watch]
- apiGroups: [storage.k8s.io]
  resources: [storageclasses, csinodes]
  verbs: [list, watch]
- apiGroups: [apps]
  resources: [replicasets, statefulsets, daemonsets]
  verbs: [list, watch]
- apiGroups: [batch]
  resources: [jobs]
  verbs: [list, watch]
{{- end -}}

{{- define "tightship-lib.autoscalerReads" -}}
- apiGroups: [autoscaling]
  resources: [horizontalpodautoscalers]
  verbs: [list, watch]
{{- end -}}

{{- define "tightship-lib.bufferReads" -}}
- apiGroups: [autoscaling.x-k8s.io]
  resources: [capacitybuffers]
  verbs: [list, watch]
- apiGroups: [""]
  resources: [podtemplates]
  verbs: [list, watch]
{{- end -}}

{{/* What every controller of nodes may do: docs/permissions.md. Takes a dict: root, and from the configuration
     evictionMethod, scaleUpVeto and disabledRules, whatever the keys are called there. */}}
{{- define "tightship-lib.nodeRules" -}}
{{- $root := .root -}}
{{ include "tightship-lib.nodeReads" $root }}
{{- if ne (.scaleUpVeto | toString) "false" }}
{{ include "tightship-lib.autoscalerReads" $root }}
{{- end }}
{{- if not (has "BufferNeedsNode" (.disabledRules | default list)) }}
{{ include "tightship-lib.bufferReads" $root }}
{{- end }}
{{- if include "tightship-lib.live" $root }}
- apiGroups: [""]
  resources: [nodes]
  verbs: [get, patch]
- apiGroups: [""]
  resources: [pods/eviction]
  verbs: [create]
{{- if eq (.evictionMethod | toString) "delete" }}
- apiGroups: [""]
  resources: [pods]
  verbs: [delete]
{{- end }}
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create]
{{- end }}
{{- end -}}
