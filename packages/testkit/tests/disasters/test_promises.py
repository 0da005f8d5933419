"""No promise is vacuous: for each there is a rogue replica, a tiny fake controller that breaks it, and it is found."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tightship.rules.windows import Rollouts
from tightship_simulator.api.landing import LEAVING, drawn
from tightship_testkit.disasters.groups import DISRUPTIONS, MINIMUM, NODE_POOL, STATUS, SYSTEM, status_text
from tightship_testkit.disasters.known import finding
from tightship_testkit.disasters.making import make
from tightship_testkit.disasters.observer import Observer
from tightship_testkit.disasters.promises.installations import INSTALLATIONS
from tightship_testkit.disasters.promises.restarts import RESTARTED_AT
from tightship_testkit.disasters.promises.savings import CLAIMS, SAVINGS
from tightship_testkit.disasters.promises.stopping import STOP
from tightship_testkit.disasters.registry import PROMISES
from tightship_testkit.disasters.restarting import MARK
from tightship_testkit.disasters.rogue_replicas import RogueReplica, RogueStory, Step, play
from tightship_testkit.disasters.run import run
from tightship_testkit.disasters.scenario import (
    Autoscaler,
    Budget,
    Controller,
    Fault,
    Landings,
    Node,
    Pool,
    Scenario,
    Workload,
)
from tightship_testkit.disasters.steps.clouds import set_ready
from tightship_testkit.disasters.world import DRAIN, Json, World, writing_as

NAME = "node-compactor-0"
DRAINING = {"key": "tightship.dev/draining", "value": "op1", "effect": "NoSchedule"}
GOING = {"key": "ToBeDeletedByClusterAutoscaler", "value": "1", "effect": "NoSchedule"}
SOFT = {"key": "tightship.dev/candidate", "value": "node-compactor", "effect": "PreferNoSchedule"}
DEPLOYMENTS = "/apis/apps/v1/namespaces/shop/deployments"
LEADS_AT = 8.0
NOWHERE = {"affinity": drawn(None, ["gone"]), "nodeSelector": {"no": "where"}}


class Drainer(RogueReplica):
    """A rogue replica about nodes. *pod* is one to evict, and *home* its node."""

    pod: Json
    home: str

    async def ask(self, method: str, path: str, body: Json | None = None) -> int:
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        url, data = self.world.simulation.url + path, json.dumps(body) if body is not None else None
        return await self.send(method, url, data=data, headers={"Content-Type": kind})

    async def node(self, name: str, spec: Json | None = None, record: Json | None = None, **meta: Any) -> None:
        notes = {"annotations": {DRAIN: json.dumps(record)}} if record is not None else {}
        body = {"metadata": {**notes, **meta}, "spec": spec or {}}
        assert await self.ask("PATCH", f"/api/v1/nodes/{name or self.home}", body) == 200

    def record(self, op: str = "op1", phase: str = "Claimed", holder: str = "") -> Json:
        return {"v": 1, "phase": phase, "controller": self.program, "op": op, "holder": f"{holder or self.name}_1"}

    async def evict(self) -> None:
        meta = self.pod["metadata"]
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": meta["name"], "namespace": "shop"},
            "deleteOptions": {"preconditions": {"uid": meta["uid"]}},
        }
        await self.ask("POST", f"/api/v1/namespaces/shop/pods/{meta['name']}/eviction", body)

    async def lead(self) -> None:
        """Take the Lease of the own name."""
        path = "/apis/coordination.k8s.io/v1/namespaces/tightship/leases"
        lease = self.world.store.find("Lease", self.program, "tightship")
        spec = {"holderIdentity": f"{self.name}_1", "leaseDurationSeconds": 15}
        if lease is None:
            await self.ask("POST", path, {"metadata": {"name": self.program}, "spec": spec})
        else:
            await self.ask("PUT", f"{path}/{self.program}", {**lease, "spec": spec})

    def looks(self) -> None:
        """Choose a pod."""
        self.pod = self.world.store.list("Pod", "shop")[0]
        self.home = self.pod["spec"]["nodeName"]


# What rogue replicas do. A node without a name is that of the pod.

Act = Callable[[Drainer], object]


def claim(name: str = "", op: str = "op1", phase: str = "Claimed") -> Act:
    spec = {"unschedulable": True, "taints": [{**DRAINING, "value": op}]}
    return lambda on: on.node(name, spec, on.record(op, phase))


def waiting(name: str, op: str = "op1") -> Act:
    spec = {"unschedulable": True, "taints": [{**DRAINING, "value": op}]}
    return lambda on: on.node(name, spec, {**on.record(op, "Claimed"), "waitsFor": ["OpensAfterCordon shop/web"]})


def writes(name: str, spec: Json | None = None, record: Json | None = None, **meta: Any) -> Act:
    return lambda on: on.node(name, spec, record, **meta)


def marks(name: str) -> Act:
    return writes(name, record={"v": 1, "phase": "Marked"})


def asks(method: str, path: str) -> Act:
    return lambda on: on.ask(method, path.format(pod=on.pod["metadata"]["name"]))


def edited(by: str, kind: str, name: str, change: Callable[[Json], object]) -> Act:
    """Have somebody else write an object."""

    def edit(on: Drainer) -> None:
        with writing_as(by):
            on.world.store.modify(kind, name or on.home, "" if kind == "Node" else "shop", change)

    return edit


def restarts(name: str, at: str) -> Act:
    template = {"metadata": {"annotations": {RESTARTED_AT: at}}}
    return lambda on: on.ask("PATCH", f"{DEPLOYMENTS}/{name}", {"spec": {"template": template}})


def another_writes(on: Drainer) -> None:
    """Have another installation write on a node, while the own one is on the list."""
    listed = [{"lease": "tightship/node-compactor", "controller": "node-compactor", "pools": {"*": True}}]
    notes = {INSTALLATIONS: json.dumps(listed)}
    meta = {"name": "tightship-claims", "namespace": "kube-system", "annotations": notes}
    on.world.store.create("Lease", {"metadata": meta, "spec": {}})
    on.world.others["another-0"] = on.program
    edited("another-0", "Node", "n1", lambda node: node["metadata"].update(annotations={DRAIN: "{}"}))(on)


def stopped(word: str) -> Act:
    """Have a person stop the controller."""

    def stop(on: Drainer) -> None:
        with writing_as("person"):
            on.world.store.modify(
                "Lease", on.program, "tightship", lambda each: each["metadata"].update(annotations={STOP: word})
            )

    return stop


def scaled(replicas: int) -> Act:
    return edited("person", "Deployment", "web", lambda each: each["spec"].update(replicas=replicas))


def cordoned(name: str, yes: bool) -> Act:
    return edited("person", "Node", name, lambda each: each["spec"].update(unschedulable=yes))


def made_anew(name: str) -> Act:
    def make(on: Drainer) -> None:
        node = on.world.store.get("Node", name)
        on.world.store.delete("Node", name)
        made = {"metadata": {"name": name, "labels": node["metadata"]["labels"]}, "spec": {}, "status": node["status"]}
        on.world.store.create("Node", made)

    return make


def beside(name: str, *steps: Step[Drainer]) -> Act:
    """Have another rogue replica lead, and do something."""
    return lambda on: play(Drainer(on.world, name), [Drainer.lead, *steps])


def crash(on: Drainer) -> None:
    on.crashed = True


def scenario(**changes: Any) -> Scenario:
    made: dict[str, Any] = {
        "seed": 1,
        "story": 30.0,
        "quiet": 5.0,
        "pools": [Pool(name="a", most=3)],
        "nodes": [Node(name=name, pool="a") for name in ("n1", "n2", "n3")],
        "workloads": [Workload(name="web", replicas=3)],
        "controllers": [Controller(program="node-compactor", skews=[]), Controller(program="node-refiner", skews=[])],
        **changes,
    }
    return Scenario(**made)


def idle(*steps: Step[Drainer], by: str = NAME, **changes: Any) -> RogueStory[Drainer]:
    """Return the lie of one who does not lead."""
    return RogueStory(lambda world: Drainer(world, by), steps, scenario(**changes))


def leader(*steps: Step[Drainer], **changes: Any) -> RogueStory[Drainer]:
    return idle(LEADS_AT, Drainer.lead, Drainer.looks, *steps, **changes)


def reported(program: str = "node-compactor", **settings: object) -> dict[str, list[Controller]]:
    return {"controllers": [Controller(program=program, skews=[], settings=settings)]}


def landings(policy: str = "hints/2", steering: str = "hints") -> dict[str, list[Controller]]:
    chart, settings = Landings(policy=policy), {"steering": steering}
    return {"controllers": [Controller(program="node-compactor", skews=[], settings=settings, landings=chart)]}


def enters(owner: str = "", node: str = "n1") -> Act:
    """Enter a landing, of the pod's own controller unless told, into the own ConfigMap."""
    path = "/api/v1/namespaces/tightship/configmaps/node-compactor-landings"

    def enter(on: Drainer) -> object:
        uid = owner or on.pod["metadata"]["ownerReferences"][0]["uid"]
        return on.ask("PATCH", path, {"data": {uid: node}})

    return enter


