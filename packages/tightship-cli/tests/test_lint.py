"""``tightship lint``: what blocks drains and floors, in a cluster and in the manifests of a repository."""

from __future__ import annotations

import copy
import io
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import msgspec
import pytest
import yaml

from hpa_scaler.annotations.spec import FloorSpec, Rules
from hpa_scaler.judge.history import FloorHistory, State, encode_state
from tightship.cli.object_file import FileError
from tightship.rules.evictability import EvictionRules
from tightship_cli.cli import command
from tightship_cli.lint.manifests import read_manifests
from tightship_cli.lint.rules import LEVELS, RULES, lint
from tightship_testkit import commands
from tightship_testkit.commands import Outcome

Json = dict[str, Any]
Cli = Callable[..., Outcome]
CLUSTER = Path(__file__).resolve().parents[2] / "node-compactor" / "tests" / "data" / "cluster.yaml"
FLOORS = Path(__file__).resolve().parents[2] / "hpa-scaler" / "tests" / "data" / "shop.yaml"
NOW = "2026-03-01T04:00:00Z"
FLOOR = "tightship.dev/hpa-scaler"


@pytest.fixture
def cli(capfdbinary: pytest.CaptureFixture[bytes]) -> Cli:
    return lambda *given: commands.call("tightship", command, capfdbinary.readouterr, given)


def deployment(name: str = "web", replicas: int | None = 3, **spec: Any) -> Json:
    container = {"name": "main", "image": "x", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}
    template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container], **spec}}
    wanted = {} if replicas is None else {"replicas": replicas}
    return made("apps/v1", "Deployment", name, {**wanted, "template": template})


def made(version: str, kind: str, name: str, spec: Json, **annotations: str) -> Json:
    notes = {"annotations": annotations} if annotations else {}
    return {
        "apiVersion": version,
        "kind": kind,
        "metadata": {"name": name, "namespace": "shop", **notes},
        "spec": spec,
    }


def budget(name: str = "web", app: str = "web", version: str = "policy/v1", **rule: Any) -> Json:
    rule = {"unhealthyPodEvictionPolicy": "AlwaysAllow", **rule, "selector": {"matchLabels": {"app": app}}}
    return made(version, "PodDisruptionBudget", name, {key: each for key, each in rule.items() if each is not None})


def limit_range(**defaults: Any) -> Json:
    return made("v1", "LimitRange", "defaults", {"limits": [{"type": "Container", **defaults}]})


def hpa(name: str = "web", target: str = "web", **more: Any) -> Json:
    utilization = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 60}}
    spec = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": target},
        "minReplicas": more.get("low", 3),
        "maxReplicas": more.get("high", 9),
        "metrics": [more.get("metric") or {"type": "Resource", "resource": utilization}],
    }
    notes: dict[str, str] = {key: text for key, text in more.items() if "/" in key}
    return made("autoscaling/v2", "HorizontalPodAutoscaler", name, {**spec, **more.get("spec", {})}, **notes)


def noted(workload: Json, **notes: str) -> Json:
    there = copy.deepcopy(workload)
    there["spec"]["template"]["metadata"]["annotations"] = notes
    return there


def floor(**more: str) -> Json:
    return {FLOOR: "true", **{f"{FLOOR}-{key.replace('_', '-')}": text for key, text in more.items()}}


def remembered(**history: Any) -> Json:
    return {f"{FLOOR}-state": encode_state(State(history=FloorHistory(**history)), FloorSpec(), 0.0)}


LIMITED = {"name": "main", "image": "x", "resources": {"limits": {"cpu": "1"}}}
UNREQUESTED = {"name": "side", "image": "x"}
POD = made("v1", "Pod", "bare", {"containers": [LIMITED]})
MEMORY = {"type": "Resource", "resource": {"name": "memory", "target": {"type": "AverageValue", "averageValue": "1Gi"}}}
ONE = {"name": "cpu", "container": "main", "target": {"type": "Utilization", "averageUtilization": 60}}
AT = 1772337600  # NOW

