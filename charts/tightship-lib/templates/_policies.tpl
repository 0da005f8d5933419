{{/* What RBAC can't say: which fields of an object an account may change. Each ValidatingAdmissionPolicy here is about one
     kind of object and one account, whatever that account's token is used for. docs/security.md says what is left. */}}

{{/* "true" if the chart holds its account to its work. */}}
{{- define "tightship-lib.holdsAccounts" -}}
{{- if include "tightship-lib.mayHoldAccounts" . -}}
{{- include "tightship-lib.served" (list . "admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy") -}}
{{- end -}}
{{- end -}}

{{/* "true" if the chart would, wherever the API is served. An account made elsewhere may serve other programs too. */}}
{{- define "tightship-lib.mayHoldAccounts" -}}
{{- if and .Values.admissionPolicy.enabled .Values.serviceAccount.create (empty .Values.kubeconfig.secretName) -}}true{{- end -}}
{{- end -}}

{{- define "tightship-lib.policies" -}}
{{- if and (include "tightship-lib.holdsAccounts" .) (include "tightship-lib.live" .) -}}
{{- range $what := include "tightship-lib.policed" . | splitList " " }}
{{- $name := printf "%s.%s" (include "tightship-lib.policyName" $) ($what | lower) }}
{{- $metadata := include "tightship-lib.metadata" (dict "root" $ "name" $name "namespace" "-") }}
{{ include "tightship-lib.policy" (dict "root" $ "name" $name "metadata" $metadata "account" (include "tightship-lib.serviceAccountName" $) "spec" (printf "tightship-lib.policyOf%s" $what)) }}
{{- end }}
{{- end -}}
{{- end -}}

{{/* The kinds of objects that a live controller writes, each with a template below. */}}
{{- define "tightship-lib.policed" -}}
{{- $kinds := list "Events" "Leases" -}}
{{- if include "tightship-lib.drains" . -}}
{{- $kinds = concat $kinds (list "Nodes" "Evictions") -}}
{{- if include "tightship-lib.pilot" . -}}{{- $kinds = append $kinds "Landings" -}}{{- end -}}
{{- if include "tightship-lib.restarts" . -}}{{- $kinds = append $kinds "Deployments" -}}{{- end -}}
{{- else -}}
{{- $kinds = append $kinds "Autoscalers" -}}
{{- end -}}
{{- $kinds | join " " -}}
{{- end -}}

{{/* A policy for one account, and its binding. Takes a dict: root, name, metadata, account, and spec: the name of a
     template that takes this dict and says what is matched and what is allowed. */}}
{{- define "tightship-lib.policy" -}}
{{- $user := printf "system:serviceaccount:%s:%s" (include "tightship-lib.namespace" .root) .account }}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  {{- .metadata | nindent 2 }}
spec:
  failurePolicy: Fail
  matchConditions:
    - name: by-the-controller
      expression: request.userInfo.username == '{{ $user }}'
  {{- include .spec . | nindent 2 }}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  {{- .metadata | nindent 2 }}
spec:
  policyName: {{ .name }}
  validationActions: [Deny]
{{- end -}}

{{/* Whether all keys of two objects are the same, but for some: whatever fields objects will have. `dyn` lets CEL go through
     the keys of an object that has a type. Takes a dict: one, other, but (a list of keys in CEL). */}}
{{- define "tightship-lib.same" -}}
dyn({{ .one }}).all(k, k in {{ .but }} || (k in dyn({{ .other }}) && dyn({{ .one }})[k] == dyn({{ .other }})[k])) &&
dyn({{ .other }}).all(k, k in {{ .but }} || k in dyn({{ .one }}))
{{- end -}}

{{/* Fields of the metadata that the API server itself writes, in CEL, and further ones. Takes a list. */}}
{{- define "tightship-lib.serverFields" -}}
{{- $fields := concat (list "managedFields" "resourceVersion" "generation" "deletionTimestamp" "deletionGracePeriodSeconds") . -}}
['{{ join "', '" $fields }}']
{{- end -}}

