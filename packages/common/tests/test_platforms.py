"""No pod goes to a node that its kubelet refuses, or where its images don't run, though kube-scheduler might."""

from __future__ import annotations

from typing import Any

import pytest
from cluster_builder import node, one, pod, snapshot
from test_plans import plan, reasons

from tightship.objects import Pod
from tightship.objects.reasons import Reason
from tightship.scheduler.fitting import why_nowhere
from tightship.scheduler.space import Space

OS, ARCH, BUILD = "kubernetes.io/os", "kubernetes.io/arch", "node.kubernetes.io/windows-build"
WINDOWS, LINUX = {OS: "windows"}, {OS: "linux"}
OLD = {"beta.kubernetes.io/arch": "amd64", ARCH: "amd64"}
AMD, ARM = {OS: "linux", ARCH: "amd64"}, {OS: "linux", ARCH: "arm64"}


def in_terms(key: str, *values: str) -> dict[str, Any]:
    terms = [{"matchExpressions": [{"key": key, "operator": "In", "values": list(values)}]}]
    return {
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    }


def tolerating(key: str) -> dict[str, Any]:
    return {"tolerations": [{"key": key, "operator": "Exists"}]}


# (labels of home, labels of the other node, what the pod on "home" says, whether the other node is a place)
ROWS: list[tuple[str, dict[str, str], dict[str, str], dict[str, Any], bool]] = [
    ("the pod says windows", WINDOWS, LINUX, {"os": {"name": "windows"}}, False),
    ("the pod says linux", LINUX, WINDOWS, {"os": {"name": "linux"}}, False),
    ("the pod's label says linux", WINDOWS, WINDOWS, {"labels": {"app": "web", OS: "linux"}}, False),
    ("a Linux pod says nothing", LINUX, WINDOWS, {}, False),
    ("a Windows pod says nothing", WINDOWS, LINUX, {}, False),
    ("older labels", {"beta.kubernetes.io/os": "linux"}, {"beta.kubernetes.io/os": "windows"}, {}, False),
    ("nodes spell it with a capital", {OS: "Linux"}, {OS: "linux"}, {}, True),
    ("a node does not say", LINUX, {}, {}, True),
    ("the home does not say", {}, LINUX, {}, True),
    ("an amd64 pod says nothing", AMD, ARM, {}, False),
    ("an arm64 pod says nothing", ARM, AMD, {}, False),
    ("affinity names both architectures", AMD, ARM, in_terms(ARCH, "amd64", "arm64"), True),
    ("affinity names the older label", OLD, {**OLD, ARCH: "arm64"}, in_terms("beta.kubernetes.io/arch", "amd64"), True),
    ("tolerates the taint of arm64 nodes", AMD, ARM, tolerating(ARCH), True),
    ("tolerates everything", AMD, ARM, {"tolerations": [{"operator": "Exists"}]}, False),
    ("the selector names only the system", AMD, ARM, {"nodeSelector": {OS: "linux"}}, False),
    ("another build of Windows", {**WINDOWS, BUILD: "10.0.17763"}, {**WINDOWS, BUILD: "10.0.20348"}, {}, False),
    ("the same build of Windows", {**WINDOWS, BUILD: "10.0.20348"}, {**WINDOWS, BUILD: "10.0.20348"}, {}, True),
]


@pytest.mark.parametrize(("home", "other", "says", "place"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
@pytest.mark.parametrize("bound", [True, False], ids=["here", "a replica to come"])
def test_a_pod_goes_only_where_its_images_run(
    home: dict[str, str], other: dict[str, str], says: dict[str, Any], *, place: bool, bound: bool
) -> None:
    first = pod("first", "home", **says)
    space = Space(snapshot([node("home", labels=home), node("other", labels=other), first]))
    thing = one(first if bound else pod("second", **says))
    assert isinstance(thing, Pod)
    ask = space.demand_of(thing)
    assert bool(space.feasible(ask)[1]) is place
    if not place:
        assert "of another" in why_nowhere(space, ask)[0]


def space_of(*pods: dict[str, Any]) -> tuple[Space, Pod]:
    space = Space(snapshot([node("amd", labels=AMD), node("arm", labels=ARM), node("win", labels=WINDOWS), *pods]))
    found = space.snapshot.unscheduled[0] if space.snapshot.unscheduled else space.snapshot.nodes["amd"].pods[0]
    return space, found


def places(space: Space, asked: Pod) -> set[str]:
    return {space.names[number] for number in space.feasible(space.demand_of(asked)).nonzero()[0]}


def test_a_workload_that_runs_on_both_architectures_may_go_to_both() -> None:
    assert places(*space_of(pod("p1", "amd"), pod("p2", "arm"))) == {"amd", "arm"}


def test_revisions_of_a_deployment_are_one_workload() -> None:
    of = {"labels": {"app": "web", "pod-template-hash": "1"}, "owner": "ReplicaSet/web-1"}
    new = {"labels": {"app": "web", "pod-template-hash": "2"}, "owner": "ReplicaSet/web-2"}
    assert places(*space_of(pod("p1", "amd", **of), pod("p2", "arm", **new))) == {"amd", "arm"}


def test_a_pod_that_is_not_ready_shows_nothing_while_others_are() -> None:
    assert places(*space_of(pod("p1", "amd"), pod("crashes", "arm", ready=False))) == {"amd"}


def test_a_pod_that_never_ran_is_taken_for_a_linux_pod_of_any_architecture() -> None:
    assert places(*space_of(pod("new", owner="ReplicaSet/new"))) == {"amd", "arm"}


CLUSTER = [
    node("lin-1", labels=LINUX),
    node("lin-2", labels=LINUX),
    node("win", labels=WINDOWS),
    pod("web", "lin-1", "1"),
    pod("busy", "lin-2", "2", owner="ReplicaSet/busy"),
]


def test_a_plan_does_not_trust_a_scheduler_that_would_choose_a_node_where_the_pod_cannot_run() -> None:
    likely = plan(CLUSTER, placement="likely", only=["lin-1"])
    assert reasons(likely, "lin-1") == {Reason.SCHEDULER_MAY_STRAND}
    [refusal] = likely.refusals["lin-1"]
    assert "operating system windows" in refusal.detail
    assert refusal.fix == "select kubernetes.io/os in replicaset/web"
    [removal] = plan(CLUSTER, placement="possible", only=["lin-1"]).removals
    assert [move.target for move in removal.moves] == ["lin-2"]


def test_a_taint_or_a_selector_makes_the_scheduler_choose_rightly() -> None:
    tainted = {"taints": [{"key": "os", "value": "windows", "effect": "NoSchedule"}]}
    behind = [*CLUSTER[:2], node("win", labels=WINDOWS, **tainted), *CLUSTER[3:]]
    selecting = [*CLUSTER[:3], pod("web", "lin-1", "1", nodeSelector=LINUX), CLUSTER[4]]
    for things in (behind, selecting):
        [removal] = plan(things, placement="likely", only=["lin-1"]).removals
        assert [move.target for move in removal.moves] == ["lin-2"]


def test_a_scheduler_that_chooses_rightly_is_trusted_beside_a_full_node_of_another_system() -> None:
    full = [*CLUSTER, pod("iis", "win", "4", owner="ReplicaSet/iis", os={"name": "windows"})]
    [removal] = plan(full, placement="likely", only=["lin-1"]).removals
    assert [move.target for move in removal.moves] == ["lin-2"]