def group_of(pool: str, least: int, old: bool = False) -> Json:
    meta = {"name": STATUS, "namespace": SYSTEM}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": meta,
        "data": {"status": status_text({pool: least}, old)},
    }


def node_pool(**spec: Any) -> list[Json]:
    meta, served = (
        {"name": "nodepools.karpenter.sh"},
        {"group": "karpenter.sh", "versions": [{"name": "v1", "served": True}]},
    )
    crd = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": meta,
        "spec": served,
    }
    return [crd, {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "a"}, "spec": spec}]


def standing(minutes: int, nodes: int = 1) -> Json:
    """Return what savings tell of nodes that went so long before the beginning."""
    at = datetime(2026, 1, 5, 8, tzinfo=UTC) - timedelta(minutes=minutes)
    return {"at": at.isoformat(), "nodes": nodes, "hourly": {"USD": 60_000_000}}


def savings(*saving: Json, seconds: float = 0.0, micros: float = 0) -> dict[str, str]:
    page = {"seen": "2026-01-05T07:00:00Z", "standing": saving, "seconds": seconds, "micros": {"USD": micros}}
    return {SAVINGS: json.dumps({"a": page})}


def ledger(notes: dict[str, str]) -> Json:
    meta = {"name": CLAIMS, "namespace": SYSTEM, "annotations": notes}
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta, "spec": {}}


