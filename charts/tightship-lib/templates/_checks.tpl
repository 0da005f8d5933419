{{/* Refuses values that are unsafe or impossible together. Each message names the value and what is allowed. */}}

{{- define "tightship-lib.checks" -}}
{{- $v := .Values -}}
{{- $replicas := include "tightship-lib.replicas" . | int -}}
{{- if and (gt $replicas 1) (not $v.leaderElection.enabled) -}}
{{- fail (printf "replicaCount: %d: more than one replica needs leaderElection.enabled=true, or all of them would act at once" $replicas) -}}
{{- end -}}
{{- if and (not $v.leaderElection.enabled) ($v.strategy.type | default "Recreate" | ne "Recreate") -}}
{{- fail "strategy.type: without leader election only Recreate is allowed, or two replicas would act during an update" -}}
{{- end -}}
{{- if and $v.podMonitor.enabled $v.serviceMonitor.enabled -}}
{{- fail "serviceMonitor.enabled, podMonitor.enabled: enable only one of the two, or Prometheus scrapes everything twice" -}}
{{- end -}}
{{- range $key := list "serviceMonitor" "podMonitor" -}}
{{- $monitor := index $v $key -}}
{{- if and $v.http.secure.enabled $monitor.enabled (empty $monitor.authorization) (not $v.rbac.create) -}}
{{- fail (printf "%s.authorization: http.secure needs credentials here, since with rbac.create=false the chart makes no account for scrapes" $key) -}}
{{- end -}}
{{- end -}}
{{- include "tightship-lib.checkBudget" . -}}
{{- $grace := include "tightship-lib.seconds" $v.shutdown.grace | float64 -}}
{{- if le ($v.terminationGracePeriodSeconds | float64) $grace -}}
{{- fail (printf "terminationGracePeriodSeconds: %s: must be above shutdown.grace, which is %s, or the kubelet kills the pod in the middle of a drain" (include "tightship-lib.text" $v.terminationGracePeriodSeconds) (include "tightship-lib.text" $v.shutdown.grace)) -}}
{{- end -}}
{{- end -}}

{{/* A budget that allows no eviction blocks every drain for ever. */}}
{{- define "tightship-lib.checkBudget" -}}
{{- $b := .Values.podDisruptionBudget -}}
{{- $replicas := include "tightship-lib.replicas" . | int -}}
{{- $least := $b.minAvailable | toString -}}
{{- $most := kindIs "invalid" $b.maxUnavailable | ternary "nothing" ($b.maxUnavailable | toString) -}}
{{- if and $b.enabled (not (kindIs "invalid" $b.minAvailable)) -}}
{{- $kept := 0 -}}
{{- if hasSuffix "%" $least -}}
{{- $kept = divf (mulf (trimSuffix "%" $least | float64) $replicas) 100.0 | ceil | int -}}
{{- else -}}
{{- $kept = $least | int -}}
{{- end -}}
{{- if and (ge $kept $replicas) (gt $replicas 0) -}}
{{- fail (printf "podDisruptionBudget.minAvailable: %s of replicaCount %d would block every drain; set a smaller value, or maxUnavailable" $least $replicas) -}}
{{- end -}}
{{- else if and $b.enabled (regexMatch "^(nothing|0+%?)$" $most) -}}
{{- fail (printf "podDisruptionBudget.maxUnavailable: %s would block every drain; set 1 or more" $most) -}}
{{- end -}}
{{- end -}}

{{/* The seconds of a duration: 90, 90s, 10m, 1h30m, 1.5s. */}}
{{- define "tightship-lib.seconds" -}}
{{- $text := include "tightship-lib.text" . -}}
{{- if regexMatch "^[0-9.]+$" $text -}}
{{- $text -}}
{{- else -}}
{{- $sum := 0.0 -}}
{{- range $part := regexFindAll "[0-9.]+(ms|[smhd])" $text -1 -}}
{{- $unit := regexFind "[a-z]+$" $part -}}
{{- $number := trimSuffix $unit $part | float64 -}}
{{- $sum = addf $sum (mulf $number (index (dict "ms" 0.001 "s" 1.0 "m" 60.0 "h" 3600.0 "d" 86400.0) $unit)) -}}
{{- end -}}
{{- $sum -}}
{{- end -}}
{{- end -}}
