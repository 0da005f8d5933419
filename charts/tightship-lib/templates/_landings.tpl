{{/* The pilot: replacements of evicted pods are steered to the nodes that the plan chose. docs/drain.md says how. The
     ConfigMap of landings holds the evictions at hand, and an admission policy changes pods by it as they are created:
     they prefer the planned nodes, and keep off the nodes that leave, which the controller labels.
     Only the API server evaluates the policy: nothing here is on the way of a pod whose owner is not in the ConfigMap. */}}

{{/* off, taints or hints: config.steering as the controllers read the value. */}}
{{- define "tightship-lib.steering" -}}
{{- $said := .Values.config.steering -}}
{{- $word := kindIs "invalid" $said | ternary "taints" ($said | toString | lower) -}}
{{- get (dict "false" "off" "exact" "hints") $word | default $word -}}
{{- end -}}

{{/* "true" where the API server can do what hints need. */}}
{{- define "tightship-lib.landingsServed" -}}
{{- include "tightship-lib.served" (list . "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy") -}}
{{- end -}}

{{/* "true" if the chart installs the policy of hints. A controller that manages another cluster by a kubeconfig would
     need the policy there, where the chart installs nothing. */}}
{{- define "tightship-lib.pilot" -}}
{{- if and (include "tightship-lib.drains" .) (include "tightship-lib.live" .) (empty .Values.kubeconfig.secretName) -}}
{{- if eq (include "tightship-lib.steering" .) "hints" -}}
{{- include "tightship-lib.landingsServed" . -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* What a user has to know about the mode: what it does, or why it does not. */}}
{{- define "tightship-lib.landingNotes" -}}
{{- if and (include "tightship-lib.drains" .) (include "tightship-lib.live" .) -}}
{{- if eq (include "tightship-lib.steering" .) "hints" -}}
{{- $value := printf "%sconfig.steering" (include "tightship-lib.valuesOf" .) -}}
{{- if eq (.Values.config.steering | toString | lower) "exact" -}}
{{ $value }}: exact is no more. hints takes its place, which leads pods as well without a scheduling gate: set {{ $value }}=hints.
{{ end -}}
{{- if include "tightship-lib.pilot" . -}}
{{ $value }} is hints: replacements of evicted pods prefer the nodes that the plan chose, and keep off nodes that leave.
{{- else if .Values.kubeconfig.secretName -}}
WARNING: {{ $value }} is hints, but the controller manages the cluster of another kubeconfig, where the chart installs no policy. The controller uses soft taints only.
{{- else -}}
WARNING: {{ $value }} is hints, but this cluster does not serve admissionregistration.k8s.io/v1/MutatingAdmissionPolicy (Kubernetes 1.36 or newer), so the chart created no policy. The controller uses soft taints only.
{{- end -}}
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

{{/* The ConfigMap, the policy that reads it, and the fence around the right to write deletion costs. */}}
{{- define "tightship-lib.landings" -}}
{{- if include "tightship-lib.pilot" . }}
---
{{ include "tightship-lib.landingsMap" . }}
---
{{ include "tightship-lib.landingPolicy" . }}
{{- end }}
{{- if include "tightship-lib.mayPrice" . }}
{{- $name := include "tightship-lib.policyName" . }}
{{- $notes := dict }}
{{- if include "tightship-lib.prices" . }}{{ $notes = dict "tightship.dev/deletion-cost" "true" }}{{ end }}
{{- $metadata := include "tightship-lib.metadata" (dict "root" . "name" $name "namespace" "-" "annotations" $notes) }}
{{- $account := include "tightship-lib.serviceAccountName" . }}
{{ include "tightship-lib.policy" (dict "root" . "name" $name "metadata" $metadata "account" $account "spec" "tightship-lib.policyOfPods") }}
{{- end }}
{{- end -}}

