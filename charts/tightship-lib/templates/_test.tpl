{{/* `helm test`: asks the controller, through its Service, whether it is ready, its configuration is valid, and its passes
     succeed. The pod uses only HTTP and has no token. */}}

{{/* Only the NetworkPolicy that lets the test in selects these labels. */}}
{{- define "tightship-lib.testLabels" -}}
app.kubernetes.io/name: {{ printf "%s-test" (include "tightship-lib.name" .) }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "tightship-lib.test" -}}
{{- $name := printf "%s-test" (include "tightship-lib.fullname" .) -}}
apiVersion: v1
kind: Pod
metadata:
  name: {{ $name }}
  namespace: {{ include "tightship-lib.namespace" . }}
  labels:
    {{- include "tightship-lib.testLabels" . | nindent 4 }}
    {{- include "tightship-lib.partLabels" . | nindent 4 }}
    {{- include "tightship-lib.chartLabels" . | nindent 4 }}
  annotations:
    helm.sh/hook: test
    helm.sh/hook-delete-policy: before-hook-creation
    {{- with .Values.commonAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  restartPolicy: Never
  automountServiceAccountToken: false
  {{- include "tightship-lib.pod" . | nindent 2 }}
  containers:
    - name: asks
      {{- include "tightship-lib.container" . | nindent 6 }}
      env:
        - name: TARGET
          value: {{ printf "%s://%s:%v" (ternary "https" "http" .Values.http.secure.enabled) (include "tightship-lib.fullname" .) (.Values.service.port | default .Values.http.port) }}
        - name: CONTROLLER
          value: {{ include "tightship-lib.controller" . }}
        - name: DEADLINE
          value: "120"
      command: [python, -c]
      args:
        - |
          {{- include "tightship-lib.testScript" . | nindent 10 }}
      resources:
        requests:
          cpu: 10m
          memory: 32Mi
{{- end -}}

{{- define "tightship-lib.testScript" -}}
import json, os, re, ssl, sys, time, urllib.error, urllib.request

TARGET, CONTROLLER = os.environ["TARGET"], os.environ["CONTROLLER"]
SECURE = TARGET.startswith("https:")
TRUST = ssl._create_unverified_context()
until = time.monotonic() + float(os.environ["DEADLINE"])


def ask(path):
    try:
        with urllib.request.urlopen(TARGET + path, timeout=10, context=TRUST) as answer:
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