{{/* Two validations: all of an object but some annotations and parts of its spec stays as it is. Annotations are the
     variables before and after. Takes a dict: kind, annotations, fields of the spec, and perhaps of the metadata (lists). */}}
{{- define "tightship-lib.onlyThese" -}}
{{- $metadata := include "tightship-lib.serverFields" (prepend (.metadata | default list) "annotations") -}}
{{- $notes := printf "['%s']" (join "', '" .annotations) -}}
{{- $fields := printf "['%s']" (join "', '" .fields) -}}
- expression: >-
    (!has(request.subResource) || request.subResource == '') &&
    {{- include "tightship-lib.same" (dict "one" "object" "other" "oldObject" "but" "['metadata', 'spec', 'status']") | nindent 4 }} &&
    {{- include "tightship-lib.same" (dict "one" "object.spec" "other" "oldObject.spec" "but" $fields) | nindent 4 }}
  message: this account may change nothing of a {{ .kind }} but {{ join ", " .fields }} and one annotation
- expression: >-
    {{- include "tightship-lib.same" (dict "one" "object.metadata" "other" "oldObject.metadata" "but" $metadata) | nindent 4 }} &&
    {{- include "tightship-lib.same" (dict "one" "variables.after" "other" "variables.before" "but" $notes) | nindent 4 }}
  message: this account may change nothing in the metadata of a {{ .kind }} but the annotation {{ first .annotations }}
{{- end -}}

{{- define "tightship-lib.annotationVariables" -}}
- name: before
  expression: "has(oldObject.metadata.annotations) ? oldObject.metadata.annotations : {}"
- name: after
  expression: "has(object.metadata.annotations) ? object.metadata.annotations : {}"
{{- end -}}

{{/* The drain's annotation, the cordon, our taints, each with its effect (none of them evicts), and our label. */}}
{{- define "tightship-lib.policyOfNodes" -}}
{{- $taints := dict "tightship.dev/draining" "NoSchedule" "tightship.dev/candidate" "PreferNoSchedule" -}}
{{- $ours := printf "['%s']" (keys $taints | sortAlpha | join "', '") -}}
{{- $leaving := "tightship.dev/leaving" -}}
{{- $mark := printf "%s([.][0-9a-f]{8})?" (include "tightship-lib.controller" .root) -}}
{{- $forgotten := .root.Own.forgottenAnnotations | default list -}}
matchConstraints:
  resourceRules:
    - apiGroups: [""]
      apiVersions: [v1]
      operations: [UPDATE]
      resources: [nodes, nodes/*]
variables:
  {{- include "tightship-lib.annotationVariables" . | nindent 2 }}
  - name: taintsBefore
    expression: "has(oldObject.spec.taints) ? oldObject.spec.taints : []"
  - name: taints
    expression: "has(object.spec.taints) ? object.spec.taints : []"
  - name: labelsBefore
    expression: "has(oldObject.metadata.labels) ? oldObject.metadata.labels : {}"
  - name: labels
    expression: "has(object.metadata.labels) ? object.metadata.labels : {}"
validations:
  {{- include "tightship-lib.onlyThese" (dict "kind" "node" "annotations" (concat (list "tightship.dev/drain") $forgotten) "fields" (list "taints" "unschedulable") "metadata" (list "labels")) | nindent 2 }}
  {{- range $forgotten }}
  - expression: "!('{{ . }}' in variables.after) || ('{{ . }}' in variables.before && variables.after['{{ . }}'] == variables.before['{{ . }}'])"
    message: this account may only remove the annotation {{ . }}
  {{- end }}
  - expression: >-
      {{- include "tightship-lib.same" (dict "one" "variables.labels" "other" "variables.labelsBefore" "but" (printf "['%s']" $leaving)) | nindent 6 }}
    message: this account may change no label of a node but {{ $leaving }}
  - expression: >-
      [variables.labelsBefore, variables.labels].all(l, !('{{ $leaving }}' in l) || l['{{ $leaving }}'].matches('^{{ $mark }}$')) ||
      ('{{ $leaving }}' in variables.labelsBefore && '{{ $leaving }}' in variables.labels &&
      variables.labels['{{ $leaving }}'] == variables.labelsBefore['{{ $leaving }}'])
    message: this account may write only its own label {{ $leaving }}, and not change that of others
  - expression: variables.taints.filter(t, !(t.key in {{ $ours }})) == variables.taintsBefore.filter(t, !(t.key in {{ $ours }}))
    message: this account may change no taint of others
  - expression: >-
      variables.taints.all(t, !(t.key in {{ $ours }}) || variables.taintsBefore.exists(b, b == t)
      {{- range $key, $effect := $taints }} ||
      (t.key == '{{ $key }}' && t.effect == '{{ $effect }}')
      {{- end }})
    message: this account may put its taints on a node with their own effect alone
{{- end -}}

{{/* A pod that was looked at, with the grace period that it asks for. */}}
{{- define "tightship-lib.policyOfEvictions" -}}
matchConstraints:
  resourceRules:
    - apiGroups: [""]
      apiVersions: [v1]
      operations: [CREATE]
      resources: [pods/eviction]
    - apiGroups: [""]
      apiVersions: [v1]
      operations: [DELETE]
      resources: [pods]