def enters_savings(*saving: Json, **sums: float) -> Act:
    path = f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases/{CLAIMS}"
    return lambda on: on.ask("PATCH", path, {"metadata": {"annotations": savings(*saving, **sums)}})


def goes(name: str = "n1") -> Act:
    """Have the autoscaler delete a node."""
    return lambda on: on.world.store.delete("Node", name)


def marked_by_handler(name: str) -> Act:
    mark = {"aws-node-termination-handler/action": "cordon-and-drain"}
    return edited("termination handler", "Node", name, lambda each: each["metadata"]["labels"].update(mark))


ALONE: Json = {"nodes": [Node(name="n1", pool="a")], "pools": [Pool(name="a", most=1)]}
OPTS_OUT = edited(
    "person", "Node", "", lambda each: each["metadata"]["annotations"].update({"karpenter.sh/do-not-disrupt": "true"})
)
ROGUES = {
    "within-pod-budgets": leader(
        asks("DELETE", "/api/v1/namespaces/shop/pods/{pod}"),
        budgets=[Budget(name="b", workload="web", spec={"minAvailable": 3})],
    ),
    "not-evicted-twice": leader(
        Drainer.evict, 5, Drainer.evict,
        workloads=[Workload(name="web", annotations={"tightship-simulator/stops-after": "30"})],
    ),
    "opt-outs-respected": leader(claim(phase="Evicting"), OPTS_OUT, 4, Drainer.evict),
    "gangs-go-together": leader(
        8, claim(phase="Evicting"), Drainer.evict,
        workloads=[Workload(name="web", replicas=3, labels={"jobset.sigs.k8s.io/jobset-name": "web"})],
    ),
    "never-without-a-ready-pod": leader(
        8, claim(phase="Evicting"), Drainer.evict, workloads=[Workload(name="web", marks={MARK: "true"})]
    ),
    "restarted-once": leader(8, claim(), restarts("web", "2026-01-05T08:00:00.000Z")),
    "only-from-nodes-in-drain": leader(Drainer.evict),
    "somewhere-to-go": leader(claim("n1", phase="Evicting"), 21, Drainer.evict, **ALONE),
    "no-eviction-loop": leader(
        claim("n1", phase="Evicting"), Drainer.evict, 6, Drainer.looks, Drainer.evict, 6,
        workloads=[Workload(name="web", kind="ReplicaSet", spec={"nodeName": "n1"})],
    ),
    "cordon-has-owner": leader(
        lambda on: on.node(
            "n1", {"unschedulable": True, "taints": [DRAINING]}, on.record(holder="node-compactor-7")
        ),
        story=70.0,
    ),
    "persons-cordon-stays": leader(cordoned("n1", True), writes("n1", {"unschedulable": None})),
    "room-for-others-kept": leader(
        cordoned("n1", True), 25, claim("n2"), story=60.0, workloads=[Workload(name="web", replicas=3, cpu="1900m")]
    ),
    "persons-uncordon-stays": leader(
        claim("n1"), cordoned("n1", False), 1, writes("n1", {"unschedulable": True})
    ),
    "left-to-autoscaler": leader(
        claim("n1"),
        edited("autoscaler", "Node", "n1", lambda each: each["spec"]["taints"].append(GOING)),
        writes("n1", {"unschedulable": None}),
    ),
    "left-to-handler": leader(marked_by_handler("n1"), claim("n1")),
    "within-drain-budget": leader(claim("n1"), claim("n2", "op2")),
    "no-rate-passed": leader(
        claim("n1"), claim("n2", "op2"), **reported(maximumNodesPerHour=1, maximumNodesInDrain=2)
    ),
    "workloads-rest": leader(
        8, claim(phase="Evicting"), Drainer.evict, 5, Drainer.looks, claim(op="op2", phase="Evicting"), Drainer.evict,
        **reported(workloadPause=10),
    ),
    "one-waits-after-its-cordon": leader(waiting("n1"), waiting("n2", "op2")),
    "minimums-kept": leader(claim("n1"), by="node-refiner-0", **reported("node-refiner", minimumNodeCount=3)),
    "waits-until-well": leader(
        claim("n1"),
        writes("n1", {"unschedulable": None, "taints": None}, {"v": 1, "phase": "Backoff"}),
        10, scaled(3), 60, claim("n2", "op2"),
        story=120.0,
        nodes=[Node(name="n1", pool="a"), Node(name="n2", pool="a")],
        pools=[Pool(name="a", most=2)],
        workloads=[Workload(name="web", replicas=2, cpu="3")],
        **reported(pendingAfterDrainTimeout=5),
    ),
    "written-before-done": leader(writes("n1", {"unschedulable": True})),
    "settles": leader(claim(phase="Evicting"), Drainer.evict, **reported(settleTime=6)),
    "not-ready-left-alone": leader(
        claim(phase="Evicting"), lambda on: set_ready(on.world, on.home, False), 4, Drainer.evict
    ),
    "drained-is-empty": leader(claim(phase="Drained")),
    "pauses-kept": leader(
        writes("n1", record={"v": 1, "phase": "Backoff", "nextTry": "2026-01-05T09:00:00.000Z"}), claim("n1")
    ),
    "pending-gets-its-node": leader(claim("n1", phase="Drained"), 4, scaled(5), story=120.0, **ALONE),
    "no-churn": leader(
        claim("n1", phase="Drained"), made_anew("n1"), 31, claim("n1", "op2"),
        story=60.0, pools=[Pool(name="a", least=0, most=3)],
    ),
    "one-writer": leader(marks("n1"), beside("node-compactor-1", marks("n2")), 1, marks("n3")),
    "stopped-means-stopped": leader(stopped("perhaps"), 2, claim("n1")),
    "nothing-outside-windows": leader(claim("n1"), **reported(windows={"allow": ["Mon 08:02-08:03"]})),
    "rollouts-settle": leader(
        8, claim(phase="Evicting"), Drainer.evict, **reported(windows={"notBefore": "60s"})
    ),
    "live-drain-left-alone": leader(
        claim("n1"), beside("node-refiner-0", lambda on: on.node("n1", record=on.record(phase="Restoring")))
    ),
    "dry-runs-write-nothing": leader(
        claim("n1"), lambda on: on.world.teams["node-compactor"].dry.add(NAME), claim("n2")
    ),
    "only-documented-rights": leader(asks("GET", "/api/v1/secrets")),
    "switched-off-begins-nothing": leader(45, claim("n1"), story=70.0),
    "nothing-left": leader(writes("n1", {"taints": [SOFT]})),
    "no-crash": idle(crash),
    "leaders-lead": idle(story=60.0),
    "drains-end": leader(
        claim("n1"),
        story=10.0, quiet=80.0,
        **reported(nodeDrainTimeout=2, settleTime=1, handOverTimeout=1, awaitCompletionFor=0),
    ),
    "given-back-in-time": leader(claim("n1", phase="Restoring"), story=40.0),
    "no-label-outlives-its-plan": leader(
        writes("n1", labels={LEAVING: "node-compactor"}),
        story=90.0, quiet=30.0, autoscaler=Autoscaler(unneeded=1000.0), **landings("hints/1"),
    ),
    "no-replacement-waits-for-us": idle(
        LEADS_AT, Drainer.lead, story=60.0, quiet=30.0, workloads=[Workload(name="web", spec=NOWHERE)]
    ),
    "labels-of-others-stay": leader(writes("n1", labels={LEAVING: "theirs"})),
    "entries-leave": leader(claim(), enters(), **landings()),
    "landings-only-with-their-policy": leader(claim(), enters(), **landings("hints/1")),
    "landings-are-of-evictions": leader(enters(), **landings()),
    "nothing-of-others-changed": leader(writes("n1", labels={"example.com/mine": "now"})),
    "only-nodes-that-go": leader(claim(phase="Evicting"), Drainer.evict, objects=[group_of("a", 3)]),
    "installations-apart": leader(another_writes),
    "savings-are-true": leader(enters_savings(standing(0)), objects=[ledger({})]),
}  # fmt: skip


