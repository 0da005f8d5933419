"""Which Deployments a drain restarts instead of evicting their pods, which never, and what the drain does meanwhile."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tightship.drain.assessment import Assessment
from tightship.drain.machine import DrainRules, Evict, Restart, Step, Wait, Write, advance
from tightship.objects import Deployment, decode
from tightship.objects.drain_record import DrainRecord, Phase, encode_record
from tightship.objects.pod import DRAINING
from tightship.objects.projection import projected
from tightship.objects.reasons import Reason
from tightship.objects.workloads import MAKE_BEFORE_BREAK, RESTARTED_AT
from tightship.planning.facts import FactRules, gather
from tightship.rules.after_cordon import with_restarts
from tightship.rules.evictability import EvictionRules, RestartMode
from tightship_testkit.builders import NOW, budget, controller, decoded, node, pod, snapshot, workload

Json = dict[str, Any]

NEVER = {"disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1}
RECREATE = {"strategy": {"type": "Recreate"}}
MARKED = {"metadata": {"annotations": {MAKE_BEFORE_BREAK: "true"}}}
TRUE = {"metadata": {"labels": {MAKE_BEFORE_BREAK: "true"}}}


def rolling(surge: int | str | None = 1, unavailable: int | str | None = 0) -> Json:
    return {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}}}


def deployment(name: str = "web", *, replicas: int = 1, status: Json | None = None, **spec: Any) -> Json:
    """Return a Deployment whose rollout has ended."""
    counts = dict.fromkeys(("replicas", "updatedReplicas", "readyReplicas", "availableReplicas"), replicas)
    return {
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "shop", "uid": f"uid-deploy-{name}", "generation": 3},
        "spec": {"replicas": replicas, **spec},
        "status": {"observedGeneration": 3, **counts, **(status or {})},
    }


def progressing(reason: str) -> Json:
    return {"conditions": [{"type": "Progressing", "status": "False", "reason": reason}]}


def replica_set(
    name: str = "web", *, of: Json | None = None, mark: str | None = None, kind: str = "ReplicaSet"
) -> Json:
    """Return the ReplicaSet of pods, which has the annotations of what is above it."""
    above = of or {"apiVersion": "apps/v1", "kind": "Deployment", "name": name, "uid": f"uid-deploy-{name}"}
    meta = {"name": name, "namespace": "shop", "uid": f"uid-{name}", "ownerReferences": [{**above, "controller": True}]}
    if mark is not None:
        meta["annotations"] = {MAKE_BEFORE_BREAK: mark}
    return {"kind": "ReplicaSet", "metadata": meta, "spec": {"replicas": 1}}


def full(on: str) -> Json:
    return pod(f"full-{on}", on=on, cpu="3", owner=controller("StatefulSet", "full"))


def named(text: str = "shop", mark: str | None = None) -> Json:
    labels = {} if mark is None else {MAKE_BEFORE_BREAK: mark}
    return {"kind": "Namespace", "metadata": {"name": text, "labels": labels}}


def reasons(*items: Json, mode: RestartMode = "all", name: str = "n1") -> list[Reason]:
    """Return what keeps node *name* beside an empty node n9."""
    seen = with_restarts(snapshot(node("n1"), node("n2"), node("n9"), *items), mode)
    facts = gather(seen, FactRules(eviction=EvictionRules(restarts=mode)), NOW)
    return [each.reason for each in facts[name].refusals]


# Which Deployments.


def test_one_replica_whose_budget_never_allows_an_eviction_keeps_its_node_only_without_the_mode() -> None:
    items = (pod(), replica_set(), deployment(), budget(status=NEVER, minAvailable=1))
    assert reasons(*items, mode="off") == [Reason.PDB_NEVER_ALLOWS]
    assert reasons(*items) == []


@pytest.mark.parametrize(
    ("mode", "own", "namespace", "goes"),
    [
        ("off", "true", "true", False),
        ("marked", None, None, False),
        ("marked", "true", None, True),
        ("marked", None, "true", True),
        ("marked", "false", "true", False),
        ("all", None, None, True),
        ("all", "false", None, False),
        ("all", None, "false", False),
        ("all", "true", "false", True),
    ],
)
def test_the_mark_of_the_workload_counts_before_that_of_its_namespace(
    mode: RestartMode, own: str | None, namespace: str | None, goes: bool
) -> None:
    items = (pod(), replica_set(mark=own), deployment(), named(mark=namespace), budget(status=NEVER, minAvailable=1))
    assert reasons(*items, mode=mode) == ([] if goes else [Reason.PDB_NEVER_ALLOWS])


@pytest.mark.parametrize(
    ("pods", "needed"),
    [
        ([pod("a")], True),
        ([pod("a"), pod("b")], True),
        ([pod("a"), pod("b", on="n2")], False),
        ([pod("a"), pod("b", on="n2", ready=False)], True),
        ([pod("a"), pod("b", on="n2", deletion=NOW + 30)], True),
        ([pod("a", ready=False)], False),
    ],
    ids=["alone", "both here", "one elsewhere", "that is not Ready", "that is leaving", "not Ready itself"],
)
def test_only_what_would_have_no_ready_pod_is_restarted(pods: list[Json], needed: bool) -> None:
    seen = with_restarts(snapshot(node(), node("n2"), node("n9"), *pods, replica_set(), deployment()), "all")
    assert (seen.restart_of(seen.nodes["n1"].pods[0]) is not None) is needed


def test_a_pod_on_a_cordoned_node_is_no_pod_that_stays() -> None:
    """Two drains at once would each leave the pod to the other."""
    nodes = (node("n1", unschedulable=True), node("n2", unschedulable=True), node("n9"))
    pods = (pod("a"), pod("b", on="n2"))
    seen = with_restarts(snapshot(*nodes, *pods, replica_set(), deployment(replicas=2)), "all")
    assert all(seen.restart_of(each) is not None for name in ("n1", "n2") for each in seen.nodes[name].pods)


ROLLOUT = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout", "name": "web", "uid": "u"}
REFUSED: list[tuple[str, list[Json], str]] = [
    ("Recreate", [pod(), replica_set(mark="true"), deployment(**RECREATE)], "its strategy starts no pod"),
    ("no surge", [pod(), replica_set(mark="true"), deployment(**rolling(0, 1))], "its strategy starts no pod"),
    ("no surge by share", [pod(), replica_set(mark="true"), deployment(**rolling("0%", 1))], "its strategy starts no"),
    ("all may go", [pod(), replica_set(mark="true"), deployment(**rolling(1, 1))], "lets 1 pod of 1 go first"),
    ("all by share", [pod(), replica_set(mark="true"), deployment(**rolling(1, "100%"))], "lets 1 pod of 1 go first"),
    ("paused", [pod(), replica_set(mark="true"), deployment(paused=True)], "is paused"),
    ("gone", [pod(), replica_set(mark="true")], "is not there"),
    ("bare ReplicaSet", [pod(), named(mark="true"), workload()], "no Deployment rolls this ReplicaSet out"),
    ("Argo Rollout", [pod(), replica_set(of=ROLLOUT, mark="true")], "an Argo Rollout restarts by"),
    (
        "StatefulSet",
        [pod(owner=controller("StatefulSet", "web")), named(mark="true"), workload("StatefulSet")],
        "a StatefulSet ends a pod before",
    ),
    (
        "another controller",
        [pod(owner=controller("ReplicationController", "web")), named(mark="true"), workload("ReplicationController")],
        "nobody knows a rollout of ReplicationController",
    ),
    (
        "no place",
        [
            pod(cpu="3"),
            full("n2"),
            full("n9"),
            replica_set(mark="true"),
            deployment(),
        ],
        "no other node takes a new pod",
    ),
]


@pytest.mark.parametrize(("items", "told"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_what_asks_for_a_restart_and_can_not_have_one_keeps_its_node_by_name(items: list[Json], told: str) -> None:
    rules = FactRules(eviction=EvictionRules(restarts="marked"))
    seen = with_restarts(snapshot(node(), node("n2"), node("n9"), *items), "marked")
    found = [each for each in gather(seen, rules, NOW)["n1"].refusals if each.reason is Reason.NOT_RESTARTABLE]
    assert [told in each.detail for each in found] == [True]
    assert "web" in found[0].detail


@pytest.mark.parametrize("items", [row[1] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_what_never_asked_and_can_not_be_restarted_is_evicted_as_before(items: list[Json]) -> None:
    plain = [msgspec.json.decode(msgspec.json.encode(each).replace(b'"true"', b'"maybe"')) for each in items]
    plain = [each for each in plain if each["kind"] != "Namespace"]
    for each in plain:
        each["metadata"].get("annotations", {}).pop(MAKE_BEFORE_BREAK, None)
    assert reasons(*plain, mode="all") == reasons(*plain, mode="off")


UNDER_WAY: list[Json] = [
    {"observedGeneration": 2},
    {"updatedReplicas": 0},
    {"replicas": 2},
    {"availableReplicas": 0},
    progressing("ReplicaSetUpdated"),
    progressing("ProgressDeadlineExceeded"),
]


@pytest.mark.parametrize("status", UNDER_WAY, ids=str)
def test_a_rollout_under_way_is_waited_for(status: Json) -> None:
    assert reasons(pod(), replica_set(), deployment(status=status)) == [Reason.ROLLOUT_UNFINISHED]


def test_one_pod_that_nothing_else_may_share_a_zone_with_is_not_restarted() -> None:
    """The old pod still runs while the new one looks for a place."""
    zone = {"topology.kubernetes.io/zone": "a"}
    term = {"topologyKey": "topology.kubernetes.io/zone", "labelSelector": {"matchLabels": {"app": "web"}}}
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    items = (pod(affinity=apart), replica_set(mark="true"), deployment())
    seen = with_restarts(snapshot(node(labels=zone), node("n9", labels=zone), *items), "marked")
    [restart] = seen.restarts.values()
    assert "no other node takes a new pod" in restart.problem


def test_one_volume_for_one_node_is_not_restarted() -> None:
    claim = {
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data", "namespace": "shop", "annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
        "spec": {"accessModes": ["ReadWriteOnce"], "volumeName": "pv", "resources": {"requests": {"storage": "1Gi"}}},
    }
    volume = {
        "kind": "PersistentVolume",
        "metadata": {"name": "pv"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": "1Gi"},
            "csi": {"driver": "ebs.csi.aws.com", "volumeHandle": "v"},
            "claimRef": {"namespace": "shop", "name": "data"},
        },
    }
    uses = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    items = (pod(volumes=uses), replica_set(mark="true"), deployment(), claim, volume)
    seen = with_restarts(snapshot(node(), node("n9"), *items), "marked")
    [restart] = seen.restarts.values()
    assert "no other node takes a new pod" in restart.problem


@pytest.mark.parametrize(
    ("replicas", "surge", "unavailable", "resolved"),
    [
        (1, None, None, (1, 0)),
        (1, "25%", "25%", (1, 0)),
        (4, "25%", "25%", (1, 1)),
        (10, "15%", "15%", (2, 1)),
        (3, 2, 1, (2, 1)),
        (2, "100%", "50%", (2, 1)),
    ],
)
def test_surge_rounds_up_and_unavailable_down(
    replicas: int, surge: int | str | None, unavailable: int | str | None, resolved: tuple[int, int]
) -> None:
    found: Deployment = decoded(deployment(replicas=replicas, **rolling(surge, unavailable)))
    assert (found.surge, found.unavailable) == resolved


def test_a_file_of_a_cluster_keeps_what_tells_of_a_rollout() -> None:
    template = {"metadata": {"annotations": {RESTARTED_AT: "then", "other": "x"}}, "spec": {"containers": []}}
    raw = msgspec.json.encode(deployment(template=template, **rolling()))
    cut = projected("Deployment", raw)
    assert b"other" not in cut
    assert decode("Deployment", cut) == decoded(msgspec.json.decode(raw))


# A drain.

RULES = DrainRules()
SINCE = {"Claimed": NOW - 500, "Evicting": NOW - 400}
RECORD = DrainRecord(phase=Phase.EVICTING, op="op", since=SINCE, deadline=NOW + 900)
RESTARTED = {"template": {"metadata": {"annotations": {RESTARTED_AT: RECORD.restart_time}}}}


def drained(*items: Json, record: DrainRecord = RECORD) -> Step:
    """Return the next step of the drain of n1."""
    taint = {"key": DRAINING.key, "value": "op", "effect": "NoSchedule"}
    notes = {"tightship.dev/drain": encode_record(record)}
    here = node("n1", taints=[taint], unschedulable=True, notes=notes)
    items = tuple(
        {**each, "metadata": {"uid": f"uid-{each['metadata']['name']}", **each["metadata"]}} for each in items
    )
    seen = snapshot(here, node("n9"), replica_set(), *items)
    sight = Assessment(seen, "n1", NOW, RULES, EvictionRules(restarts="all"))
    findings = sight.findings(record, {}, fresh=True, rest=())
    return advance("op", record, findings, RULES, NOW)


def noted(**generations: int) -> DrainRecord:
    return msgspec.structs.replace(RECORD, restarts={f"shop/{name}": at for name, at in generations.items()})


def test_a_drain_restarts_first_and_evicts_the_others_afterwards() -> None:
    other = pod("other", owner=controller("ReplicaSet", "other"))
    second = workload(name="other")
    assert drained(pod(), deployment(), other, second) == Restart(("shop/web",))
    under_way = deployment(status={"updatedReplicas": 0}, **RESTARTED)
    assert isinstance(drained(pod(), under_way, other, second, record=noted(web=2)), Wait)
    step = drained(other, second, deployment(**RESTARTED), pod("web-2", on="n9"), record=noted(web=2))
    assert isinstance(step, Evict)
    assert [each.name for each in step.pods] == ["other"]


def test_a_pod_whose_replacement_is_ready_is_not_evicted_before_its_rollout_removes_it() -> None:
    both = (pod(), pod("web-2", on="n9", owner=controller("ReplicaSet", "web-new")), replica_set("web-new"))
    under_way = deployment(status={"replicas": 2}, **RESTARTED)
    assert isinstance(drained(*both, under_way, record=noted(web=2)), Wait)


@pytest.mark.parametrize(
    ("record", "of", "reason"),
    [
        (noted(web=3), {}, None),
        (noted(web=2), {}, Reason.ROLLOUT_UNFINISHED),
        (noted(web=2), RESTARTED, "wait"),
        (RECORD, RESTARTED, "wait"),
        (noted(web=2), {"status": {"updatedReplicas": 0}}, "wait"),
        (noted(web=2), {**RESTARTED, "status": progressing("ProgressDeadlineExceeded")}, Reason.ROLLOUT_UNFINISHED),
    ],
    ids=["recorded, not written", "somebody else wrote", "written", "by another", "another rollout", "failed"],
)
def test_a_drain_restarts_a_deployment_once(record: DrainRecord, of: Json, reason: Reason | str | None) -> None:
    step = drained(pod(), deployment(**of), record=record)
    if reason is None:
        assert step == Restart(("shop/web",))
    elif reason == "wait":
        assert isinstance(step, Wait)
    else:
        assert isinstance(step, Write)
        assert step.because is not None
        assert step.because.reason is reason


def test_whoever_continues_a_drain_writes_the_same_time() -> None:
    claimed = msgspec.structs.replace(RECORD, since={"Claimed": NOW + 0.123456})
    read = msgspec.json.decode(encode_record(claimed))["since"]["Claimed"]
    assert read == claimed.restart_time


def test_no_more_deployments_are_restarted_at_once_than_pods_may_leave() -> None:
    pods = [pod(f"p{n}", owner=controller("ReplicaSet", f"d{n}")) for n in range(14)]
    sets = [replica_set(f"d{n}") for n in range(14)]
    step = drained(*pods, *sets, *(deployment(f"d{n}") for n in range(14)))
    assert isinstance(step, Restart)
    assert len(step.deployments) == RULES.most_in_flight


def test_the_drain_waits_for_the_rollout_before_its_first_eviction_and_says_so_in_its_record() -> None:
    """One node at a time in the cluster waits like this (:mod:`tightship.rules.after_cordon`)."""
    since = {"Claimed": NOW - 60}
    claimed = DrainRecord(phase=Phase.CLAIMED, op="op", since=since, waits_for=("MakeBeforeBreak shop/web",))
    begun = drained(pod(), deployment(), record=claimed)
    assert isinstance(begun, Write)
    assert begun.record is not None
    assert begun.record.deadline is not None
    assert begun.because is not None
    assert (begun.because.reason, begun.because.subject) == (Reason.MAKE_BEFORE_BREAK, "shop/web")
    assert drained(pod(), deployment(), record=begun.record) == Restart(("shop/web",))
    restarted = {"template": {"metadata": {"annotations": {RESTARTED_AT: claimed.restart_time}}}}
    new = (pod("web-2", on="n9", owner=controller("ReplicaSet", "web-new")), replica_set("web-new"))
    written = msgspec.structs.replace(begun.record, restarts={"shop/web": 2})
    under_way = deployment(status={"replicas": 2}, **restarted)
    assert isinstance(drained(pod(), *new, under_way, record=written), Wait)
    step = drained(*new, deployment(**restarted), record=written)
    assert isinstance(step, Write)
    assert step.record is not None
    assert step.record.phase is Phase.DRAINED
    overdue = msgspec.structs.replace(written, deadline=NOW - 1)
    step = drained(pod(), *new, under_way, record=overdue)
    assert isinstance(step, Write)
    assert step.because is not None
    assert step.because.reason is Reason.NOT_OPENED


def test_a_drain_that_nobody_expected_to_wait_restarts_too() -> None:
    """The last other Ready pod may have gone since the plan, or be on a node that is in drain as well."""
    claimed = DrainRecord(phase=Phase.CLAIMED, op="op", since={"Claimed": NOW - 60})
    step = drained(pod(), deployment(), record=claimed)
    assert isinstance(step, Write)
    assert step.record is not None
    assert step.record.phase is Phase.EVICTING
    assert drained(pod(), deployment(), record=step.record) == Restart(("shop/web",))
