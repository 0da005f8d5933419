{{/* What the pods of the controller, of the Job that gives nodes back and of `helm test` have in common. */}}

{{- define "tightship-lib.pod" -}}
enableServiceLinks: false
{{- with concat (.Values.global.imagePullSecrets | default list) (.Values.imagePullSecrets | default list) | uniq }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.podSecurityContext }}
securityContext:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with mergeOverwrite (dict) (.Values.global.nodeSelector | default dict) (.Values.nodeSelector | default dict) }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with concat (.Values.global.tolerations | default list) (.Values.tolerations | default list) | uniq }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "tightship-lib.container" -}}
image: {{ include "tightship-lib.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
{{- with .Values.securityContext }}
securityContext:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* A container that runs the controller, but for its arguments and its own environment. */}}
{{- define "tightship-lib.controllerContainer" -}}
{{ include "tightship-lib.container" . }}
command: [{{ include "tightship-lib.controller" . }}]
{{- with .Values.envFrom }}
envFrom:
  {{- tpl (toYaml .) $ | nindent 2 }}
{{- end }}
{{- with .Values.resources }}
resources:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "tightship-lib.kubeconfigMount" -}}
{{- if .Values.kubeconfig.secretName -}}
- name: kubeconfig
  mountPath: /etc/tightship/kubeconfig
  readOnly: true
{{- end -}}
{{- end -}}

{{- define "tightship-lib.kubeconfigVolume" -}}
{{- if .Values.kubeconfig.secretName -}}
- name: kubeconfig
  secret:
    secretName: {{ .Values.kubeconfig.secretName }}
    items:
      - key: {{ .Values.kubeconfig.key }}
        path: config
{{- end -}}
{{- end -}}