CASES: dict[str, tuple[list[Json], dict[str, str]]] = {
    "nothing": ([deployment(replicas=None), budget(maxUnavailable=1), hpa()], {}),
    # Budgets: Popeye POP-206 and -209, kube-linter pdb-max-unavailable and pdb-min-available, Gatekeeper's.
    "max-unavailable 0": ([deployment(), budget(maxUnavailable=0)], {"PdbNeverAllows": "error"}),
    "max-unavailable 0 %": ([deployment(), budget(maxUnavailable="0%")], {"PdbNeverAllows": "error"}),
    "min-available 100 %": ([deployment(), budget(minAvailable="100%")], {"PdbNeverAllows": "error"}),
    "min-available as many as replicas": ([deployment(), budget(minAvailable=3)], {"PdbNeverAllows": "error"}),
    "one replica, neither field": ([deployment(replicas=1), budget()], {"PdbNeverAllows": "error"}),
    "rounded up": ([deployment(replicas=2), budget(minAvailable="51%")], {"PdbNeverAllows": "error"}),
    "one spare": ([deployment(replicas=4), budget(minAvailable=3)], {}),
    # kube-linter#637: the HPA's bounds count, not the replicas of the manifest.
    "an hpa goes above": ([deployment(replicas=None), budget(minAvailable=2), hpa()], {}),
    # Polaris pdbMinAvailableGreaterThanHPAMinReplicas.
    "at the floor": ([deployment(replicas=None), budget(minAvailable=3), hpa()], {"PdbBlocksAtFloor": "warning"}),
    "at the floor, percent": (
        [deployment(replicas=None), budget(minAvailable="80%"), hpa()],
        {"PdbBlocksAtFloor": "warning"},
    ),
    "two budgets": ([deployment(), budget(maxUnavailable=1), budget("b", maxUnavailable=1)], {"MultiplePdbs": "error"}),
    "two budgets, one that never allows": (
        [deployment(), budget(maxUnavailable=1), budget("b", maxUnavailable=0)],
        {"MultiplePdbs": "error", "PdbNeverAllows": "error"},
    ),
    "selects nothing": ([deployment(), budget(app="else", maxUnavailable=1)], {"PdbSelectsNothing": "note"}),
    # kube-prometheus: the operator makes the pods of a custom resource beside the budget.
    "selects pods that an operator makes": (
        [made("monitoring.coreos.com/v1", "Prometheus", "k8s", {}), budget(app="else", maxUnavailable=1)],
        {},
    ),
    # kube-linter pdb-unhealthy-pod-eviction-policy: a word on it is enough.
    "no word on pods that are not Ready": (
        [deployment(), budget(maxUnavailable=1, unhealthyPodEvictionPolicy=None)],
        {"PdbKeepsUnhealthy": "note"},
    ),
    "IfHealthyBudget": ([deployment(), budget(maxUnavailable=1, unhealthyPodEvictionPolicy="IfHealthyBudget")], {}),
    # kube-linter's pdb-max-unavailable.yaml: the pods are elsewhere, and the budget allows none of them.
    "never, of pods that are elsewhere": (
        [budget(maxUnavailable=0)],
        {"PdbSelectsNothing": "note", "PdbNeverAllows": "error"},
    ),
    # kube-linter's pdb-min-available.yaml: a template without containers is the HPA's target all the same.
    "a template without a spec": (
        [
            made("apps/v1", "Deployment", "web", {"template": {"metadata": {"labels": {"app": "web"}}}}),
            budget(minAvailable=1),
            hpa(),
        ],
        {},
    ),
    "no replicas to count by": (
        [
            made("batch/v1", "Job", "web", deployment()["spec"]),
            budget(maxUnavailable=1),
        ],
        {"PdbSyncFailed": "error"},
    ),
    "a number counts without replicas": (
        [made("batch/v1", "Job", "web", deployment()["spec"]), budget(minAvailable=0)],
        {},
    ),
    # kubent and pluto: versions that are gone.
    "removed version": ([deployment(), budget(version="policy/v1beta1", maxUnavailable=1)], {"RemovedApi": "error"}),
    # Pods.
    "bare pod": ([POD], {"NotReplicated": "error"}),
    "a hook's pod": ([{**POD, "metadata": {**POD["metadata"], "annotations": {"helm.sh/hook": "test"}}}], {}),
    "local data": ([deployment(volumes=[{"name": "tmp", "emptyDir": {}}])], {"LocalStorage": "error"}),
    "local data in memory": ([deployment(volumes=[{"name": "tmp", "emptyDir": {"medium": "Memory"}}])], {}),
    "local data, said safe": (
        [
            noted(
                deployment(volumes=[{"name": "tmp", "hostPath": {"path": "/x"}}]),
                **{"cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes": "tmp"},
            )
        ],
        {},
    ),
    "opted out": (
        [noted(deployment(), **{"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"})],
        {"NotSafeToEvict": "note"},
    ),
    "a node by name": ([deployment(nodeName="node-1")], {"ReturnsToNode": "error"}),
    "tolerates all": ([deployment(tolerations=[{"operator": "Exists"}])], {"ToleratesCordon": "error"}),
    "another scheduler": ([deployment(schedulerName="mine")], {"OtherScheduler": "warning"}),
    "long grace": ([deployment(terminationGracePeriodSeconds=86400)], {"GracePeriodTooLong": "warning"}),
    "a cron job with local data": (
        [
            made(
                "batch/v1",
                "CronJob",
                "web",
                {"jobTemplate": {"spec": deployment(volumes=[{"name": "tmp", "emptyDir": {}}])["spec"]}},
            )
        ],
        {"LocalStorage": "error"},
    ),
    "a daemon set goes with its node": (
        [made("apps/v1", "DaemonSet", "web", deployment(volumes=[{"name": "tmp", "emptyDir": {}}])["spec"])],
        {},
    ),
    "unreadable": ([deployment(), budget(maxUnavailable=[1])], {"Unreadable": "error"}),
    # HPAs: kube-score horizontalpodautoscaler-has-target and -replicas, kube-linter dangling-horizontalpodautoscaler.
    "no target": ([hpa()], {"HpaTargetMissing": "error"}),
    "two hpas": ([deployment(replicas=None), hpa(), hpa("b")], {"HpaTargetShared": "error"}),
    "fixed": ([deployment(replicas=None), hpa(low=3, high=3)], {"HpaFixed": "warning"}),
    "reversed": ([deployment(replicas=None), hpa(low=4, high=3)], {"HpaBoundsReversed": "error"}),
    "never up": (
        [deployment(replicas=None), hpa(spec={"behavior": {"scaleUp": {"selectPolicy": "Disabled"}}})],
        {"HpaFixed": "warning"},
    ),
    "replicas beside it": ([deployment(), hpa()], {"ReplicasBesideHpa": "warning"}),
    "no request": (
        [deployment(replicas=None, containers=[LIMITED, UNREQUESTED]), hpa()],
        {"HpaMissingRequests": "error"},
    ),
    "limits are requests": ([deployment(replicas=None, containers=[LIMITED]), hpa()], {}),
    # SetDefaults_LimitRangeItem: what a container doesn't ask is the default request, limit, maximum or minimum.
    **{
        f"requests by {field} of a LimitRange": (
            [deployment(replicas=None, containers=[UNREQUESTED]), limit_range(**{field: {"cpu": "1"}}), hpa()],
            {},
        )
        for field in ("defaultRequest", "default", "max", "min")
    },
    "a LimitRange of pods makes no requests": (
        [
            deployment(replicas=None, containers=[UNREQUESTED]),
            limit_range(type="Pod", max={"cpu": "1"}),
            hpa(),
        ],
        {"HpaMissingRequests": "error"},
    ),
    "a LimitRange of memory": (
        [deployment(replicas=None, containers=[UNREQUESTED]), limit_range(default={"memory": "1Gi"}), hpa()],
        {"HpaMissingRequests": "error"},
    ),
    "a sidecar without": (
        [deployment(replicas=None, initContainers=[{**UNREQUESTED, "restartPolicy": "Always"}]), hpa()],
        {"HpaMissingRequests": "error"},
    ),
    "an init container without": ([deployment(replicas=None, initContainers=[UNREQUESTED]), hpa()], {}),
    "of one container": (
        [
            deployment(replicas=None, containers=[LIMITED, UNREQUESTED]),
            hpa(metric={"type": "ContainerResource", "containerResource": ONE}),
        ],
        {},
    ),
    "of the pod": (
        [deployment(replicas=None, containers=[UNREQUESTED], resources={"requests": {"cpu": "1"}}), hpa()],
        {},
    ),
    "no utilization": ([deployment(replicas=None, containers=[UNREQUESTED]), hpa(metric=MEMORY)], {}),
    # Floors.
    "floor above": ([deployment(replicas=None), hpa(**floor(minimum_replicas="12"))], {"FloorAboveMaximum": "warning"}),
    "floor never reached": (
        [deployment(replicas=None), hpa(**floor(minimum_replicas="12", max_replicas_policy="clamp"))],
        {"FloorAboveMaximum": "error"},
    ),
    "lower bound above": ([deployment(replicas=None), hpa(low=1, high=2, **floor())], {"FloorAboveMaximum": "warning"}),
    "bad annotation": ([deployment(replicas=None), hpa(**floor(minimum_replicas="x"))], {"InvalidAnnotation": "error"}),
    "bad state": (
        [deployment(replicas=None), hpa(**floor(), **{f"{FLOOR}-state": "x"})],
        {"StateUnreadable": "warning"},
    ),
    "old pause": (
        [deployment(replicas=None), hpa(**floor(paused="2020-01-01T00:00:00Z"))],
        {"PauseExpired": "note"},
    ),
    "contest": (
        [deployment(replicas=None), hpa(**floor(), **remembered(resets=3, reset_at=AT - 60, ousted=(5, 9)))],
        {"Contested": "warning"},
    ),
    "contest that is over": (
        [deployment(replicas=None), hpa(**floor(), **remembered(resets=3, reset_at=AT - 90_000, ousted=(5, 9)))],
        {"ContestExpired": "warning"},
    ),
}