@pytest.mark.parametrize("promise", ROGUES)
def test_a_rogue_replica_is_found_and_is_no_known_finding(promise: str) -> None:
    found = [each for each in ROGUES[promise].violations() if each.promise == promise]
    assert any(finding(each) is None for each in found)


def test_each_promise_has_a_rogue_replica() -> None:
    assert set(ROGUES) == {name for name, each in PROMISES.items() if each.about == "nodes"}


def test_where_nobody_lies_nothing_is_broken() -> None:
    assert run(scenario()).violations == []


NIGHT = {"allow": ["Mon 08:02-08:03"]}


@pytest.mark.parametrize(
    ("windows", "steps", "broken"),
    [
        ({"allow": ["Mon 08:00-08:01"]}, [claim("n1")], False),
        ({"deny": ["08:01-08:02"], "timeZone": ""}, [claim("n1")], False),
        ({"deny": ["03:00-03:01"], "timeZone": "America/New_York"}, [4, claim("n1")], True),
        ({"calendar": "DTSTART:20260105T080000Z\nDTEND:20260105T080100Z"}, [4, claim("n1")], True),
        # A drain from before goes on, until the windows have been closed for hardStop.
        (NIGHT, [Drainer.evict], False),
        ({**NIGHT, "hardStop": "0s"}, [Drainer.evict], True),
        ({**NIGHT, "hardStop": "30m"}, [Drainer.evict], True),
        ({"allow": ["Mon 07:00-08:00"], "hardStop": "30s"}, [Drainer.evict], False),
    ],
)
def test_what_is_outside_of_windows_is_seen(windows: Json, steps: list[Step[Drainer]], broken: bool) -> None:
    found = leader(*steps, **reported(windows=windows)).violations()
    assert bool([each for each in found if each.promise == "nothing-outside-windows"]) is broken


