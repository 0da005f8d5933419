{{/* The pilot: replacements of evicted pods are steered to the nodes that the plan chose. docs/drain.md says how. The
     ConfigMap of landings holds the evictions at hand, and an admission policy changes pods by it as they are created:
     with `hints` they prefer the planned nodes, with `exact` they wait at a scheduling gate that the controller removes.
     Only the API server evaluates the policy: nothing here is on the way of a pod whose owner is not in the ConfigMap. */}}

{{/* off, taints, hints or exact: config.steering as the controllers read the value. */}}
{{- define "tightship-lib.steering" -}}
{{- $said := .Values.config.steering -}}
{{- $word := kindIs "invalid" $said | ternary "taints" ($said | toString | lower) -}}
{{- if has $word (list "true" "t" "1" "yes" "y" "on") -}}
taints
{{- else if has $word (list "false" "f" "0" "no" "n") -}}
off
{{- else -}}
{{- $word -}}
{{- end -}}
{{- end -}}

{{/* "true" where the API server can do what hints and exact need. */}}
{{- define "tightship-lib.landingsServed" -}}
{{- include "tightship-lib.served" (list . "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy") -}}
{{- end -}}

{{/* hints or exact if the chart installs the policy; nothing otherwise. A controller that manages another cluster by a
     kubeconfig would need the policy there, where the chart installs nothing. */}}
{{- define "tightship-lib.pilot" -}}
{{- if and (include "tightship-lib.drains" .) (include "tightship-lib.live" .) (empty .Values.kubeconfig.secretName) -}}
{{- $mode := include "tightship-lib.steering" . -}}
{{- if and (has $mode (list "hints" "exact")) (include "tightship-lib.landingsServed" .) -}}
{{- $mode -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* "true" if pods may be gated: the mode is exact, or the revision that is being replaced was. The ConfigMap says so:
     Helm deletes the ConfigMap after everything else has been updated, and the next revision finds none. Where charts are
     rendered without a cluster, `lookup` finds nothing, and giveBack.gates says it. */}}
{{- define "tightship-lib.gates" -}}
{{- if and (include "tightship-lib.drains" .) (empty .Values.kubeconfig.secretName) -}}
{{- $exact := and (eq (include "tightship-lib.steering" .) "exact") (eq (include "tightship-lib.landingsServed" .) "true") -}}
{{- $there := lookup "v1" "ConfigMap" (include "tightship-lib.namespace" .) (include "tightship-lib.landingsName" .) -}}
{{- $before := dig "metadata" "annotations" "tightship.dev/landing-policy" "" $there | hasPrefix "exact/" -}}
{{- if or $exact $before .Values.giveBack.gates -}}true{{- end -}}
{{- end -}}
{{- end -}}

{{/* What a user has to know about the mode: what it does, or why it does not. */}}
{{- define "tightship-lib.landingNotes" -}}
{{- if and (include "tightship-lib.drains" .) (include "tightship-lib.live" .) -}}
{{- $mode := include "tightship-lib.steering" . -}}
{{- $value := printf "%sconfig.steering" (include "tightship-lib.valuesOf" .) -}}
{{- if include "tightship-lib.pilot" . -}}
{{- $what := ternary "prefer" "wait at a scheduling gate for" (eq $mode "hints") -}}
{{ $value }} is {{ $mode }}: replacements of evicted pods {{ $what }} the nodes that the plan chose.
{{- else if and (has $mode (list "hints" "exact")) .Values.kubeconfig.secretName -}}
WARNING: {{ $value }} is {{ $mode }}, but the controller manages the cluster of another kubeconfig, where the chart installs no policy. The controller uses soft taints only.
{{- else if has $mode (list "hints" "exact") -}}
WARNING: {{ $value }} is {{ $mode }}, but this cluster does not serve admissionregistration.k8s.io/v1/MutatingAdmissionPolicy (Kubernetes 1.36 or newer), so the chart created no policy. The controller uses soft taints only.
{{- end -}}
{{- if and (ne $mode "exact") (include "tightship-lib.mayUngate" .) }}
{{- $until := ternary (printf "while %sgiveBack.gates is true" (include "tightship-lib.valuesOf" .)) "until the next upgrade" .Values.giveBack.gates }}
{{ $value }} is {{ $mode }} now: the controller keeps the right to remove scheduling gates that exact has left, {{ $until }}.
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Why deletion costs do nothing, if they are asked for. */}}
{{- define "tightship-lib.costNotes" -}}
{{- if and (include "tightship-lib.drains" .) (include "tightship-lib.live" .) (include "tightship-lib.asksForCosts" .) -}}
{{- if .Values.kubeconfig.secretName -}}
WARNING: the configuration asks for deletion costs, but the controller manages the cluster of another kubeconfig, where the chart grants no right to patch pods.
{{- else if not (include "tightship-lib.fences" .) -}}
WARNING: the configuration asks for deletion costs, but this cluster does not serve admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy (Kubernetes 1.30 or newer), so the chart grants no right to patch pods.
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "tightship-lib.landingsName" -}}
{{- include "tightship-lib.fullname" . }}-landings
{{- end -}}