variables:
  - name: options
    expression: >-
      request.operation == 'DELETE' ? dyn(request.options) :
      has(object.deleteOptions) ? dyn(object.deleteOptions) : dyn({})
validations:
  - expression: has(variables.options.preconditions) && has(variables.options.preconditions.uid)
    message: this account may evict or delete a pod only by its uid
  # The API server writes the pod's own grace period into the options of a deletion before it asks this policy
  # (`CheckGracefulDelete` in pkg/registry/core/pod/strategy.go).
  - expression: >-
      variables.options.all(k, k in ['apiVersion', 'kind', 'preconditions'] || k == 'gracePeriodSeconds' &&
      request.operation == 'DELETE' && variables.options[k] == oldObject.spec.terminationGracePeriodSeconds)
    message: this account may evict or delete a pod only with the grace period that the pod asks for
{{- end -}}

{{/* What `kubectl rollout restart` writes, and nothing else of a Deployment. */}}
{{- define "tightship-lib.policyOfDeployments" -}}
{{- $at := "kubectl.kubernetes.io/restartedAt" -}}
matchConstraints:
  resourceRules:
    - apiGroups: [apps]
      apiVersions: ["*"]
      operations: [UPDATE]
      resources: [deployments, deployments/*]
variables:
  - name: before
    expression: "has(oldObject.spec.template.metadata.annotations) ? oldObject.spec.template.metadata.annotations : {}"
  - name: after
    expression: "has(object.spec.template.metadata.annotations) ? object.spec.template.metadata.annotations : {}"
validations:
  - expression: >-
      (!has(request.subResource) || request.subResource == '') &&
      {{- include "tightship-lib.same" (dict "one" "object" "other" "oldObject" "but" "['metadata', 'spec', 'status']") | nindent 6 }} &&
      {{- include "tightship-lib.same" (dict "one" "object.metadata" "other" "oldObject.metadata" "but" (include "tightship-lib.serverFields" list)) | nindent 6 }} &&
      {{- include "tightship-lib.same" (dict "one" "object.spec" "other" "oldObject.spec" "but" "['template']") | nindent 6 }}
    message: this account may change nothing of a Deployment but one annotation of its template
  - expression: >-
      {{- include "tightship-lib.same" (dict "one" "object.spec.template" "other" "oldObject.spec.template" "but" "['metadata']") | nindent 6 }} &&
      {{- include "tightship-lib.same" (dict "one" "object.spec.template.metadata" "other" "oldObject.spec.template.metadata" "but" "['annotations']") | nindent 6 }} &&
      {{- include "tightship-lib.same" (dict "one" "variables.after" "other" "variables.before" "but" (printf "['%s']" $at)) | nindent 6 }}
    message: this account may change nothing in the template of a Deployment but the annotation {{ $at }}
  - expression: >-
      '{{ $at }}' in variables.after && variables.after['{{ $at }}'].matches('^[0-9]{4}(-[0-9]{2}){2}T[0-9]{2}(:[0-9]{2}){2}[.][0-9]{3}Z$')
    message: this account may restart a Deployment with a time only
{{- end -}}

{{/* RBAC can't restrict `create` to a name. */}}
{{- define "tightship-lib.policyOfLeases" -}}
{{- $leases := list (printf "%s/%s" (include "tightship-lib.namespace" .root) (include "tightship-lib.leaseName" .root)) -}}
{{- if include "tightship-lib.drains" .root -}}
{{- $leases = append $leases (printf "%s/%s" (include "tightship-lib.claimsNamespace" .root) .root.Values.claims.leaseName) -}}
{{- end -}}
matchConstraints:
  resourceRules:
    - apiGroups: [coordination.k8s.io]
      apiVersions: [v1]
      operations: [CREATE, UPDATE]
      resources: [leases]