def write(folder: Path, *objects: Json) -> Path:
    path = folder / "manifests.yaml"
    path.write_text(yaml.safe_dump_all(copy.deepcopy(list(objects)), sort_keys=False))
    return path


@pytest.mark.parametrize("case", CASES)
def test_manifests_show_what_will_block(case: str, cli: Cli, tmp_path: Path) -> None:
    objects, expected = CASES[case]
    outcome = cli("lint", "-f", write(tmp_path, *objects), "-o", "json", "--now", NOW)
    report = msgspec.json.decode(outcome.out)
    assert {each["rule"]: each["level"] for each in report["findings"]} == expected, report["findings"]
    assert outcome.code == (2 if {"error", "warning"} & set(expected.values()) else 0)
    for each in report["findings"]:
        assert each["file"].endswith("manifests.yaml")
        assert each["line"] >= 1
        assert "kubectl" not in each["fix"]


WEB = yaml.safe_dump(deployment(replicas=2), sort_keys=False)
NEVER = yaml.safe_dump(budget(minAvailable=2), sort_keys=False)
BARE = '{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "NAME"}, "spec": {"containers": [{"name": "a"}]}}'
JOB = """apiVersion: batch/v1
kind: Job
metadata: {generateName: job-}
spec:
  template:
    spec: {containers: [{name: a}], WHAT}
"""
UNREADABLE = {"Unreadable"}