{{/* Policies have no namespace, and their names no colon. Neither part of this name has a dot. */}}
{{- define "tightship-lib.policyName" -}}
{{- printf "%s.%s" (include "tightship-lib.fullname" .) (include "tightship-lib.namespace" .) -}}
{{- end -}}

{{/* The ConfigMap, the policy that reads it, and the fence around the rights of exact. */}}
{{- define "tightship-lib.landings" -}}
{{- with include "tightship-lib.pilot" . }}
---
{{ include "tightship-lib.landingsMap" (dict "root" $ "mode" .) }}
---
{{ include "tightship-lib.landingPolicy" (dict "root" $ "mode" .) }}
{{- end }}
{{- $gates := include "tightship-lib.mayUngate" . }}
{{- $costs := include "tightship-lib.mayPrice" . }}
{{- if or $gates $costs }}
{{- $name := include "tightship-lib.policyName" . }}
{{- $notes := dict }}
{{- if include "tightship-lib.prices" . }}{{ $notes = dict "tightship.dev/deletion-cost" "true" }}{{ end }}
{{- $metadata := include "tightship-lib.metadata" (dict "root" . "name" $name "namespace" "-" "annotations" $notes) }}
{{- $account := include "tightship-lib.serviceAccountName" . }}
{{ include "tightship-lib.policy" (dict "root" . "name" $name "metadata" $metadata "account" $account "gates" $gates "costs" $costs "spec" "tightship-lib.policyOfPods") }}
{{- end }}
{{- end -}}

{{/* "true" if the configuration asks for deletion costs on pods, and the cluster can fence the right that they need. */}}
{{- define "tightship-lib.prices" -}}
{{- if and (include "tightship-lib.asksForCosts" .) (include "tightship-lib.fences" .) -}}true{{- end -}}
{{- end -}}

{{- define "tightship-lib.asksForCosts" -}}
{{- $said := .Values.config.deletionCost | default .Values.config.deletion_cost | toString | lower -}}
{{- if has $said (list "true" "t" "1" "yes" "y" "on") -}}true{{- end -}}
{{- end -}}

{{- define "tightship-lib.fences" -}}
{{- include "tightship-lib.served" (list . "admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy") -}}
{{- end -}}

{{/* "true" if pods may carry deletion costs: now, or in the revision that is being replaced, whose fence says so. The next
     revision finds a fence that doesn't. */}}
{{- define "tightship-lib.costs" -}}
{{- if and (include "tightship-lib.drains" .) (empty .Values.kubeconfig.secretName) (include "tightship-lib.fences" .) -}}
{{- $there := lookup "admissionregistration.k8s.io/v1" "ValidatingAdmissionPolicy" "" (include "tightship-lib.policyName" .) -}}
{{- $before := dig "metadata" "annotations" "tightship.dev/deletion-cost" "" $there -}}
{{- if or (include "tightship-lib.prices" .) $before .Values.giveBack.deletionCosts -}}true{{- end -}}
{{- end -}}
{{- end -}}

{{/* "true" if the controller has the right to write deletion costs: the right outlasts the setting by one revision. */}}
{{- define "tightship-lib.mayPrice" -}}
{{- if include "tightship-lib.live" . -}}{{- include "tightship-lib.costs" . -}}{{- end -}}
{{- end -}}

{{/* "true" if the controller has the rights of exact: they outlast exact by one revision, in which the controller removes
     the gates that are left. */}}
{{- define "tightship-lib.mayUngate" -}}
{{- if include "tightship-lib.live" . -}}{{- include "tightship-lib.gates" . -}}{{- end -}}
{{- end -}}