{{/* "true" if the configuration asks for deletion costs on pods, and the cluster can fence the right that they need. */}}
{{- define "tightship-lib.prices" -}}
{{- if and (include "tightship-lib.asksForCosts" .) (include "tightship-lib.fences" .) -}}true{{- end -}}
{{- end -}}

{{- define "tightship-lib.asksForCosts" -}}
{{- $said := .Values.config.deletionCost | toString | lower -}}
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

{{/* Without `data`, so that an upgrade leaves the controller's entries alone. */}}
{{- define "tightship-lib.landingsMap" -}}
apiVersion: v1
kind: ConfigMap
metadata:
  {{- include "tightship-lib.metadata" (dict "root" . "name" (include "tightship-lib.landingsName" .) "annotations" (dict "tightship.dev/landing-policy" "hints/2")) | nindent 2 }}
{{- end -}}

{{/* A policy that can't be evaluated is ignored, as is an entry whose value is no list of node names: a pod without a hint
     is better than no pod. Pods of these controllers are never steered, nor are pods whose own terms mention the label. */}}
{{- define "tightship-lib.landingPolicy" -}}
{{- $name := include "tightship-lib.policyName" . -}}
{{- $metadata := include "tightship-lib.metadata" (dict "root" . "name" $name "namespace" "-") -}}
{{- $label := "[a-z0-9]([-a-z0-9]*[a-z0-9])?" -}}
{{- $node := printf "%s([.]%s)*" $label $label -}}
{{- $leaving := "tightship.dev/leaving" -}}
{{- $required := "requiredDuringSchedulingIgnoredDuringExecution" -}}
{{- $preferred := "preferredDuringSchedulingIgnoredDuringExecution" -}}
{{- $of := "object.spec.affinity.nodeAffinity" -}}
{{- $path := "/spec/affinity/nodeAffinity" -}}
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
    - name: says-nothing-of-the-label
      expression: >-
        !(has(object.spec.nodeSelector) && '{{ $leaving }}' in object.spec.nodeSelector) &&
        !(has(object.spec.affinity) && has({{ $of }}) && (
        (has({{ $of }}.{{ $required }}) && {{ $of }}.{{ $required }}.nodeSelectorTerms.exists(t,
        has(t.matchExpressions) && t.matchExpressions.exists(e, e.key == '{{ $leaving }}'))) ||
        (has({{ $of }}.{{ $preferred }}) && {{ $of }}.{{ $preferred }}.exists(t,
        has(t.preference.matchExpressions) && t.preference.matchExpressions.exists(e, e.key == '{{ $leaving }}')))))
  variables:
    {{- /* By the name and not by a label, which may differ. A term takes one name. The terms are maps, as variables know
           no Object; `dyn` because CEL wants one type in a map. */}}
    - name: terms
      expression: >-
        params.data[object.metadata.ownerReferences.filter(o, has(o.controller) && o.controller)[0].uid].split(',')
        .map(n, {'weight': dyn(100), 'preference': dyn({'matchFields': [
        {'key': dyn('metadata.name'), 'operator': dyn('In'), 'values': dyn([n])}]})})
    - name: away
      expression: "[{'key': '{{ $leaving }}', 'operator': 'DoesNotExist'}]"
    - name: both
      expression: >-
        {'{{ $preferred }}': dyn(variables.terms),
        '{{ $required }}': dyn({'nodeSelectorTerms': [{'matchExpressions': variables.away}]})}
  mutations:
    {{- /* Required terms are joined by OR, so that each needs the expression. An empty one matches no node, and must not
           come to match some. */}}
    - patchType: JSONPatch
      jsonPatch:
        expression: >-
          !has(object.spec.affinity)
          ? [JSONPatch{op: 'add', path: '/spec/affinity', value: {'nodeAffinity': variables.both}}]
          : !has({{ $of }})
          ? [JSONPatch{op: 'add', path: '{{ $path }}', value: variables.both}]
          : (!has({{ $of }}.{{ $required }})
          ? [JSONPatch{op: 'add', path: '{{ $path }}/{{ $required }}',
          value: variables.both['{{ $required }}']}]
          : {{ $of }}.{{ $required }}.nodeSelectorTerms.transformList(i, t,
          has(t.matchExpressions) || has(t.matchFields),
          has(t.matchExpressions)
          ? JSONPatch{op: 'add', path: '{{ $path }}/{{ $required }}/nodeSelectorTerms/' + string(i) + '/matchExpressions/-',
          value: variables.away[0]}
          : JSONPatch{op: 'add', path: '{{ $path }}/{{ $required }}/nodeSelectorTerms/' + string(i) + '/matchExpressions',
          value: variables.away}))
          + (!has({{ $of }}.{{ $preferred }})
          ? [JSONPatch{op: 'add', path: '{{ $path }}/{{ $preferred }}', value: variables.terms}]
          : variables.terms.map(t, JSONPatch{op: 'add', path: '{{ $path }}/{{ $preferred }}/-', value: t}))
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata:
  {{- $metadata | nindent 2 }}
