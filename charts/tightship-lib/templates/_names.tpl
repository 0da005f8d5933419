{{/* Every name and label is made here. All templates take the root context; which controller a chart is of stands in its
     Chart.yaml, so that a chart can be used under an alias. */}}

{{- define "tightship-lib.controller" -}}
{{- index .Chart.Annotations "tightship.dev/controller" -}}
{{- end -}}

{{- define "tightship-lib.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{/* At most 52 characters, so that with the longest suffix a Service still has a name (63). A release name that is too
     long gives way to a checksum of itself: two that begin alike stay apart. Helm allows dots in it, a Service has none. */}}
{{- define "tightship-lib.fullname" -}}
{{- $name := include "tightship-lib.name" . -}}
{{- $release := .Release.Name | replace "." "-" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" -}}
{{- else if contains $name $release -}}
{{- if gt (len $release) 52 -}}
{{- printf "%s-%s" ($release | trunc 45 | trimSuffix "-") ($release | sha256sum | trunc 6) -}}
{{- else -}}
{{- $release -}}
{{- end -}}
{{- else if gt (add (len $release) (len $name) 1 | int) 52 -}}
{{- $room := sub 44 (len $name) | int -}}
{{- printf "%s-%s-%s" ($release | trunc $room | trimSuffix "-") ($release | sha256sum | trunc 6) $name -}}
{{- else -}}
{{- printf "%s-%s" $release $name -}}
{{- end -}}
{{- end -}}

{{- define "tightship-lib.namespace" -}}
{{- default .Release.Namespace .Values.namespaceOverride -}}
{{- end -}}

{{/* The same release name may stand in two namespaces, but a ClusterRole is there once. */}}
{{- define "tightship-lib.clusterName" -}}
{{- printf "%s:%s" (include "tightship-lib.namespace" .) (include "tightship-lib.fullname" .) -}}
{{- end -}}

{{- define "tightship-lib.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "tightship-lib.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- required "serviceAccount.name: with serviceAccount.create=false the name of an account that is there must be given" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "tightship-lib.configMapName" -}}
{{- default (include "tightship-lib.fullname" .) .Values.configMap.name -}}
{{- end -}}

{{- define "tightship-lib.leaseName" -}}
{{- default (include "tightship-lib.fullname" .) .Values.leaderElection.resourceName -}}
{{- end -}}

{{- define "tightship-lib.selectorLabels" -}}
app.kubernetes.io/name: {{ include "tightship-lib.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* What objects bear besides the labels they are selected by. */}}
{{- define "tightship-lib.partLabels" -}}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/component: {{ include "tightship-lib.controller" . }}
app.kubernetes.io/part-of: tightship
{{- end -}}

{{- define "tightship-lib.chartLabels" -}}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end -}}

{{- define "tightship-lib.commonLabels" -}}
{{- with mergeOverwrite (dict) (.Values.global.commonLabels | default dict) (.Values.commonLabels | default dict) -}}
{{ toYaml . }}
{{- end -}}
{{- end -}}

{{/* Labels: those of all objects, then *extra* ones, which can't replace those that things are selected by.
     Takes (list root extra). */}}
{{- define "tightship-lib.labelsWith" -}}
{{- $root := index . 0 -}}
{{- $labels := mergeOverwrite (dict) (include "tightship-lib.commonLabels" $root | fromYaml) (index . 1 | default dict) -}}
{{- range list "partLabels" "selectorLabels" -}}
{{- $_ := mergeOverwrite $labels (include (printf "tightship-lib.%s" .) $root | fromYaml) -}}
{{- end -}}
{{ toYaml $labels }}
{{- end -}}

{{/* Name, namespace, labels and annotations of an object. Takes a dict: root, and perhaps name, namespace ("-" for an
     object of the cluster), labels, annotations. */}}
{{- define "tightship-lib.metadata" -}}
{{- $root := .root -}}
name: {{ default (include "tightship-lib.fullname" $root) .name }}
{{- $namespace := default (include "tightship-lib.namespace" $root) .namespace }}
{{- if ne $namespace "-" }}
namespace: {{ $namespace }}
{{- end }}
labels:
  {{- include "tightship-lib.labelsWith" (list $root .labels) | nindent 2 }}
  {{- include "tightship-lib.chartLabels" $root | nindent 2 }}
{{- with mergeOverwrite (dict) ($root.Values.commonAnnotations | default dict) (.annotations | default dict) }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* What the name of an image is made of; global.imageRegistry comes first. */}}
{{- define "tightship-lib.image" -}}
{{- $image := .Values.image -}}
{{- $registry := default $image.registry .Values.global.imageRegistry -}}
{{- $name := ternary $image.repository (printf "%s/%s" $registry $image.repository) (empty $registry) -}}
{{- if $image.digest -}}
{{- printf "%s@%s" $name $image.digest -}}
{{- else -}}
{{- printf "%s:%s" $name (default .Chart.AppVersion $image.tag) -}}
{{- end -}}
{{- end -}}

{{- define "tightship-lib.imagePullSecrets" -}}
{{- with concat (.Values.global.imagePullSecrets | default list) (.Values.imagePullSecrets | default list) | uniq -}}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end -}}
{{- end -}}

{{/* "true" where an object of this kind can be made: its CRD is there. Takes (list root "group/version/Kind"). */}}
{{- define "tightship-lib.served" -}}
{{- $root := index . 0 -}}
{{- if $root.Capabilities.APIVersions.Has (index . 1) -}}true{{- end -}}
{{- end -}}
