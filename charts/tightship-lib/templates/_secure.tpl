{{/* HTTPS for those whom the API server lets read: the certificate, the right to ask, and the readers. */}}

{{/* The name of the Secret with the certificate, empty if the controller makes one. */}}
{{- define "tightship-lib.tlsSecret" -}}
{{- $s := .Values.http.secure -}}
{{- if $s.enabled -}}
{{- $s.secretName | default (ternary "" (printf "%s-tls" (include "tightship-lib.fullname" .)) (empty $s.issuerRef)) -}}
{{- end -}}
{{- end -}}

{{- define "tightship-lib.certificate" -}}
{{- $s := .Values.http.secure -}}
{{- if and $s.enabled $s.issuerRef (include "tightship-lib.served" (list . "cert-manager.io/v1/Certificate")) -}}
{{- $name := include "tightship-lib.fullname" . -}}
{{- $namespace := include "tightship-lib.namespace" . -}}
apiVersion: cert-manager.io/v1
kind: Certificate
metadata:
  {{- include "tightship-lib.metadata" (dict "root" .) | nindent 2 }}
spec:
  secretName: {{ include "tightship-lib.tlsSecret" . }}
  issuerRef:
    {{- toYaml $s.issuerRef | nindent 4 }}
  dnsNames:
    - {{ $name }}
    - {{ $name }}.{{ $namespace }}
    - {{ $name }}.{{ $namespace }}.svc
  privateKey:
    algorithm: ECDSA
    rotationPolicy: Always
{{- end -}}
{{- end -}}

{{/* Reviews have no namespace, so both are ClusterRoles even where everything else is a Role. */}}
{{- define "tightship-lib.secureRights" -}}
{{- $s := .Values.http.secure -}}
{{- if and $s.enabled .Values.rbac.create -}}
{{- $name := printf "%s:reviews" (include "tightship-lib.clusterName" .) -}}
{{- $metadata := include "tightship-lib.metadata" (dict "root" . "name" $name "namespace" "-") -}}
{{- include "tightship-lib.grant" (dict "root" . "kind" "ClusterRole" "name" $name "metadata" $metadata "account" (include "tightship-lib.serviceAccountName" .) "rules" (include "tightship-lib.reviewRules" .)) }}
{{- with $s.readers }}
{{- $name = printf "%s:readers" (include "tightship-lib.clusterName" $) }}
{{- $metadata = include "tightship-lib.metadata" (dict "root" $ "name" $name "namespace" "-") }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  {{- $metadata | nindent 2 }}
rules:
  - nonResourceURLs: [/, /metrics, /status]
    verbs: [get]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  {{- $metadata | nindent 2 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: {{ $name }}
subjects:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}
{{- end -}}

{{- define "tightship-lib.reviewRules" -}}
- apiGroups: [authentication.k8s.io]
  resources: [tokenreviews]
  verbs: [create]
- apiGroups: [authorization.k8s.io]
  resources: [subjectaccessreviews]
  verbs: [create]
{{- end -}}
