{{/* The controller itself. */}}

{{- define "tightship-lib.deployment" -}}
{{- include "tightship-lib.checks" . -}}
{{- $v := .Values -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  {{- include "tightship-lib.metadata" (dict "root" . "annotations" $v.deploymentAnnotations) | nindent 2 }}
spec:
  replicas: {{ include "tightship-lib.text" $v.replicaCount }}
  revisionHistoryLimit: {{ include "tightship-lib.text" $v.revisionHistoryLimit }}
  strategy:
    {{- include "tightship-lib.strategy" . | nindent 4 }}
  selector:
    matchLabels:
      {{- include "tightship-lib.selectorLabels" . | nindent 6 }}
  template:
    metadata:
      labels:
        {{- include "tightship-lib.labelsWith" (list . $v.podLabels) | nindent 8 }}
      annotations:
        kubectl.kubernetes.io/default-container: {{ include "tightship-lib.controller" . }}
        {{- if $v.configMap.mounted }}
        checksum/config: {{ .Own.config | sha256sum }}
        {{- end }}
        {{- with mergeOverwrite (dict) ($v.commonAnnotations | default dict) ($v.podAnnotations | default dict) }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
    spec:
      {{- include "tightship-lib.podSpec" . | nindent 6 }}
{{- end -}}

{{- define "tightship-lib.strategy" -}}
{{- if .Values.strategy -}}
{{ toYaml .Values.strategy }}
{{- else if .Values.leaderElection.enabled -}}
type: RollingUpdate
rollingUpdate:
  maxSurge: 1
  maxUnavailable: 0
{{- else -}}
{{/* Without election nothing keeps the old replica from acting beside the new one. */ -}}
type: Recreate
{{- end -}}
{{- end -}}

{{- define "tightship-lib.podSpec" -}}
{{- $v := .Values -}}
{{- $name := include "tightship-lib.controller" . -}}
serviceAccountName: {{ include "tightship-lib.serviceAccountName" . }}
{{- /* The account's own default is false. This pod needs the token, unless it uses a kubeconfig. */}}
automountServiceAccountToken: {{ empty $v.kubeconfig.secretName }}
{{ include "tightship-lib.pod" . }}
{{- with $v.priorityClassName | default $v.global.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with $v.runtimeClassName }}
runtimeClassName: {{ . }}
{{- end }}
{{- if not (kindIs "invalid" $v.hostUsers) }}
hostUsers: {{ $v.hostUsers }}
{{- end }}
{{- if $v.hostNetwork }}
hostNetwork: true
{{- end }}
{{- with $v.dnsPolicy }}
dnsPolicy: {{ . }}
{{- end }}
{{- with $v.dnsConfig }}
dnsConfig:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $v.hostAliases }}
hostAliases:
  {{- toYaml . | nindent 2 }}
{{- end }}
terminationGracePeriodSeconds: {{ include "tightship-lib.text" $v.terminationGracePeriodSeconds }}
{{- with $v.initContainers }}
initContainers:
  {{- tpl (toYaml .) $ | nindent 2 }}
{{- end }}
containers:
  - name: {{ $name }}
    {{- include "tightship-lib.controllerContainer" . | nindent 4 }}
    args:
      - run
      {{- range $v.extraArgs }}
      - {{ tpl . $ | quote }}
      {{- end }}
    env:
      {{- include "tightship-lib.env" . | nindent 6 }}
      - name: {{ .Own.interval }}
        value: {{ include "tightship-lib.text" $v.interval | quote }}
      {{- with .Own.env }}
      {{- . | nindent 6 }}
      {{- end }}
      {{- with include "tightship-lib.claimsEnv" . }}
      {{- . | nindent 6 }}
      {{- end }}
      {{- with $v.env }}
      {{- tpl (toYaml .) $ | nindent 6 }}
      {{- end }}
    ports:
      - name: http
        containerPort: {{ $v.http.port }}
        protocol: TCP
      {{- if eq (include "tightship-lib.probes" .) "probes" }}
      - name: probes
        containerPort: {{ $v.http.probePort }}
        protocol: TCP
      {{- end }}
      {{- range $v.http.extraPorts }}
      - name: http-{{ . }}
        containerPort: {{ . }}
        protocol: TCP
      {{- end }}
    {{- range $kind, $path := dict "livenessProbe" "/healthz" "readinessProbe" "/readyz" "startupProbe" "/healthz" }}
    {{- $probe := index $v $kind }}
    {{- $get := dict "path" $path "port" (include "tightship-lib.probes" $) }}
    {{- if and $v.http.secure.enabled (ne $get.port "probes") }}
    {{- $_ := set $get "scheme" "HTTPS" }}
    {{- end }}
    {{- if $probe.enabled }}
    {{ $kind }}:
      {{- toYaml (merge (omit $probe "enabled") (dict "httpGet" $get)) | nindent 6 }}
    {{- end }}
    {{- end }}
    {{- with $v.lifecycle }}
    lifecycle:
      {{- tpl (toYaml .) $ | nindent 6 }}
    {{- end }}
    {{- with include "tightship-lib.mounts" . | trim }}
    volumeMounts:
      {{- . | nindent 6 }}
    {{- end }}
  {{- with $v.extraContainers }}
  {{- tpl (toYaml .) $ | nindent 2 }}
  {{- end }}
{{- with include "tightship-lib.volumes" . | trim }}
volumes:
  {{- . | nindent 2 }}
{{- end }}
{{- with $v.affinity }}
affinity:
  {{- tpl (toYaml .) $ | nindent 2 }}
{{- end }}
{{- with $v.topologySpreadConstraints }}
topologySpreadConstraints:
  {{- $selector := dict "matchLabels" (include "tightship-lib.selectorLabels" $ | fromYaml) }}
  {{- range . }}
  - {{- merge (dict) . (dict "labelSelector" $selector) | toYaml | nindent 4 }}
  {{- end }}
{{- end }}
{{- end -}}

{{/* The name of the container port for probes: a port that serves everything already has a name. */}}
{{- define "tightship-lib.probes" -}}
{{- $http := .Values.http -}}
{{- if eq (toString $http.probePort) (toString $http.port) -}}
http
{{- else if has (toString $http.probePort) ($http.extraPorts | default list | toStrings) -}}
http-{{ $http.probePort }}
{{- else -}}
probes
{{- end -}}
{{- end -}}

{{- define "tightship-lib.mounts" -}}
{{- if .Values.configMap.mounted }}
- name: config
  mountPath: /etc/tightship/config
  readOnly: true
{{- end }}
{{- with include "tightship-lib.kubeconfigMount" . }}
{{ . }}
{{- end }}
{{- if include "tightship-lib.tlsSecret" . }}
- name: tls
  mountPath: /etc/tightship/tls
  readOnly: true
{{- end }}
{{- range $name, $_ := .Values.secretMounts }}
- name: secret-{{ $name }}
  mountPath: /secrets/{{ $name }}
  readOnly: true
{{- end }}
{{- with .Own.mounts }}
{{ . }}
{{- end }}
{{- with .Values.extraVolumeMounts }}
{{ tpl (toYaml .) $ }}
{{- end }}
{{- end -}}

{{- define "tightship-lib.volumes" -}}
{{- if .Values.configMap.mounted }}
- name: config
  configMap:
    name: {{ include "tightship-lib.configMapName" . }}
{{- end }}
{{- with include "tightship-lib.kubeconfigVolume" . }}
{{ . }}
{{- end }}
{{- with include "tightship-lib.tlsSecret" . }}
- name: tls
  secret:
    secretName: {{ . }}
{{- end }}
{{- range $name, $secret := .Values.secretMounts }}
- name: secret-{{ $name }}
  secret:
    secretName: {{ $secret }}
{{- end }}
{{- with .Own.volumes }}
{{ . }}
{{- end }}
{{- with .Values.extraVolumes }}
{{ tpl (toYaml .) $ }}
{{- end }}
{{- end -}}

{{/* The environment of every controller: its process settings (docs/settings.md, "The process"). */}}
{{- define "tightship-lib.env" -}}
{{- $v := .Values -}}
- name: POD_NAME
  valueFrom:
    fieldRef:
      fieldPath: metadata.name
- name: NAMESPACE
  valueFrom:
    fieldRef:
      fieldPath: metadata.namespace
- name: DRY_RUN
  value: {{ include "tightship-lib.dryRun" . | quote }}
{{- if $v.configMap.mounted }}
- name: CONFIG_PATH
  value: /etc/tightship/config
{{- end }}
- name: CONFIG_MAP_NAME
  value: {{ include "tightship-lib.configMapName" . }}
- name: LOG_LEVEL
  value: {{ $v.log.level | default .Values.global.logLevel | default "info" }}
- name: LOG_FORMAT
  value: {{ $v.log.format | default .Values.global.logFormat | default "plaintext" }}
- name: HTTP_HOST
  value: {{ $v.http.host | quote }}
- name: HTTP_PORTS
  value: {{ concat (list $v.http.port) ($v.http.extraPorts | default list) | join "," | quote }}
- name: HTTP_PROBE_PORT
  value: {{ $v.http.probePort | quote }}
- name: HTTP_SECURE
  value: {{ $v.http.secure.enabled | quote }}
{{- if include "tightship-lib.tlsSecret" . }}
- name: HTTP_TLS_PATH
  value: /etc/tightship/tls
{{- end }}
- name: REQUEST_TIMEOUT_SECONDS
  value: {{ include "tightship-lib.text" $v.requestTimeout | quote }}
- name: LEADER_ELECT
  value: {{ $v.leaderElection.enabled | quote }}
- name: LEASE_NAME
  value: {{ include "tightship-lib.leaseName" . }}
- name: LEASE_DURATION_SECONDS
  value: {{ include "tightship-lib.text" $v.leaderElection.leaseDuration | quote }}
- name: LEASE_RENEW_DEADLINE_SECONDS
  value: {{ include "tightship-lib.text" $v.leaderElection.renewDeadline | quote }}
- name: LEASE_RETRY_PERIOD_SECONDS
  value: {{ include "tightship-lib.text" $v.leaderElection.retryPeriod | quote }}
- name: STOP_TIMEOUT_SECONDS
  value: {{ include "tightship-lib.text" $v.shutdown.timeout | quote }}
- name: STOP_GRACE_SECONDS
  value: {{ include "tightship-lib.text" $v.shutdown.grace | quote }}
{{- if $v.kubeconfig.secretName }}
- name: TIGHTSHIP_KUBECONFIG
  value: /etc/tightship/kubeconfig/config
{{- end }}
{{- with $v.kubeconfig.context }}
- name: KUBE_CONTEXT
  value: {{ . | quote }}
{{- end }}
{{- end -}}

{{/* Controllers of nodes share one Lease with claims; each has a ConfigMap of landings, if any. */}}
{{- define "tightship-lib.claimsEnv" -}}
{{- if include "tightship-lib.drains" . -}}
- name: CLAIMS_LEASE_NAME
  value: {{ .Values.claims.leaseName }}
- name: CLAIMS_LEASE_NAMESPACE
  value: {{ include "tightship-lib.claimsNamespace" . }}
- name: LANDINGS_CONFIG_MAP_NAME
  value: {{ include "tightship-lib.landingsName" . }}
{{- end -}}
{{- end -}}

{{- define "tightship-lib.claimsNamespace" -}}
{{- .Values.claims.namespace | default (include "tightship-lib.namespace" .) -}}
{{- end -}}