spec:
  policyName: {{ $name }}
  paramRef:
    name: {{ include "tightship-lib.landingsName" . }}
    namespace: {{ include "tightship-lib.namespace" . }}
    parameterNotFoundAction: Allow
{{- end -}}

{{/* What deletion costs need. RBAC can't name a field: the fence can. */}}
{{- define "tightship-lib.costRules" -}}
- apiGroups: [""]
  resources: [pods]
  verbs: [patch]
{{- end -}}

{{- define "tightship-lib.landingsMapRules" -}}
- apiGroups: [""]
  resources: [configmaps]
  resourceNames: [{{ include "tightship-lib.landingsName" . }}]
  verbs: [get, patch]
{{- end -}}

{{/* The fence around an account's right to patch pods: it may write a deletion cost beside its mark on a pod that has none,
     and remove both. The API server itself writes some fields of the metadata, and ignores a status in a patch of the pod,
     and the end of a pod. Takes the dict of the policy. */}}
{{- define "tightship-lib.policyOfPods" -}}
{{- $metadata := include "tightship-lib.serverFields" (list "annotations") -}}
{{- $cost := "controller.kubernetes.io/pod-deletion-cost" -}}
{{- $mark := "tightship.dev/deletion-cost" -}}
matchConstraints:
  resourceRules:
    - apiGroups: [""]
      apiVersions: [v1]
      operations: [UPDATE]
      resources: [pods, pods/*]
variables:
  {{- include "tightship-lib.annotationVariables" . | nindent 2 }}
validations:
  - expression: "!has(request.subResource) || request.subResource == ''"
    message: this account may change no part of a pod but its deletion cost
  - expression: >-
      {{- include "tightship-lib.same" (dict "one" "object" "other" "oldObject" "but" "['metadata', 'spec', 'status']") | nindent 6 }}
    message: this account may change nothing of a pod but what the messages below name
  - expression: >-
      {{- include "tightship-lib.same" (dict "one" "object.metadata" "other" "oldObject.metadata" "but" $metadata) | nindent 6 }} &&
      {{- include "tightship-lib.same" (dict "one" "variables.after" "other" "variables.before" "but" (printf "['%s', '%s']" $cost $mark)) | nindent 6 }}
    message: this account may not change the metadata of a pod but the annotations {{ $cost }} and {{ $mark }}
  - expression: >-
      !('{{ $cost }}' in variables.before) || '{{ $mark }}' in variables.before ||
      ('{{ $cost }}' in variables.after && variables.after['{{ $cost }}'] == variables.before['{{ $cost }}'])
    message: this account may not change a deletion cost of somebody else
  - expression: >-
      {{- include "tightship-lib.same" (dict "one" "object.spec" "other" "oldObject.spec" "but" "[]") | nindent 6 }}
    message: this account may change nothing in the spec of a pod
{{- end -}}