{{/* Without `data`, so that an upgrade leaves the controller's entries alone. */}}
{{- define "tightship-lib.landingsMap" -}}
{{- $policy := dict "tightship.dev/landing-policy" (printf "%s/1" .mode) -}}
apiVersion: v1
kind: ConfigMap
metadata:
  {{- include "tightship-lib.metadata" (dict "root" .root "name" (include "tightship-lib.landingsName" .root) "annotations" $policy) | nindent 2 }}
{{- end -}}

{{/* A policy that can't be evaluated is ignored, as is an entry whose value is no list of node names: a pod without a hint
     is better than no pod. Pods of these controllers are never steered: a gated one could not remove its own gate. */}}
{{- define "tightship-lib.landingPolicy" -}}
{{- $root := .root -}}
{{- $name := include "tightship-lib.policyName" $root -}}
{{- $metadata := include "tightship-lib.metadata" (dict "root" $root "name" $name "namespace" "-") -}}
{{- $label := "[a-z0-9]([-a-z0-9]*[a-z0-9])?" -}}
{{- $node := printf "%s([.]%s)*" $label $label -}}
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata:
  {{- $metadata | nindent 2 }}
spec:
  failurePolicy: Ignore
  reinvocationPolicy: Never
  paramKind:
    apiVersion: v1
    kind: ConfigMap
  matchConstraints:
    resourceRules:
      - apiGroups: [""]
        apiVersions: [v1]
        operations: [CREATE]
        resources: [pods]
    objectSelector:
      matchExpressions:
        - key: app.kubernetes.io/part-of
          operator: NotIn
          values: [tightship]
  matchConditions:
    - name: has-no-node
      expression: "!has(object.spec.nodeName) || object.spec.nodeName == ''"
    - name: replaces-what-is-evicted
      expression: >-
        has(params.data) && has(object.metadata.ownerReferences) &&
        object.metadata.ownerReferences.exists(o, has(o.controller) && o.controller && o.uid in params.data &&
        params.data[o.uid].matches('^{{ $node }}(,{{ $node }})*$') &&
        params.data[o.uid].split(',').all(n, size(n) <= 253))
  {{- if eq .mode "exact" }}
  mutations:
    - patchType: ApplyConfiguration
      applyConfiguration:
        expression: >-
          Object{spec: Object.spec{schedulingGates: [Object.spec.schedulingGates{name: 'tightship.dev/landing'}]}}
  {{- else }}
  {{- $preferred := "preferredDuringSchedulingIgnoredDuringExecution" }}
  {{- $path := printf "/spec/affinity/nodeAffinity/%s" $preferred }}
  variables:
    {{- /* By the name and not by a label, which may differ. A term takes one name. The terms are maps, as variables know
           no Object; `dyn` because CEL wants one type in a map. */}}
    - name: terms
      expression: >-
        params.data[object.metadata.ownerReferences.filter(o, has(o.controller) && o.controller)[0].uid].split(',')
        .map(n, {'weight': dyn(100), 'preference': dyn({'matchFields': [
        {'key': dyn('metadata.name'), 'operator': dyn('In'), 'values': dyn([n])}]})})
  mutations:
    - patchType: JSONPatch
      jsonPatch:
        expression: >-
          !has(object.spec.affinity)
          ? [JSONPatch{op: 'add', path: '/spec/affinity', value: {'nodeAffinity': {'{{ $preferred }}': variables.terms}}}]
          : !has(object.spec.affinity.nodeAffinity)
          ? [JSONPatch{op: 'add', path: '/spec/affinity/nodeAffinity', value: {'{{ $preferred }}': variables.terms}}]
          : !has(object.spec.affinity.nodeAffinity.{{ $preferred }})
          ? [JSONPatch{op: 'add', path: '{{ $path }}', value: variables.terms}]
          : variables.terms.map(t, JSONPatch{op: 'add', path: '{{ $path }}/-', value: t})
  {{- end }}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata:
  {{- $metadata | nindent 2 }}
spec:
  policyName: {{ $name }}
  paramRef:
    name: {{ include "tightship-lib.landingsName" $root }}
    namespace: {{ include "tightship-lib.namespace" $root }}
    parameterNotFoundAction: Allow
{{- end -}}

{{/* What exact needs. RBAC can't name a field: the fence can. */}}
{{- define "tightship-lib.ungateRules" -}}
- apiGroups: [""]
  resources: [pods]
  verbs: [patch]
{{- end -}}

