{{/* The pods of the controller, of the Job that gives nodes back and of `helm test`. What values say of a pod reaches all
     three, so that whatever lets the controller's pod into a namespace, and to the API server, does so for the others. */}}

{{/* Takes a dict:
       root, and part: "" for the controller, `release` or `test`, which ends the label that selectors use
       annotations  dict: further annotations of the pod
       account      the ServiceAccount; a pod without one speaks to no API server: it has no token, no kubeconfig, and
                    needs no init container
       pod          text: fields of the pod's spec that only this pod has; those above win
       container    text: the container: its name, and what only this one has
       env          text: variables, before those of the values
       mounts, volumes  text: further ones, before those of the values
     Sidecars and spread constraints are about replicas that stay: only the Deployment passes them. */}}
{{- define "tightship-lib.podTemplate" -}}
metadata:
  labels:
    {{- include "tightship-lib.labelsWith" (list .root .root.Values.podLabels .part) | nindent 4 }}
  {{- with mergeOverwrite (dict) (.annotations | default dict) (.root.Values.commonAnnotations | default dict) (.root.Values.podAnnotations | default dict) }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  {{- include "tightship-lib.podSpec" . | nindent 2 }}
{{- end -}}

{{- define "tightship-lib.podSpec" -}}
{{- $root := .root -}}
{{- $v := $root.Values -}}
{{- /* Values that are templates. */}}
{{- $t := tpl (pick $v "affinity" "env" "envFrom" "extraVolumeMounts" "extraVolumes" "initContainers" "lifecycle" | toYaml) $root | fromYaml -}}
{{- $pod := .pod | default "" | fromYaml -}}
{{- $container := .container | fromYaml -}}
{{- $volumes := .volumes | default "" | fromYamlArray -}}
{{- $mounts := .mounts | default "" | fromYamlArray -}}
{{- with .account -}}
{{- $_ := set $pod "serviceAccountName" . -}}
{{- with $t.initContainers -}}{{- $_ := set $pod "initContainers" . -}}{{- end -}}
{{- if $v.kubeconfig.secretName -}}
{{- $item := dict "key" $v.kubeconfig.key "path" "config" -}}
{{- $secret := dict "secretName" $v.kubeconfig.secretName "items" (list $item) -}}
{{- $volumes = append $volumes (dict "name" "kubeconfig" "secret" $secret) -}}
{{- $mounts = append $mounts (dict "name" "kubeconfig" "mountPath" "/etc/tightship/kubeconfig" "readOnly" true) -}}
{{- end -}}
{{- end -}}
{{- range $name, $secret := $v.secretMounts -}}
{{- $volumes = append $volumes (dict "name" (printf "secret-%s" $name) "secret" (dict "secretName" $secret)) -}}
{{- $mounts = append $mounts (dict "name" (printf "secret-%s" $name) "mountPath" (printf "/secrets/%s" $name) "readOnly" true) -}}
{{- end -}}
{{- /* The account's own default is false. */}}
{{- $_ := set $pod "automountServiceAccountToken" (and (not (empty .account)) (empty $v.kubeconfig.secretName)) -}}
{{- $_ = set $pod "enableServiceLinks" false -}}
{{- $_ = set $pod "terminationGracePeriodSeconds" (int64 $v.terminationGracePeriodSeconds) -}}
{{- if not (kindIs "invalid" $v.hostUsers) -}}{{- $_ = set $pod "hostUsers" $v.hostUsers -}}{{- end -}}
{{- $dns := $v.dnsPolicy | default (ternary "ClusterFirstWithHostNet" "" $v.hostNetwork) -}}
{{- $security := include "tightship-lib.securityContext" (list $root $v.podSecurityContext) | fromYaml -}}
{{- $class := include "tightship-lib.priorityClass" $root -}}
{{- $secrets := list -}}
{{- range $v.imagePullSecrets -}}{{- $secrets = append $secrets (kindIs "string" . | ternary (dict "name" .) .) -}}{{- end -}}
{{- $given := dict "affinity" $t.affinity "dnsConfig" $v.dnsConfig "dnsPolicy" $dns "hostAliases" $v.hostAliases "hostNetwork" $v.hostNetwork -}}
{{- $given = merge $given (dict "imagePullSecrets" $secrets "nodeSelector" $v.nodeSelector "priorityClassName" $class) -}}
{{- $given = merge $given (dict "runtimeClassName" $v.runtimeClassName "schedulerName" $v.schedulerName) -}}
{{- $given = merge $given (dict "securityContext" $security "tolerations" $v.tolerations) -}}
{{- $given = merge $given (dict "volumes" (concat $volumes ($t.extraVolumes | default list))) -}}
{{- range $key, $value := $given -}}
{{- if $value -}}{{- $_ := set $pod $key $value -}}{{- end -}}
{{- end -}}
{{- $security = include "tightship-lib.securityContext" (list $root $v.securityContext) | fromYaml -}}
{{- $given = dict "env" (concat (.env | fromYamlArray) ($t.env | default list)) "envFrom" $t.envFrom "lifecycle" $t.lifecycle -}}
{{- $given = merge $given (dict "image" (include "tightship-lib.image" $root) "imagePullPolicy" $v.image.pullPolicy) -}}
{{- $given = merge $given (dict "resources" $v.resources "securityContext" $security) -}}
{{- $given = merge $given (dict "volumeMounts" (concat $mounts ($t.extraVolumeMounts | default list))) -}}
{{- range $key, $value := $given -}}
{{- if $value -}}{{- $_ := set $container $key $value -}}{{- end -}}
{{- end -}}
{{- $_ = set $pod "containers" (prepend ($pod.containers | default list) $container) -}}
{{ toYaml $pod }}
{{- end -}}

{{/* A security context without the ids that OpenShift itself assigns, where global.compatibility says so. Takes (list root
     context). */}}
{{- define "tightship-lib.securityContext" -}}
{{- $root := index . 0 -}}
{{- $adapt := dig "compatibility" "openshift" "adaptSecurityContext" "auto" $root.Values.global -}}
{{- $openshift := and (eq $adapt "auto") ($root.Capabilities.APIVersions.Has "security.openshift.io/v1") -}}
{{- $context := index . 1 | default dict -}}
{{- if or (eq $adapt "force") $openshift -}}
{{- $context = omit $context "runAsUser" "runAsGroup" "fsGroup" "supplementalGroups" -}}
{{- end -}}
{{ toYaml $context }}
{{- end -}}

{{/* The priority class. GKE lets pods of the system's classes into a namespace only with a ResourceQuota for them, which
     kube-system alone has: there the default is none. */}}
{{- define "tightship-lib.priorityClass" -}}
{{- $gke := or (contains "-gke." .Capabilities.KubeVersion.Version) (.Capabilities.APIVersions.Has "networking.gke.io/v1") -}}
{{- $class := .Values.global.priorityClassName | default "" -}}
{{- $refused := and $gke (ne (include "tightship-lib.namespace" .) "kube-system") (hasPrefix "system-" $class) -}}
{{- .Values.priorityClassName | default (ternary "" $class $refused) -}}
{{- end -}}