@pytest.mark.virtual_time
@pytest.mark.takes(2)
@pytest.mark.parametrize("seed", [7, 14])
def test_drains_that_know_no_rollouts_are_found(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Rollouts, "refusal", lambda *_: None)
    assert "rollouts-settle" in {each.promise for each in run(make(seed)).violations}


RELEASED = {"v": 1, "phase": "Backoff", "reason": "Released n1: no controller continues the drain"}


@pytest.mark.parametrize(
    ("steps", "broken"),
    [
        ([claim("n1"), marked_by_handler("n1"), writes("n1", {"unschedulable": None})], "uncordoned it while a ter"),
        ([claim("", phase="Evicting"), marked_by_handler(""), 4, Drainer.evict], "s after the mark of a termination"),
        ([claim("n1"), marked_by_handler("n1"), writes("n1", {"unschedulable": None}, RELEASED)], ""),
        ([marked_by_handler("n1"), cordoned("n1", True), 10, goes("n1")], ""),
    ],
)
def test_who_takes_a_node_from_a_termination_handler_is_seen(steps: list[Step[Drainer]], broken: str) -> None:
    found = [each.what for each in leader(*steps).violations() if each.promise == "left-to-handler"]
    assert (broken in found[0]) if broken else found == []


OVERDUE = {"v": 1, "phase": "Evicting", "op": "op1", "holder": f"{NAME}_1", "deadline": "2026-01-05T08:00:01.000Z"}