{{- define "tightship-lib.landRules" -}}
{{ include "tightship-lib.ungateRules" . }}
- apiGroups: [""]
  resources: [pods/status]
  verbs: [patch]
{{- end -}}

{{- define "tightship-lib.landingsMapRules" -}}
- apiGroups: [""]
  resources: [configmaps]
  resourceNames: [{{ include "tightship-lib.landingsName" . }}]
  verbs: [get, patch]
{{- end -}}

{{/* The fence around an account's right to patch pods. With `gates` it may remove one scheduling gate, and nominate a node
     for a pod that has this gate. With `costs` it may write a deletion cost beside its mark on a pod that has none, and
     remove both. The API server itself writes some fields of the metadata, and ignores a status in a patch of the pod, a
     spec in a patch of the status, and the end of a pod in both. Takes the dict of the policy, with gates and costs. */}}
{{- define "tightship-lib.policyOfPods" -}}
{{- $metadata := include "tightship-lib.serverFields" (list "annotations") -}}
{{- $cost := "controller.kubernetes.io/pod-deletion-cost" -}}
{{- $mark := "tightship.dev/deletion-cost" -}}
{{- $notes := "[]" -}}
{{- if .costs -}}{{- $notes = printf "['%s', '%s']" $cost $mark -}}{{- end -}}
matchConstraints:
  resourceRules:
    - apiGroups: [""]
      apiVersions: [v1]
      operations: [UPDATE]
      resources: [pods, pods/*]
variables:
  {{- include "tightship-lib.annotationVariables" . | nindent 2 }}
  - name: part
    expression: "has(request.subResource) ? request.subResource : ''"
  - name: gatesBefore
    expression: "has(oldObject.spec.schedulingGates) ? oldObject.spec.schedulingGates : []"
  - name: gates
    expression: "has(object.spec.schedulingGates) ? object.spec.schedulingGates : []"
validations:
  {{- if .gates }}
  - expression: variables.part in ['', 'status']
    message: this account may change no part of a pod but its scheduling gate and its nomination
  {{- else }}
  - expression: variables.part == ''
    message: this account may change no part of a pod but its deletion cost
  {{- end }}
  - expression: >-
      {{- include "tightship-lib.same" (dict "one" "object" "other" "oldObject" "but" "['metadata', 'spec', 'status']") | nindent 6 }}
    message: this account may change nothing of a pod but what the messages below name
  - expression: >-
      {{- include "tightship-lib.same" (dict "one" "object.metadata" "other" "oldObject.metadata" "but" $metadata) | nindent 6 }} &&
      {{- include "tightship-lib.same" (dict "one" "variables.after" "other" "variables.before" "but" $notes) | nindent 6 }} &&
      (variables.part == '' || variables.after == variables.before)
    message: this account may not change the metadata of a pod{{ if .costs }} but the annotations {{ $cost }} and {{ $mark }}{{ end }}
  {{- if .costs }}
  - expression: >-
      !('{{ $cost }}' in variables.before) || '{{ $mark }}' in variables.before ||
      ('{{ $cost }}' in variables.after && variables.after['{{ $cost }}'] == variables.before['{{ $cost }}'])
    message: this account may not change a deletion cost of somebody else
  {{- end }}
  - expression: >-
      variables.part != '' || (
      {{- $gate := ternary "['schedulingGates']" "[]" (not (empty .gates)) }}
      {{- include "tightship-lib.same" (dict "one" "object.spec" "other" "oldObject.spec" "but" $gate) | nindent 6 }})
    message: this account may change nothing in the spec of a pod{{ if .gates }} but schedulingGates{{ end }}
  {{- if .gates }}
  - expression: >-
      variables.part != '' || variables.gates == variables.gatesBefore ||
      variables.gates == variables.gatesBefore.filter(g, g.name != 'tightship.dev/landing')
    message: this account may remove the scheduling gate tightship.dev/landing of a pod, and change no other
  - expression: >-
      variables.part != 'status' || (
      {{- include "tightship-lib.same" (dict "one" "object.status" "other" "oldObject.status" "but" "['nominatedNodeName']") | nindent 6 }})
    message: this account may change nothing in the status of a pod but nominatedNodeName
  - expression: >-
      variables.part != 'status' || variables.gatesBefore.exists(g, g.name == 'tightship.dev/landing')
    message: this account may nominate a node only for a pod with the scheduling gate tightship.dev/landing
  {{- end }}
{{- end -}}