validations:
  - expression: object.metadata.namespace + '/' + object.metadata.name in ['{{ join "', '" $leases }}']
    message: this account may write no Lease but {{ join " and " $leases }}
{{- end -}}

{{- define "tightship-lib.policyOfEvents" -}}
{{- $reporter := printf "tightship.dev/%s" (include "tightship-lib.controller" .root) -}}
matchConstraints:
  resourceRules:
    - apiGroups: [events.k8s.io]
      apiVersions: [v1]
      operations: [CREATE]
      resources: [events]
validations:
  - expression: has(object.reportingController) && object.reportingController == '{{ $reporter }}'
    message: this account may write Events only as {{ $reporter }}
{{- end -}}

{{/* The entries, and neither the note about the policy nor `immutable`. */}}
{{- define "tightship-lib.policyOfLandings" -}}
matchConstraints:
  resourceRules:
    - apiGroups: [""]
      apiVersions: [v1]
      operations: [UPDATE]
      resources: [configmaps]
validations:
  - expression: >-
      object.metadata.namespace + '/' + object.metadata.name ==
      '{{ include "tightship-lib.namespace" .root }}/{{ include "tightship-lib.landingsName" .root }}' &&
      {{- include "tightship-lib.same" (dict "one" "object" "other" "oldObject" "but" "['metadata', 'data']") | nindent 6 }} &&
      {{- include "tightship-lib.same" (dict "one" "object.metadata" "other" "oldObject.metadata" "but" (include "tightship-lib.serverFields" list)) | nindent 6 }}
    message: this account may change nothing but the entries of its own ConfigMap {{ include "tightship-lib.landingsName" .root }}
{{- end -}}

{{/* minReplicas, maxReplicas and the state, of HPAs that have opted in or still carry something of ours. Nobody's own
     maxReplicas is lowered: the state says what it was, and the record of it can't be made smaller. */}}
{{- define "tightship-lib.policyOfAutoscalers" -}}
{{- $name := printf "%s/hpa-scaler" .root.Values.annotationPrefix -}}
{{- $state := printf "%s-state" $name -}}
{{- /* The older controller's prefix, which hpa-scaler reads too. */}}
{{- $older := "estafette.io/hpa-scaler" -}}
{{- $olderState := printf "%s-state" $older -}}
{{- $recorded := "find('\"originalMax\":[0-9]{1,9}').find('[0-9]+')" -}}
matchConstraints:
  resourceRules:
    - apiGroups: [autoscaling]
      apiVersions: [v2]
      operations: [UPDATE]
      resources: [horizontalpodautoscalers, horizontalpodautoscalers/*]
variables:
  {{- include "tightship-lib.annotationVariables" . | nindent 2 }}
  - name: recorded
    expression: >-
      '{{ $state }}' in variables.before ? variables.before['{{ $state }}'].{{ $recorded }} :
      '{{ $olderState }}' in variables.before ? variables.before['{{ $olderState }}'].{{ $recorded }} : ''
  - name: recordedNow
    expression: >-
      '{{ $state }}' in variables.after ? variables.after['{{ $state }}'].{{ $recorded }} :
      '{{ $olderState }}' in variables.after ? variables.after['{{ $olderState }}'].{{ $recorded }} : ''
  - name: lowest
    expression: >-
      variables.recorded != '' && int(variables.recorded) < oldObject.spec.maxReplicas
      ? int(variables.recorded) : oldObject.spec.maxReplicas
validations:
  {{- include "tightship-lib.onlyThese" (dict "kind" "HorizontalPodAutoscaler" "annotations" (list $state $olderState | uniq) "fields" (list "minReplicas" "maxReplicas")) | nindent 2 }}
  - expression: >-
      ['{{ $name }}', '{{ $older }}'].exists(name, name in variables.before && variables.before[name] == 'true') ||
      '{{ $state }}' in variables.before || '{{ $olderState }}' in variables.before ||
      (has(oldObject.metadata.managedFields) && oldObject.metadata.managedFields.exists(m, has(m.manager) && m.manager == 'hpa-scaler'))
    message: "this account may change only a HorizontalPodAutoscaler with the annotation {{ $name }}: \"true\", or one that it has changed"
  - expression: >-
      object.spec.maxReplicas >= variables.lowest &&
      (variables.recordedNow == '' || int(variables.recordedNow) >= variables.lowest)
    message: this account may lower maxReplicas no further than to the user's own
{{- end -}}