# Files as users of kubeconform, kube-linter, kube-score and pluto report them: what they hold is judged, and how the
# file is written changes nothing.
WRITTEN: dict[str, tuple[str, set[str]]] = {
    "as it is": (f"{WEB}---\n{NEVER}", {"PdbNeverAllows"}),
    "lines of Windows": (f"{WEB}---\n{NEVER}".replace("\n", "\r\n"), {"PdbNeverAllows"}),
    "a byte order mark": (f"\ufeff{WEB}---\n{NEVER}", {"PdbNeverAllows"}),
    "empty documents": (f"---\n---\n# nothing\n---\n{WEB}---\n\n---\n{NEVER}---\n", {"PdbNeverAllows"}),
    "ends of documents": (f"{WEB}...\n---\n{NEVER}...\n", {"PdbNeverAllows"}),
    "anchors and merges": (
        WEB.replace("app: web", "app: &app web") + f"---\n{NEVER}".replace("app: web", "app: web # as there"),
        {"PdbNeverAllows"},
    ),
    "a long comment": (f"{WEB}#{'x' * 100_000}\n---\n{NEVER}", {"PdbNeverAllows"}),
    "an unquoted time": (
        WEB.replace("  name: web\n", "  name: web\n  creationTimestamp: 2020-01-01T00:00:00Z\n", 1),
        set(),
    ),
    "annotations that are null": (
        WEB.replace("  name: web\n", "  name: web\n  annotations:\n", 1) + f"---\n{NEVER}",
        {"PdbNeverAllows"},
    ),
    "JSON": (BARE, {"NotReplicated"}),
    "a stream of JSON": (BARE + "\n" + BARE.replace("NAME", "b"), {"NotReplicated"}),
    "a list without kinds": (
        "apiVersion: v1\nkind: PodList\nitems: [{metadata: {name: a}, spec: {containers: [{name: a}]}}]\n",
        {"NotReplicated"},
    ),
    "two names that are generated": (
        JOB.replace("WHAT", "nodeName: a") + "---\n" + JOB.replace("WHAT", "tolerations: [{operator: Exists}]"),
        {"ReturnsToNode", "ToleratesCordon"},
    ),
    "a number as name": (BARE.replace('"NAME"', "123"), {"NotReplicated"}),
    # What the API server refuses.
    "a key twice": (WEB.replace("  replicas: 2\n", "  replicas: 2\n  replicas: 5\n"), UNREADABLE),
    "a key twice, deep": (WEB.replace("image: x", "image: x\n        image: y"), UNREADABLE),
    "replicas as text": (WEB.replace("replicas: 2", "replicas: '2'"), UNREADABLE),
    "replicas beyond 32 bits": (WEB.replace("replicas: 2", "replicas: 99999999999999999999"), UNREADABLE),
    "fewer replicas than none": (WEB.replace("replicas: 2", "replicas: -1"), UNREADABLE),
    "a fraction of a replica": (WEB.replace("replicas: 2", "replicas: 1.5"), UNREADABLE),
    "replicas that are null": (WEB.replace("replicas: 2", "replicas: null"), set()),
    "a number in quotes": (NEVER.replace("minAvailable: 2", "minAvailable: '2'"), UNREADABLE),
    "a fraction of a percent": (NEVER.replace("minAvailable: 2", "minAvailable: 50.5%"), UNREADABLE),
    "more than all": (NEVER.replace("minAvailable: 2", "minAvailable: 150%"), UNREADABLE),
    "fewer than none": (NEVER.replace("minAvailable: 2", "minAvailable: -1"), UNREADABLE),
    "more than 32 bits": (NEVER.replace("minAvailable: 2", "minAvailable: 2147483648"), UNREADABLE),
    "both limits": (NEVER.replace("minAvailable: 2", "minAvailable: 2\n  maxUnavailable: 1"), UNREADABLE),
    "a specification that is text": (f"{WEB}---\n{NEVER.partition('spec:')[0]}spec: x\n", UNREADABLE),
    "a specification that is a list": (WEB.partition("spec:")[0] + "spec: []\n", UNREADABLE),
    "containers that are text": (WEB.replace("- name: main", "- main").partition("        image:")[0], UNREADABLE),
    "no replica at most": (yaml.safe_dump(hpa(high=0, low=0)), {"Unreadable", "HpaTargetMissing", "HpaFixed"}),
    # Other tools fill these in.
    "a variable of envsubst": (WEB.replace("replicas: 2", "replicas: ${REPLICAS}"), set()),
    "a template in quotes": (WEB.replace("replicas: 2", "replicas: '{{ .Values.replicas }}'"), set()),
    # What only mentions a node is no cluster.
    "a node in a text": (
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n  node: |\n    kind: Node\n",
        set(),
    ),
    "a kind that is defined": (
        "apiVersion: x/v1\nkind: CustomResourceDefinition\nmetadata: {name: a}\nspec:\n  names:\n    kind: Node\n",
        set(),
    ),
    "an Event of a node": (
        "apiVersion: v1\nkind: Event\nmetadata: {name: a}\ninvolvedObject:\n  kind: Node\n  name: n\n",
        set(),
    ),
    "a pool of Karpenter": ("apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {name: a}\nspec: {}\n", set()),
}


