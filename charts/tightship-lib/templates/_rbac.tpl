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

{{/* A role and its binding. Takes a dict: root, kind (ClusterRole or Role), name, metadata and rules, both as text, the name
     of the account, and its namespace if that is not the release's. */}}
{{- define "tightship-lib.grant" }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ .kind }}
metadata:
  {{- .metadata | nindent 2 }}
rules:
  {{- .rules | trim | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ .kind }}Binding
metadata:
  {{- .metadata | nindent 2 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ .kind }}
  name: {{ .name }}
subjects:
  - kind: ServiceAccount
    name: {{ .account }}
    namespace: {{ .accountNamespace | default (include "tightship-lib.namespace" .root) }}
{{- end -}}

{{/* All that the controller's account may do. */}}
{{- define "tightship-lib.rights" -}}
{{- if .Values.rbac.create -}}
{{- $here := include "tightship-lib.namespace" . -}}
{{- $name := include "tightship-lib.clusterName" . -}}
{{- $grant := dict "root" . "name" $name "account" (include "tightship-lib.serviceAccountName" .) -}}
{{- $rules := .Own.clusterRules -}}
{{- with .Values.rbac.additionalRules -}}
{{- $rules = printf "%s\n%s" $rules (toYaml .) -}}
{{- end -}}
{{- range $namespace := .Own.namespaces | default (list "-") -}}
{{- $metadata := include "tightship-lib.metadata" (dict "root" $ "name" $name "namespace" $namespace) -}}
{{- $kind := ternary "ClusterRole" "Role" (eq $namespace "-") -}}
{{- include "tightship-lib.grant" (merge (dict "kind" $kind "metadata" $metadata "rules" $rules) $grant) }}
{{- end -}}
{{- with include "tightship-lib.ownRules" . | trim -}}
{{- $metadata := include "tightship-lib.metadata" (dict "root" $) -}}
{{- include "tightship-lib.grant" (merge (dict "kind" "Role" "name" (include "tightship-lib.fullname" $) "metadata" $metadata "rules" .) $grant) }}
{{- end -}}
{{- if and (include "tightship-lib.drains" .) (include "tightship-lib.live" .) -}}
{{- $there := include "tightship-lib.claimsNamespace" . -}}
{{- if ne $there $here -}}
{{- $metadata := include "tightship-lib.metadata" (dict "root" . "name" $name "namespace" $there) -}}
{{- include "tightship-lib.grant" (merge (dict "kind" "Role" "metadata" $metadata "rules" (include "tightship-lib.leaseRules" (list .Values.claims.leaseName))) $grant) }}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The rules for the release's namespace: Leases, the configuration, and what only this controller needs. */}}
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
{{- if include "tightship-lib.pilot" . }}
{{ include "tightship-lib.landingsMapRules" . }}
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
  verbs: [get, update, watch]
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
  resources: [storageclasses, csinodes, csidrivers, csistoragecapacities, volumeattachments]
  verbs: [list, watch]
- apiGroups: [apps]
  resources: [replicasets, statefulsets, daemonsets]
  verbs: [list, watch]
- apiGroups: [batch]
  resources: [jobs]
  verbs: [list, watch]
- apiGroups: [karpenter.sh]
  resources: [nodepools]
  verbs: [list, watch]
- apiGroups: [scheduling.k8s.io]
  resources: [podgroups]
  verbs: [list, watch]
- apiGroups: [leaderworkerset.x-k8s.io]
  resources: [leaderworkersets]
  verbs: [list, watch]
- apiGroups: [autoscaling.k8s.io]
  resources: [verticalpodautoscalers]
  verbs: [list, watch]
- apiGroups: [resource.k8s.io]
  resources: [resourceslices, deviceclasses, resourceclaims]
  verbs: [list, watch]
- apiGroups: [""]
  resources: [configmaps]
  resourceNames: [cluster-autoscaler-status]
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

{{/* "true" if drains restart Deployments. YAML 1.1 reads `off` as false. */}}
{{- define "tightship-lib.restarts" -}}
{{- if has (.Values.config.makeBeforeBreak | toString | lower) (list "marked" "all") -}}true{{- end -}}
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
{{- if include "tightship-lib.restarts" $root }}
- apiGroups: [apps]
  resources: [deployments]
  verbs: [list, watch]
{{- end }}
{{- if include "tightship-lib.live" $root }}
{{- if include "tightship-lib.restarts" $root }}
- apiGroups: [apps]
  resources: [deployments]
  verbs: [get, patch]
{{- end }}
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
{{- if include "tightship-lib.mayPrice" $root }}
{{ include "tightship-lib.costRules" $root }}
{{- end }}
{{- end -}}

{{/* The account's place in the API server's queues. Leases have a place of their own without it. */}}
{{- define "tightship-lib.flowSchema" -}}
{{- $f := .Values.flowSchema -}}
{{- if $f.enabled -}}
{{- /* Stable since 1.29, where v1beta3 is deprecated. */}}
apiVersion: flowcontrol.apiserver.k8s.io/{{ semverCompare ">=1.29-0" .Capabilities.KubeVersion.Version | ternary "v1" "v1beta3" }}
kind: FlowSchema
metadata:
  {{- include "tightship-lib.metadata" (dict "root" . "name" (include "tightship-lib.policyName" .) "namespace" "-") | nindent 2 }}
spec:
  priorityLevelConfiguration:
    name: {{ $f.priorityLevel }}
  matchingPrecedence: {{ include "tightship-lib.text" $f.matchingPrecedence }}
  distinguisherMethod:
    type: ByUser
  rules:
    - subjects:
        - kind: ServiceAccount
          serviceAccount:
            name: {{ include "tightship-lib.serviceAccountName" . }}
            namespace: {{ include "tightship-lib.namespace" . }}
      resourceRules:
        - apiGroups: ["*"]
          resources: ["*"]
          verbs: ["*"]
          clusterScope: true
          namespaces: ["*"]
{{- end -}}
{{- end -}}