@pytest.mark.parametrize(
    ("change", "seconds", "broken"),
    [(claim("n1", phase="Restoring"), 0.0, True), (claim("n1", phase="Restoring"), 28.0, False),
     (writes("n1", {"unschedulable": True}, OVERDUE), 0.0, True), (claim("n1", phase="Evicting"), 0.0, False)],
)  # fmt: skip
def test_a_phase_that_is_over_may_last_as_long_as_admission_takes(change: Act, seconds: float, broken: bool) -> None:
    slow = [Fault(at=0.0, until=1.0, kind="slow-admission", resources=["nodes"], args={"seconds": seconds})]
    found = leader(change, story=35.0, faults=slow).violations()
    assert bool([each for each in found if each.promise == "given-back-in-time"]) is broken


COST, MARK = "controller.kubernetes.io/pod-deletion-cost", "tightship.dev/deletion-cost"
OURS_ON_IT = {COST: "-5", MARK: "node-compactor=-5"}


@pytest.mark.parametrize(
    ("before", "change", "broken"),
    [
        ({}, OURS_ON_IT, False),
        (OURS_ON_IT, dict.fromkeys(OURS_ON_IT), False),
        ({**OURS_ON_IT, COST: "7"}, {MARK: None}, False),
        ({**OURS_ON_IT, COST: "7"}, dict.fromkeys(OURS_ON_IT), True),
        ({COST: "7"}, OURS_ON_IT, True),
        ({COST: "7"}, {COST: None}, True),
        ({}, {COST: "-5"}, True),
        ({}, {COST: "-5", MARK: "node-refiner=-5"}, True),
        ({COST: "-5", MARK: "node-refiner=-5"}, dict.fromkeys(OURS_ON_IT), True),
        (OURS_ON_IT, {**dict.fromkeys(OURS_ON_IT), "example.com/a": "b"}, True),
    ],
)
def test_a_deletion_cost_of_others_that_is_touched_is_seen(before: Json, change: Json, broken: bool) -> None:
    async def write(on: Drainer) -> None:
        name = on.pod["metadata"]["name"]
        body = {"metadata": {"annotations": change}}
        assert await on.ask("PATCH", f"/api/v1/namespaces/shop/pods/{name}", body) == 200

    costly = reported(deletionCost=True)
    web = [Workload(name="web", annotations=before)]
    found = idle(LEADS_AT, Drainer.looks, write, workloads=web, **costly).violations()
    assert bool([each for each in found if each.promise == "nothing-of-others-changed"]) is broken


def test_a_deletion_cost_that_outlives_its_controller_is_seen() -> None:
    web = [Workload(name="web", annotations=OURS_ON_IT)]
    found = [each for each in leader(workloads=web).violations() if each.promise == "nothing-left"]
    assert ["deletion cost of node-compactor" in each.what for each in found] == [True]


@pytest.mark.parametrize(
    ("objects", "notes", "labels", "broken"),
    [
        ([group_of("a", 3)], {}, {}, "its group would keep 2 of at least 3"),
        ([group_of("a", 3, old=True)], {}, {}, "its group would keep 2 of at least 3"),
        ([group_of("a", 2)], {}, {}, ""),
        ([group_of("b", 3)], {}, {}, ""),
        ([], {MINIMUM: "3"}, {}, "its group would keep 2 of at least 3"),
        (node_pool(disruption=DISRUPTIONS["Never"]), {}, {NODE_POOL: "a"}, "its NodePool is never consolidated"),
        (node_pool(disruption=DISRUPTIONS["budget of 0"]), {}, {NODE_POOL: "a"}, "its NodePool has a budget of 0"),
        (node_pool(replicas=3), {}, {NODE_POOL: "a"}, "its NodePool is static"),
        (node_pool(disruption=DISRUPTIONS["WhenEmpty"]), {}, {NODE_POOL: "a"}, ""),
        (node_pool(disruption=DISRUPTIONS["Never"]), {}, {NODE_POOL: "b"}, ""),
    ],
)
def test_an_eviction_from_a_node_that_would_stay_is_seen(
    objects: list[Json], notes: dict[str, str], labels: dict[str, str], broken: str
) -> None:
    nodes = [Node(name=name, pool="a", annotations=notes) for name in ("n1", "n2", "n3")]
    lie = leader(
        claim(phase="Evicting"), Drainer.evict,
        objects=objects, nodes=nodes, pools=[Pool(name="a", least=3, most=3, labels=labels)],
    )  # fmt: skip
    found = [each.what.rpartition(" s: ")[2] for each in lie.violations() if each.promise == "only-nodes-that-go"]
    assert found == ([broken] if broken else [])


