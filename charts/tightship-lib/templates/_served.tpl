{{/* Which kinds the cluster serves, and what was asked for in vain. */}}

{{/* "true" if the cluster serves a kind, as far as Helm knows. A Helm that asks the cluster, and Argo CD, which hands over
     what it has asked, list every kind, Pod among them. Without that list nobody knows: the charts are rendered without a
     cluster. A kind that the values ask for is then rendered, a kind of Kubernetes itself from the release on in which it is
     stable: whoever applies it learns from the API server if there is none. Takes (list root "group/version/Kind"). */}}
{{- define "tightship-lib.served" -}}
{{- $root := index . 0 -}}
{{- $api := index . 1 -}}
{{- $said := $root.Values.global.apiVersions | default list -}}
{{- $asked := $root.Capabilities.APIVersions -}}
{{- $since := dict
  "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy" "1.36"
  "admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy" "1.30" -}}
{{- if or (has $api $said) ($asked.Has $api) -}}
true
{{- else if not (or (has "v1/Pod" $said) ($asked.Has "v1/Pod")) -}}
{{- if semverCompare (printf ">=%s-0" (index $since $api | default "1.0")) $root.Capabilities.KubeVersion.Version -}}true{{- end -}}
{{- end -}}
{{- end -}}

{{/* A line for each kind that the values ask for and the cluster does not serve. */}}
{{- define "tightship-lib.missing" -}}
{{- range $key, $api := dict "serviceMonitor" "monitoring.coreos.com/v1/ServiceMonitor" "podMonitor" "monitoring.coreos.com/v1/PodMonitor" "prometheusRule" "monitoring.coreos.com/v1/PrometheusRule" -}}
{{- if (index $.Values $key).enabled -}}
{{- include "tightship-lib.notServed" (list $ (printf "%s.enabled is true" $key) $api) -}}
{{- end -}}
{{- end -}}
{{- if .Values.verticalPodAutoscaler.enabled -}}
{{- include "tightship-lib.notServed" (list $ "verticalPodAutoscaler.enabled is true" "autoscaling.k8s.io/v1/VerticalPodAutoscaler") -}}
{{- end -}}
{{- include "tightship-lib.missingDashboard" . -}}
{{- if and .Values.http.secure.enabled .Values.http.secure.issuerRef -}}
{{- include "tightship-lib.notServed" (list $ "http.secure.issuerRef is set" "cert-manager.io/v1/Certificate") -}}
{{- end -}}
{{- if and (include "tightship-lib.mayHoldAccounts" .) (include "tightship-lib.live" .) -}}
{{- include "tightship-lib.notServed" (list $ "admissionPolicy.enabled is true" "admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy") -}}
{{- end -}}
{{- end -}}

{{- define "tightship-lib.missingDashboard" -}}
{{- if and .Values.grafanaDashboard.enabled .Values.grafanaDashboard.operator.enabled -}}
{{- include "tightship-lib.notServed" (list . "grafanaDashboard.operator.enabled is true" "grafana.integreatly.org/v1beta1/GrafanaDashboard") -}}
{{- end -}}
{{- end -}}

{{/* Takes (list root "VALUE is true" "group/version/Kind"). */}}
{{- define "tightship-lib.notServed" -}}
{{- $root := index . 0 -}}
{{- if not (include "tightship-lib.served" (list $root (index . 2))) }}
WARNING: {{ include "tightship-lib.valuesOf" $root }}{{ index . 1 }}, but this cluster does not serve {{ index . 2 }}, so the chart created none.
{{- end }}
{{- end -}}

{{/* The warnings of the notes as comments: tools that only render show no notes. Takes the notes. */}}
{{- define "tightship-lib.comments" -}}
{{- range splitList "\n" . }}
{{- if hasPrefix "WARNING" . }}
# {{ . }}
{{- end }}
{{- end }}
{{- end -}}