@pytest.mark.parametrize("case", WRITTEN)
def test_files_are_judged_however_they_are_written(case: str, cli: Cli, tmp_path: Path) -> None:
    text, expected = WRITTEN[case]
    path = tmp_path / "given.yaml"
    path.write_bytes(text.encode())
    outcome = cli("lint", "-f", path, "-o", "json", "--now", NOW)
    assert not outcome.err
    found = {each["rule"] for each in msgspec.json.decode(outcome.out)["findings"]}
    assert found - {"PdbSelectsNothing"} == expected


def places(value: object, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    yield path
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in pairs:
        yield from places(each, (*path, key))


@pytest.mark.takes(5)
def test_no_manifest_ends_the_command_whatever_stands_where() -> None:
    pod = {"initContainers": [LIMITED], "tolerations": [{"operator": "Exists"}], "volumes": [{"name": "a"}]}
    given = [
        noted(deployment(**pod), a="b"),
        budget(minAvailable=2),
        hpa(spec={"behavior": {"scaleUp": {"selectPolicy": "Max"}}}, **floor()),
        limit_range(default={"cpu": "1"}),
        made("batch/v1", "CronJob", "job", {"jobTemplate": {"spec": deployment()["spec"]}}),
    ]
    rules = (EvictionRules(), Rules())
    for path in filter(None, places(given)):
        for value in ("x", 3, None, [1], {"a": 1}):
            changed = copy.deepcopy(given)
            there: Any = changed
            for step in path[:-1]:
                there = there[step]
            there[path[-1]] = value
            with suppress(FileError):
                found = read_manifests([(msgspec.json.encode({"kind": "List", "items": changed}), "a", False)])
                found.located([*found.findings, *lint(found.snapshot, *rules, AT)])


def test_each_rule_has_a_case_or_needs_a_cluster() -> None:
    told = {rule for _, expected in CASES.values() for rule in expected}
    of_pods = {"PodDoNotDrain", "SafeToEvictOnCompletion", "PodDoNotDisrupt", "PreferNoEviction", "GangWouldBreak"}
    assert RULES.keys() - told == of_pods | {"CustomController", "HpaInactive", "ControlledByOther", "ScaleToZero"}
    assert {each.level for each in RULES.values()} == set(LEVELS)


def test_a_finding_has_the_line_of_the_field(cli: Cli, tmp_path: Path) -> None:
    folder = tmp_path / "deploy" / "web"
    folder.mkdir(parents=True)
    (folder / "all.yml").write_text(
        "# two documents, the second a list\n"
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec:\n  replicas: 2\n"
        "  template:\n    metadata: {labels: {app: web}}\n    spec:\n      containers: [{name: a}]\n"
        "---\napiVersion: v1\nkind: List\nitems:\n- apiVersion: policy/v1\n  kind: PodDisruptionBudget\n"
        "  metadata: {name: web}\n  spec:\n    selector: {matchLabels: {app: web}}\n    minAvailable: 2\n"
    )
    found = msgspec.json.decode(cli("lint", "-f", tmp_path / "deploy", "-o", "json").out)["findings"]
    assert [(each["rule"], each["file"], each["line"]) for each in found] == [
        ("PdbNeverAllows", str(folder / "all.yml"), 20),
        ("PdbKeepsUnhealthy", str(folder / "all.yml"), 18),
    ]


def test_advice_names_the_workload_that_is_written(cli: Cli, tmp_path: Path) -> None:
    for kind in ("apps/v1", "Deployment"), ("argoproj.io/v1alpha1", "Rollout"):
        version, name = kind
        workload = {**deployment(replicas=1), "apiVersion": version, "kind": name}
        path = write(tmp_path, workload, budget(minAvailable=1))
        found = msgspec.json.decode(cli("lint", "-f", path, "-o", "json").out)
        assert f"raise the replicas of {name}" in found["findings"][0]["fix"]
        assert "ReplicaSet" not in str(found["findings"])


def test_a_cluster_is_judged_by_the_rules_of_its_plan(cli: Cli) -> None:
    found = msgspec.json.decode(cli("lint", "-f", CLUSTER, "-o", "json").out)["findings"]
    plan = msgspec.json.decode(cli("plan", "-f", CLUSTER, "--advice-time", "0", "-o", "json").out)
    refused = {reason for node in plan["nodes"] for reason in node["reasons"]}
    linted = {each["rule"] for each in found}
    assert linted
    assert refused & RULES.keys() <= linted
    assert all("file" not in each for each in found)


def test_hpas_of_a_cluster_tell_what_kubernetes_says_of_them(cli: Cli, tmp_path: Path) -> None:
    stopped = hpa()
    stopped["status"] = {
        "conditions": [{"type": "ScalingActive", "status": "False", "reason": "FailedGetResourceMetric"}]
    }
    owned = hpa("b", "b", **floor())
    owned["metadata"]["ownerReferences"] = [
        {"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "name": "b", "uid": "u", "controller": True}
    ]
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}
    found = msgspec.json.decode(cli("lint", "-f", write(tmp_path, node, stopped, owned), "-o", "json").out)["findings"]
    assert {(each["rule"], each["name"]) for each in found} == {("HpaInactive", "web"), ("ControlledByOther", "b")}


@pytest.mark.parametrize(("level", "code"), [("note", 2), ("warning", 2), ("error", 0), ("never", 0)])
def test_the_level_that_fails_is_chosen(level: str, code: int, cli: Cli, tmp_path: Path) -> None:
    path = write(tmp_path, deployment(), hpa(), budget(app="else", maxUnavailable=1))
    assert cli("lint", "-f", path, "--fail-on", level).code == code


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("replicaCount: 3\n", ":1: not Kubernetes'; allowed are manifests of Kubernetes"),
        ("- a\n", ":1: not Kubernetes'; allowed are manifests"),
        ("kind: Deployment\nmetadata: {}\n", ":1: not Kubernetes'; allowed are manifests"),
        ("a: [\n", "not YAML: "),
        ("{{- if .Values.x }}\nkind: Pod\n{{- end }}\n", "a template of Helm: give what `helm template` prints"),
        ("", "is empty"),
        ("# only a comment\n", "holds no manifest; allowed are manifests"),
    ],
)
def test_what_is_not_kubernetes_is_one_line(content: str, complaint: str, cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(content)
    outcome = cli("lint", "-f", path)
    assert (outcome.code, outcome.out) == (1, "")
    assert len(outcome.err.splitlines()) == 1
    assert f"{path}" in outcome.err
    assert complaint in outcome.err


def test_a_folder_is_read_although_not_all_of_it_is_kubernetes(cli: Cli, tmp_path: Path) -> None:
    write(tmp_path, POD)
    (tmp_path / "values.yaml").write_text("replicaCount: 3\n")
    (tmp_path / "package.json").write_text('{"name": "web"}')
    (tmp_path / "templates").mkdir()
    (tmp_path / "templates" / "web.yaml").write_text("{{- if .Values.x }}\nkind: Pod\n")
    (tmp_path / "templates" / "api.yaml").write_text("kind: Pod\nmetadata:\n  name: {{.Values.name}}\n")
    (tmp_path / "templates" / "bare.yaml").write_text(
        yaml.safe_dump({**POD, "metadata": {"name": "x"}}).replace("name: x", "name: web-{{.Release.Name}}")
    )
    (tmp_path / "kustomization.yaml").write_text("resources: [manifests.yaml]\n")
    (tmp_path / "empty.yaml").write_text("# nothing yet\n---\n")
    (tmp_path / "list.yaml").write_text("apiVersion: v1\nkind: List\nitems:\n")
    (tmp_path / "rules.yaml").write_text(
        yaml.safe_dump(made("v1", "ConfigMap", "rules", {}) | {"data": {"x": "{{ $labels.pod }} is down"}})
    )
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "x.yaml").write_text("a: [")
    (tmp_path / "nowhere.json").symlink_to("away.json")
    outcome = cli("lint", "-f", tmp_path)
    assert outcome.code == 2
    assert "Pod shop/bare" in outcome.out
    lines = outcome.err.splitlines()
    assert len(lines) == 2
    assert "values.yaml:1: not Kubernetes'" in outcome.err
    assert "templates/api.yaml and 2 more: a template of Helm" in outcome.err


