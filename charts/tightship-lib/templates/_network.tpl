{{- define "tightship-lib.service" -}}
{{- $s := .Values.service -}}
apiVersion: v1
kind: Service
metadata:
  {{- include "tightship-lib.metadata" (dict "root" . "labels" $s.labels "annotations" $s.annotations) | nindent 2 }}
spec:
  type: ClusterIP
  {{- with $s.ipFamilyPolicy }}
  ipFamilyPolicy: {{ . }}
  {{- end }}
  {{- with $s.ipFamilies }}
  ipFamilies:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  selector:
    {{- include "tightship-lib.selectorLabels" . | nindent 4 }}
  ports:
    {{- /* Meshes go by the name, or by appProtocol, to tell TLS from plain HTTP. */}}
    - name: {{ include "tightship-lib.scheme" . }}
      port: {{ $s.port | default .Values.http.port }}
      targetPort: {{ include "tightship-lib.scheme" . }}
      protocol: TCP
      appProtocol: {{ include "tightship-lib.scheme" . }}
{{- end -}}

{{- define "tightship-lib.networkPolicy" -}}
{{- $n := .Values.networkPolicy -}}
{{- if $n.enabled -}}
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  {{- include "tightship-lib.metadata" (dict "root" .) | nindent 2 }}
spec:
  podSelector:
    matchLabels:
      {{- include "tightship-lib.selectorLabels" . | nindent 6 }}
  policyTypes: [Ingress, Egress]
  ingress:
    {{- /* Scrapes, and probes if the network plug-in does not exempt the kubelet. */}}
    - ports:
        - port: {{ include "tightship-lib.scheme" . }}
          protocol: TCP
        {{- if eq (include "tightship-lib.probes" .) "probes" }}
        - port: probes
          protocol: TCP
        {{- end }}
        {{- range .Values.http.extraPorts }}
        - port: {{ include "tightship-lib.scheme" $ }}-{{ . }}
          protocol: TCP
        {{- end }}
      {{- with $n.ingress.from }}
      from:
        {{- toYaml . | nindent 8 }}
        {{- /* And `helm test`, which would otherwise not reach the controller. */}}
        - podSelector:
            matchLabels:
              {{- include "tightship-lib.labelsOf" (list $ "test") | nindent 14 }}
      {{- end }}
    {{- with $n.ingress.extra }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  egress:
    {{- include "tightship-lib.egressToNames" . | nindent 4 }}
    {{- include "tightship-lib.egressToApi" . | nindent 4 }}
    {{- with .Own.ports }}
    - ports:
        {{- range . }}
        - port: {{ . }}
          protocol: TCP
        {{- end }}
      {{- with $.Own.peers }}
      to:
        {{- toYaml . | nindent 8 }}
      {{- end }}
    {{- end }}
{{- end -}}
{{- end -}}

{{- define "tightship-lib.egressToNames" -}}
{{- $e := .Values.networkPolicy.egress -}}
- ports:
    {{- range $e.dnsPorts }}
    - port: {{ . }}
      protocol: UDP
    - port: {{ . }}
      protocol: TCP
    {{- end }}
  {{- with $e.dnsTo }}
  to:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end -}}

{{/* And to whatever else is on the way there, such as a proxy: networkPolicy.egress.extra. Some plug-ins see the port of the
     Service, others the API server's own port. */}}
{{- define "tightship-lib.egressToApi" -}}
{{- $e := .Values.networkPolicy.egress -}}
- ports:
    {{- range $e.apiServerPorts }}
    - port: {{ . }}
      protocol: TCP
    {{- end }}
  {{- with $e.apiServerTo }}
  to:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- with $e.extra }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "tightship-lib.podDisruptionBudget" -}}
{{- $b := .Values.podDisruptionBudget -}}
{{- if $b.enabled -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  {{- include "tightship-lib.metadata" (dict "root" .) | nindent 2 }}
spec:
  {{- if not (kindIs "invalid" $b.minAvailable) }}
  minAvailable: {{ $b.minAvailable }}
  {{- else }}
  maxUnavailable: {{ $b.maxUnavailable }}
  {{- end }}
  {{- with $b.unhealthyPodEvictionPolicy }}
  unhealthyPodEvictionPolicy: {{ . }}
  {{- end }}
  selector:
    matchLabels:
      {{- include "tightship-lib.selectorLabels" . | nindent 6 }}
{{- end -}}
{{- end -}}

{{- define "tightship-lib.verticalPodAutoscaler" -}}
{{- $a := .Values.verticalPodAutoscaler -}}
{{- if and $a.enabled (include "tightship-lib.served" (list . "autoscaling.k8s.io/v1/VerticalPodAutoscaler")) -}}
apiVersion: autoscaling.k8s.io/v1
kind: VerticalPodAutoscaler
metadata:
  {{- include "tightship-lib.metadata" (dict "root" .) | nindent 2 }}
spec:
  targetRef:
    apiVersion: apps/v1
    kind: Deployment
    name: {{ include "tightship-lib.fullname" . }}
  updatePolicy:
    updateMode: {{ $a.updateMode }}
  resourcePolicy:
    containerPolicies:
      - containerName: {{ include "tightship-lib.controller" . }}
        {{- with $a.minAllowed }}
        minAllowed:
          {{- toYaml . | nindent 10 }}
        {{- end }}
        {{- with $a.maxAllowed }}
        maxAllowed:
          {{- toYaml . | nindent 10 }}
        {{- end }}
{{- end -}}
{{- end -}}
