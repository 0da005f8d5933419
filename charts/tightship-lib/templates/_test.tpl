{{/* `helm test`: asks the controller, through its Service, whether it is ready, its configuration is valid, and its passes
     succeed. The pod uses only HTTP and has no token. */}}

{{- define "tightship-lib.test" -}}
{{- $name := printf "%s-test" (include "tightship-lib.fullname" .) -}}
{{- $template := include "tightship-lib.podTemplate" (dict
  "root" .
  "part" "test"
  "pod" "restartPolicy: Never"
  "container" (include "tightship-lib.testContainer" .)
  "env" (include "tightship-lib.testEnv" .)) | fromYaml -}}
{{- $hook := dict "helm.sh/hook" "test" "helm.sh/hook-delete-policy" "before-hook-creation" -}}
{{- $notes := mergeOverwrite (dict) ($template.metadata.annotations | default dict) $hook -}}
apiVersion: v1
kind: Pod
metadata:
  {{- include "tightship-lib.metadata" (dict "root" . "name" $name "labels" .Values.podLabels "part" "test" "annotations" $notes) | nindent 2 }}
spec:
  {{- toYaml $template.spec | nindent 2 }}
{{- if .Values.networkPolicy.enabled }}
{{- $hook = mergeOverwrite $hook (dict "helm.sh/hook-weight" "-5" "helm.sh/hook-delete-policy" "before-hook-creation,hook-succeeded") }}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  {{- include "tightship-lib.metadata" (dict "root" . "name" $name "annotations" $hook) | nindent 2 }}
spec:
  podSelector:
    matchLabels:
      {{- include "tightship-lib.labelsOf" (list . "test") | nindent 6 }}
  policyTypes: [Ingress, Egress]
  egress:
    {{- include "tightship-lib.egressToNames" . | nindent 4 }}
    - ports:
        - port: {{ include "tightship-lib.scheme" . }}
          protocol: TCP
      to:
        - podSelector:
            matchLabels:
              {{- include "tightship-lib.selectorLabels" . | nindent 14 }}
{{- end }}
{{- end -}}

{{- define "tightship-lib.testContainer" -}}
name: asks
command: [python, -c]
args:
  - |
    {{- include "tightship-lib.testScript" . | nindent 4 }}
{{- end -}}

{{- define "tightship-lib.testEnv" -}}
- name: TARGET
  value: {{ printf "%s://%s:%v" (include "tightship-lib.scheme" .) (include "tightship-lib.fullname" .) (.Values.service.port | default .Values.http.port) }}
- name: CONTROLLER
  value: {{ include "tightship-lib.controller" . }}
- name: DEADLINE
  value: "120"
{{- end -}}

{{- define "tightship-lib.testScript" -}}
import json, os, re, ssl, sys, time, urllib.error, urllib.request

TARGET, CONTROLLER = os.environ["TARGET"], os.environ["CONTROLLER"]
SECURE = TARGET.startswith("https:")
TRUST = urllib.request.HTTPSHandler(context=ssl._create_unverified_context())
# The Service is in the cluster, whatever proxy the environment names for what is not.
OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}), TRUST)
until = time.monotonic() + float(os.environ["DEADLINE"])


def ask(path):
    try:
        with OPENER.open(TARGET + path, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError as error:
        return 0, str(error)


def trouble():
    status, text = ask("/readyz")
    if status != 200:
        return f"/readyz says {status}: {' '.join(text.split())}"
    status, text = ask("/metrics")
    if SECURE:
        return "" if status == 401 else f"/metrics says {status} to who shows no token"
    if f'tightship_build_info{{"{{"}}controller="{CONTROLLER}"' not in text:
        return f"/metrics says {status}, and is not the page of {CONTROLLER}"
    values = dict(re.findall(r"^(tightship_\w+) ([0-9.e+-]+)$", text, re.MULTILINE))
    if float(values["tightship_config_valid"]) != 1:
        return "the configuration is invalid; the log says why"
    if float(values["tightship_loop_last_success_timestamp_seconds"]) == 0:
        return f"no pass has succeeded, and {values['tightship_loop_failures_total']} have failed; the log says why"
    status, text = ask("/status")
    if status != 200 or not isinstance(json.loads(text), dict):
        return f"/status says {status}"
    return ""


while found := trouble():
    if time.monotonic() > until:
        sys.exit(f"{CONTROLLER} at {TARGET}: {found}")
    print(f"waiting: {found}", flush=True)
    time.sleep(2)
told = "and answers nobody without a token" if SECURE else "its configuration is valid, and its passes succeed"
print(f"{CONTROLLER} at {TARGET} is ready, {told}")
{{- end -}}