def test_a_definition_of_another_kind_called_node_is_no_cluster(cli: Cli, tmp_path: Path) -> None:
    """Longhorn has such a kind."""
    names = {"names": {"kind": "Node", "listKind": "NodeList"}}
    definition = made("apiextensions.k8s.io/v1", "CustomResourceDefinition", "nodes.longhorn.io", names)
    outcome = cli("lint", "-f", write(tmp_path, definition, POD))
    assert "Pod shop/bare" in outcome.out, outcome.err


def test_a_dump_whose_nodes_are_in_a_typed_list_is_a_cluster(cli: Cli, tmp_path: Path) -> None:
    """``kubectl cluster-info dump`` writes lists whose items have no kind."""
    status = {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"}}
    for kind, items in {"Node": [{"metadata": {"name": "n1"}, "status": status}], "Pod": [POD]}.items():
        listed = {"apiVersion": "v1", "kind": f"{kind}List", "items": items}
        (tmp_path / f"{kind.lower()}s.json").write_bytes(msgspec.json.encode(listed))
    outcome = cli("lint", "-f", tmp_path)
    assert "annotate pod bare" in outcome.out, "an object of a cluster is changed by kubectl, a manifest is edited"


def test_standard_input_is_manifests_or_a_cluster(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    for content, told in ((yaml.safe_dump(POD).encode(), "Pod shop/bare"), (CLUSTER.read_bytes(), "shop/cache")):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
        assert told in cli("lint", "-f", "-").out


def test_an_object_that_is_there_twice_is_told(cli: Cli, tmp_path: Path) -> None:
    patch = made("apps/v1", "Deployment", "web", {"replicas": 9})
    outcome = cli(
        "lint", "-f", write(tmp_path, deployment(), patch, budget(maxUnavailable=1), budget(maxUnavailable=0))
    )
    assert outcome.code == 0
    assert "PodDisruptionBudget web is in " in outcome.err
    assert len(outcome.err.splitlines()) == 1


SARIF = {
    "type": "object",
    "required": ["version", "runs", "$schema"],
    "properties": {
        "version": {"const": "2.1.0"},
        "runs": {
            "items": {
                "required": ["tool", "results"],
                "properties": {
                    "tool": {"required": ["driver"], "properties": {"driver": {"required": ["name", "rules"]}}},
                    "columnKind": {"enum": ["utf16CodeUnits", "unicodeCodePoints"]},
                    "results": {
                        "items": {
                            "required": ["ruleId", "message", "locations"],
                            "properties": {
                                "ruleIndex": {"type": "integer", "minimum": 0},
                                "level": {"enum": ["none", "note", "warning", "error"]},
                                "message": {"required": ["text"]},
                                "locations": {"items": {"$ref": "#/$defs/location"}},
                                "partialFingerprints": {"additionalProperties": {"type": "string"}},
                            },
                        }
                    },
                },
            }
        },
    },
    "$defs": {
        "location": {
            "additionalProperties": False,
            "properties": {
                "logicalLocations": {"items": {"properties": {"fullyQualifiedName": {"type": "string"}}}},
                "physicalLocation": {
                    "required": ["artifactLocation"],
                    "properties": {
                        "artifactLocation": {"properties": {"uri": {"type": "string", "pattern": "^[^ ]+$"}}},
                        "region": {"properties": {"startLine": {"type": "integer", "minimum": 1}}},
                    },
                },
            },
        }
    },
}
"""What sarif-schema-2.1.0.json of oasis-tcs/sarif-spec asks of the parts that we write."""


@pytest.mark.parametrize("source", ["manifests", "cluster"])
def test_sarif_is_what_code_scanning_takes(source: str, cli: Cli, tmp_path: Path) -> None:
    everything = [each for objects, _ in CASES.values() for each in objects if each["kind"] != "Deployment"]
    path = CLUSTER if source == "cluster" else write(tmp_path, *everything)
    log = msgspec.json.decode(cli("lint", "-f", path, "-o", "sarif").out)
    jsonschema.validate(log, SARIF)
    (run,) = log["runs"]
    rules = [each["id"] for each in run["tool"]["driver"]["rules"]]
    assert run["results"]
    assert len(rules) == len(set(rules))
    for each in run["results"]:
        assert rules[each["ruleIndex"]] == each["ruleId"]
        assert ("physicalLocation" in each["locations"][0]) is (source == "manifests")


def test_junit_has_a_failure_for_what_fails(cli: Cli, tmp_path: Path) -> None:
    path = write(tmp_path, POD, deployment(), hpa("a<&>"), budget(app="else", maxUnavailable=1))
    root = ET.fromstring(cli("lint", "-f", path, "-o", "junit", "--now", NOW).out)
    (suite,) = root
    assert root.tag == "testsuites"
    assert [each.tag for each in suite if each.tag != "testcase"] == ["properties", "system-out", "system-err"]
    failures = {str(each.get("classname")) for each in suite.iter("testcase") if each.find("failure") is not None}
    assert failures == {"tightship.lint.NotReplicated", "tightship.lint.ReplicasBesideHpa"}
    assert suite.attrib == suite.attrib | {"tests": "3", "failures": "2", "errors": "0", "timestamp": NOW[:-1]}
    clean = ET.fromstring(cli("lint", "-f", write(tmp_path, deployment()), "-o", "junit").out)
    assert [(each.get("name"), len(each)) for each in clean.iter("testcase")] == [("nothing found", 0)]


def test_a_cluster_without_hpas_is_linted_too(cli: Cli) -> None:
    assert "HpaTargetMissing" not in cli("lint", "-f", CLUSTER).out
    assert cli("lint", "-f", FLOORS).code in (0, 2)


@pytest.mark.parametrize("flags", [("--fail-on", "bad"), ("-o", "xml"), ("--now", "x")])
def test_a_wrong_flag_is_one_line(flags: tuple[str, str], cli: Cli) -> None:
    outcome = cli("lint", *flags)
    assert outcome.code == 64
    assert len(outcome.err.splitlines()) == 1
