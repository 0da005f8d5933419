{{/* Made by `make charts`: defaults of the values that `global` may have too. */}}
{{- define "tightship-lib.defaults" -}}
affinity: {}
clusterName: ''
commonAnnotations: {}
commonLabels: {}
dryRun: null
env: []
envFrom: []
extraVolumeMounts: []
extraVolumes: []
hostAliases: []
imagePullSecrets: []
networkPolicy:
  enabled: null
nodeSelector:
  kubernetes.io/os: linux
podAnnotations: {}
podLabels: {}
podMonitor:
  enabled: null
  labels: {}
podSecurityContext:
  fsGroup: 65532
  runAsGroup: 65532
  runAsNonRoot: true
  runAsUser: 65532
  seccompProfile:
    type: RuntimeDefault
prometheusRule:
  enabled: null
  labels: {}
replicaCount: null
resources:
  limits:
    memory: 512Mi
  requests:
    cpu: 50m
    memory: 128Mi
securityContext:
  allowPrivilegeEscalation: false
  capabilities:
    drop:
    - ALL
  readOnlyRootFilesystem: true
serviceMonitor:
  enabled: null
  labels: {}
tolerations: []
{{- end -}}