DRAINED_GONE = (claim("n1", phase="Claimed"), claim("n1", phase="Drained"), goes())
ADDED = made_anew("n3")


@pytest.mark.parametrize(
    ("before", "steps", "broken"),
    [
        (savings(), [*DRAINED_GONE, enters_savings(standing(0))], ""),
        (savings(), [claim("n1"), goes(), enters_savings(standing(0))], "entered 1 nodes, and 0 have gone"),
        (savings(), [goes(), enters_savings(standing(0))], "entered 1 nodes, and 0 have gone"),
        (savings(), [*DRAINED_GONE, enters_savings(standing(0, 2))], "entered 2 nodes, and 1 have gone"),
        (savings(), [2, *DRAINED_GONE, 65], "node n1 went when it was drained, and is not in the savings"),
        (
            savings(),
            [2, claim("n2"), claim("n2", phase="Drained"), goes("n2"), *DRAINED_GONE, enters_savings(standing(0)), 65],
            "node n2 went when it was drained, and is not in the savings",
        ),
        (savings(standing(120)), [ADDED, enters_savings(seconds=7205, micros=120_050_000)], ""),
        (savings(standing(120)), [ADDED, enters_savings(seconds=9000)], "made 9000 s of 72"),
        (
            savings(standing(120)),
            [ADDED, enters_savings(seconds=7205, micros=150_000_000)],
            "made 150000000 micros of 12",
        ),
        (savings(standing(30)), [ADDED, enters_savings(seconds=1800)], "made 1800 s of 0"),
        (savings(standing(30)), [ADDED, enters_savings()], ""),
        (savings(standing(30)), [ADDED, 155], "a node was added 15"),
        (savings(standing(30)), [enters_savings()], "took 1 nodes off, and 0 were added"),
        (savings(seconds=100.0), [enters_savings()], "left 0 s of 100"),
        (savings(micros=7000), [enters_savings()], "left 0 micros of 7000"),
        (savings(), [enters_savings(seconds=-1.0)], "wrote PoolSavings(nodes=0, seconds=-1.0"),
    ],
)
def test_books_that_tell_too_much_or_too_little_are_seen(
    before: dict[str, str], steps: list[Step[Drainer]], broken: str
) -> None:
    lie = leader(*steps, objects=[ledger(before)], story=180.0, pools=[Pool(name="a", least=3, most=3)])
    found = [each.what for each in lie.violations() if each.promise == "savings-are-true"]
    assert (broken in found[0]) if broken else found == []


def test_a_pause_that_the_record_itself_makes_too_short_is_seen() -> None:
    hurried = leader(
        claim("n1"),
        writes("n1", record={"v": 1, "phase": "Backoff", "nextTry": "2026-01-05T08:00:00.000Z"}),
        claim("n1", "op2"),
        **reported(backoff=10),
    )
    found = [each.what for each in hurried.violations() if each.promise == "pauses-kept"]
    assert found == ["node-compactor-0 claimed it 0.0 s after its last drain was given up, 10 s must pass"]


@pytest.mark.parametrize(("after", "seen"), [(22, True), (0, False)])
def test_a_lease_that_is_left_behind_is_seen_while_it_keeps_others_waiting(after: float, seen: bool) -> None:
    late = RogueStory(lambda world: Drainer(world, NAME), [after + LEADS_AT, Drainer.lead], scenario())
    left = [each.what for each in late.violations() if each.promise == "nothing-left"]
    assert left == (["is held by node-compactor-0_1, which has ended"] if seen else [])


def test_who_turns_without_end_is_found() -> None:
    async def spin() -> None:
        while True:  # noqa: ASYNC110 - what is to be found
            await asyncio.sleep(0)

    def ready(world: World, _: Observer) -> None:
        Drainer(world, NAME).process.run(spin())

    [found] = [each for each in run(scenario(), ready).violations if each.promise == "no-crash"]
    assert "turns without end" in found.what
