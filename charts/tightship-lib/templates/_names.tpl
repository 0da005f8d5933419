{{/* Names, labels and metadata. The templates take the root context. An annotation in Chart.yaml names the chart's
     controller, because an alias changes the name of the chart. */}}

{{- define "tightship-lib.controller" -}}
{{- index .Chart.Annotations "tightship.dev/controller" -}}
{{- end -}}

{{- define "tightship-lib.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{/* At most 52 characters, so that the longest suffix fits into the 63 characters of a Service's name. A release name that
     is too long ends in its checksum, so that two names that begin alike stay apart. Helm allows dots in a release name;
     the name of a Service has none. */}}
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

{{/* Two namespaces may have releases of the same name, but a ClusterRole has no namespace. */}}
{{- define "tightship-lib.clusterName" -}}
{{- printf "%s:%s" (include "tightship-lib.namespace" .) (include "tightship-lib.fullname" .) -}}
{{- end -}}

{{- define "tightship-lib.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "tightship-lib.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- required "serviceAccount.name: serviceAccount.create=false needs the name of an existing ServiceAccount" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "tightship-lib.configMapName" -}}
{{- default (include "tightship-lib.fullname" .) .Values.configMap.name -}}
{{- end -}}

{{- define "tightship-lib.leaseName" -}}
{{- default (include "tightship-lib.fullname" .) .Values.leaderElection.resourceName -}}
{{- end -}}

{{- define "tightship-lib.selectorLabels" -}}
{{- include "tightship-lib.labelsOf" (list . "") -}}
{{- end -}}

{{/* By which a selector finds the pods of a part: see tightship-lib.podTemplate. */}}
{{- define "tightship-lib.labelsOf" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: {{ list (include "tightship-lib.name" $root) (index . 1) | compact | join "-" }}
app.kubernetes.io/instance: {{ $root.Release.Name | quote }}
{{- end -}}

{{/* The labels that no selector uses. */}}
{{- define "tightship-lib.partLabels" -}}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/component: {{ include "tightship-lib.controller" . }}
app.kubernetes.io/part-of: tightship
{{- end -}}

{{- define "tightship-lib.chartLabels" -}}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end -}}

{{/* The labels of all objects and the extra ones, which can't replace the labels of selectors. Takes (list root extra part),
     the part being that of a pod that is not the controller's own: no selector of those finds it. */}}
{{- define "tightship-lib.labelsWith" -}}
{{- $root := index . 0 -}}
{{- $labels := mergeOverwrite (dict) ($root.Values.commonLabels | default dict) (index . 1 | default dict) -}}
{{- $labels = mergeOverwrite $labels (include "tightship-lib.partLabels" $root | fromYaml) (include "tightship-lib.labelsOf" (list $root (index . 2)) | fromYaml) -}}
{{ toYaml $labels }}
{{- end -}}

{{/* Name, namespace, labels and annotations of an object. Takes a dict: root, and perhaps name, namespace ("-" for an
     object of the cluster), labels, part, annotations. */}}
{{- define "tightship-lib.metadata" -}}
{{- $root := .root -}}
name: {{ default (include "tightship-lib.fullname" $root) .name }}
{{- $namespace := default (include "tightship-lib.namespace" $root) .namespace }}
{{- if ne $namespace "-" }}
namespace: {{ $namespace }}
{{- end }}
labels:
  {{- include "tightship-lib.labelsWith" (list $root .labels (.part | default "")) | nindent 2 }}
  {{- include "tightship-lib.chartLabels" $root | nindent 2 }}
{{- with mergeOverwrite (dict) ($root.Values.commonAnnotations | default dict) (.annotations | default dict) }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* The image; global.imageRegistry overrides the registry. */}}
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
