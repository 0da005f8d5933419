"""Values as people and other charts write them: each is rendered as it was meant, or refused by its name."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import yaml
from rendering import Json, Render, Rendered

from tightship_charts.places import UMBRELLA
from tightship_e2e.renderings import HelmError

CHART = "node-compactor"
FROM_SECRET = {"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}
SPREAD = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}


def pod(check: Callable[[Json], object]) -> Callable[[Rendered], object]:
    return lambda rendered: check(rendered.pod)


def container(check: Callable[[Json], object]) -> Callable[[Rendered], object]:
    return lambda rendered: check(rendered.container)


RENDERED: list[tuple[str, str, Callable[[Rendered], object]]] = [
    # A heading with nothing under it, or null to take a default away (helm#9136 and many after).
    ("tolerations are null", "tolerations:", pod(lambda it: not it.get("tolerations"))),
    ("affinity is null", "affinity: null", pod(lambda it: not it.get("affinity"))),
    ("node selector is null", "nodeSelector: null", pod(lambda it: not it.get("nodeSelector"))),
    ("resources are null", "resources: ~", container(lambda it: not it.get("resources"))),
    ("variables are null", "env:", container(lambda it: it["env"])),
    ("pull secrets are null", "imagePullSecrets:", pod(lambda it: not it.get("imagePullSecrets"))),
    ("volumes are null", "extraVolumes:\nextraVolumeMounts:", pod(lambda it: it["containers"])),
    ("annotations are null", "podAnnotations:\ncommonAnnotations:", pod(lambda it: it["containers"])),
    ("OpenShift chooses the user", "podSecurityContext: {runAsUser: null, runAsGroup: null, fsGroup: null}",
     pod(lambda it: not {"runAsUser", "fsGroup"} & it["securityContext"].keys())),
    # Where the pods run.
    ("any taint", "tolerations: [{operator: Exists}]", pod(lambda it: it["tolerations"] == [{"operator": "Exists"}])),
    ("a taint for a while", "tolerations: [{key: a, operator: Exists, effect: NoExecute, tolerationSeconds: 300}]",
     pod(lambda it: it["tolerations"][0]["tolerationSeconds"] == 300)),
    ("a taint by a number in quotes", 'tolerations: [{key: a, value: "1"}]',
     pod(lambda it: it["tolerations"][0]["value"] == "1")),
    ("a taint with a value of nothing", "tolerations: [{key: a, value: null}]", pod(lambda it: it["tolerations"])),
    ("a spread", f"topologySpreadConstraints: [{SPREAD}]".replace("'", ""),
     pod(lambda it: it["topologySpreadConstraints"][0]["labelSelector"])),
    ("an empty class", 'priorityClassName: ""', pod(lambda it: it["containers"])),
    ("ndots", 'dnsConfig: {options: [{name: ndots, value: "2"}]}', pod(lambda it: it["dnsConfig"]["options"])),
    ("hosts", "hostAliases: [{ip: 192.0.2.1, hostnames: [a]}]", pod(lambda it: it["hostAliases"])),
    # Containers.
    ("a secret in a variable", f"env: [{FROM_SECRET}]".replace("'", ""),
     container(lambda it: FROM_SECRET in it["env"])),
    ("whole cores", "resources: {limits: {cpu: 1}}", container(lambda it: it["resources"]["limits"]["cpu"] == 1)),
    ("half a core", "resources: {requests: {cpu: 0.5}}",
     container(lambda it: it["resources"]["requests"]["cpu"] == 0.5)),
    ("a limit in bytes", "resources: {limits: {memory: 1073741824}}",
     container(lambda it: it["resources"]["limits"]["memory"] == 1073741824)),
    ("a commit as a tag", "image: {tag: 12e4567}", container(lambda it: it["image"].endswith(":12e4567"))),
    ("a version in quotes", 'image: {tag: "1.10"}', container(lambda it: it["image"].endswith(":1.10"))),
    ("a digest", f"image: {{tag: v1, digest: 'sha256:{'a' * 64}'}}", container(lambda it: "@sha256:aa" in it["image"])),
    ("a registry with a port and a path", "image: {registry: 'reg.example.com:5000/mirror'}",
     container(lambda it: it["image"].startswith("reg.example.com:5000/mirror/tightship/"))),
    ("a repository with its registry", "image: {registry: '', repository: 'localhost:5000/x'}",
     container(lambda it: it["image"].startswith("localhost:5000/x:"))),
    ("everybody's registry", "global: {imageRegistry: mirror.example.com}",
     container(lambda it: it["image"].startswith("mirror.example.com/"))),
    # Names.
    ("a name of 63 characters", f"fullnameOverride: {'a' * 63}",
     lambda it: all(len(each["metadata"]["name"]) <= 63 for each in it.objects)),
    ("a short name of 63", f"nameOverride: {'n' * 63}",
     lambda it: len(it.one("Deployment")["metadata"]["labels"]["app.kubernetes.io/name"]) <= 63),
    # Accounts.
    ("an account of others", "serviceAccount: {create: false, name: theirs}",
     lambda it: it.pod["serviceAccountName"] == "theirs" and not it.of("ServiceAccount")),
    ("a role of AWS", "serviceAccount: {annotations: {eks.amazonaws.com/role-arn: 'arn:aws:iam::1:role/x'}}",
     lambda it: it.one("ServiceAccount")["metadata"]["annotations"]["eks.amazonaws.com/role-arn"]),
    ("no replica", "replicaCount: 0", lambda it: it.one("Deployment")["spec"]["replicas"] == 0),
    # Global values of charts beside this one.
    *((f"global {text}", f"global: {text}", pod(lambda it: it["containers"])) for text in (
        "{domain: example.com, hosts: {https: true}}",  # GitLab
        "{storageClass: '', security: {allowInsecureImages: true}, defaultStorageClass: x}",  # Bitnami
        "{postgresql: {auth: {password: x}}, redis: {password: x}}",
        "{image: {repository: x, tag: 1.5}, imagePullPolicy: Always}",
        "{environment: prod, env: prod, region: eu, team: 7}",
        "{leaderElection: {namespace: kube-system}, rbac: {create: true}}",  # cert-manager
        "{istio: {enabled: true}, proxy: {image: auto}, hub: x, tag: y, meshID: m}",
        "{monitoring: {enabled: true}, metrics: {enabled: true}, tracing: {}}",
        "{ingress: {enabled: true, class: nginx}, tls: {enabled: true}, certManager: {enabled: true}}",
        "{serviceAccount: {name: x, create: true}, fullnameOverride: x, nameOverride: y}",
        "{cattle: {systemDefaultRegistry: '', clusterId: c-1, rkePathPrefix: ''}}",  # Rancher's charts
        "{networkPolicy: {enabled: true, apiserverCIDR: x}, revisionHistoryLimit: 3}",
    )),
]  # fmt: skip


@pytest.mark.parametrize(("text", "check"), [row[1:] for row in RENDERED], ids=[row[0] for row in RENDERED])
def test_values_are_rendered_as_they_were_meant(render: Render, text: str, check: Callable[[Rendered], object]) -> None:
    assert check(render(CHART, yaml.safe_load(text)))


REFUSED: list[tuple[str, str]] = [
    # What the API server or the kubelet would refuse later: helm --set makes numbers and booleans of texts.
    ("tolerations: [{key: a, value: true}]", "/tolerations/0/value': got boolean, want"),
    ("tolerations: [{key: a, value: 1}]", "/tolerations/0/value': got number, want"),
    ("tolerations: [{key: 1, operator: Exists}]", "/tolerations/0/key': got number, want"),
    ("tolerations: [{key: a, effect: NoExecute, tolerationSeconds: '60'}]", "tolerationSeconds': got string, want"),
    ("global: {tolerations: [{key: a, value: yes}]}", "/global/tolerations/0/value': got boolean"),
    ("image: {repository: 'x/y:1'}", "/image/repository': 'x/y:1' does not match"),
    ("image: {repository: 'x/y@sha256:0'}", "/image/repository'"),
    ("image: {registry: 'https://reg.example.com'}", "/image/registry'"),
    ("image: {registry: 'reg.example.com/'}", "/image/registry'"),
    ("global: {imageRegistry: 'reg.example.com/'}", "/global/imageRegistry'"),
    ("image: {tag: 1.10}", "/image/tag': got number"),
    ("image: {tag: 1234567}", "/image/tag': got number"),
    ("image: {digest: sha256:abc}", "/image/digest'"),
    ("nodeSelector: {spot: true}", "/nodeSelector/spot': got boolean"),
    ("nodeSelector: {pool: 1}", "/nodeSelector/pool': got number"),
    ("podLabels: {version: 1}", "/podLabels/version': got number"),
    ("podAnnotations: {sidecar.istio.io/inject: false}", "inject': got boolean"),
    ("env: {A: b}", "/env': got object, want array"),
    ("extraEnv: [{name: A, value: b}]", "'extraEnv' not allowed"),
    ("autoscaling: {enabled: true}", "'autoscaling' not allowed"),
    ("replicaCount: '2'", "/replicaCount': got string"),
    ("dryRun: 'false'", "/dryRun': got string"),
    ("serviceAccount: {create: 'false'}", "/serviceAccount/create': got string"),
    ("fullnameOverride: Upper", "/fullnameOverride': 'Upper' does not match"),
    (f"fullnameOverride: {'a' * 64}", "/fullnameOverride'"),
    ("fullnameOverride: 7", "/fullnameOverride': got number"),
    ("config: 'limit: 1'", "/config': got string, want object"),
    ("config: {limt: 0.5}", "/config'.*'limt' not allowed"),
    ("serviceMonitor: {enabled: true, interval: 30}", "/serviceMonitor/interval': got number"),
    ("podDisruptionBudget: {enabled: true, minAvailable: 1}", "would block every drain"),
    ("terminationGracePeriodSeconds: '60'", "got string, want integer"),
]


@pytest.mark.parametrize(("text", "says"), REFUSED, ids=[row[0] for row in REFUSED])
def test_values_that_could_not_work_are_refused_by_their_name(render: Render, text: str, says: str) -> None:
    with pytest.raises(HelmError, match=says):
        render(CHART, yaml.safe_load(text))


@pytest.mark.parametrize("left", ["hpa-scaler", "node-refiner", "node-compactor"])
def test_a_part_that_is_switched_off_leaves_nothing(render: Render, left: str) -> None:
    rendered = render(UMBRELLA, {left: {"enabled": False}})
    assert len(rendered.of("Deployment")) == 2
    assert not [each for each in rendered.objects if each["metadata"]["name"].endswith(left)]
