"""No promise is vacuous: for each there is a liar, a tiny fake controller that breaks it, and it is found."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tightship.kube.host import HOST
from tightship_simulator.virtual.process import Process
from tightship_testkit.disasters.known import finding
from tightship_testkit.disasters.observer import Observer
from tightship_testkit.disasters.registry import PROMISES
from tightship_testkit.disasters.run import run
from tightship_testkit.disasters.scenario import Budget, Controller, Node, Pool, Scenario, Workload
from tightship_testkit.disasters.steps.clouds import set_ready
from tightship_testkit.disasters.world import DRAIN, Json, World, writing_as

NAME = "node-compactor-0"
DRAINING = {"key": "tightship.dev/draining", "value": "op1", "effect": "NoSchedule"}


class Liar:
    """A process that looks like a replica, and asks the API server for what it likes."""

    def __init__(self, world: World, name: str = NAME) -> None:
        self.world = world
        self.name = name
        self.ended = self.crashed = False
        self.error: BaseException | None = None
        self.process = Process(world.simulation.loop, name, HOST.get())
        world.simulation.replicas.append(self)  # type: ignore[arg-type]
        team = world.teams[name.rpartition("-")[0]]
        team.replicas.append(self)  # type: ignore[arg-type]

    def stop(self) -> None:
        self.ended = True

    async def stopped(self) -> None:
        self.ended = True

    async def ask(self, method: str, path: str, body: Json | None = None) -> tuple[int, Json]:
        """Send a request, in the process."""

        async def send() -> tuple[int, Json]:
            kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
            async with (
                self.world.simulation.session() as session,
                session.request(
                    method,
                    self.world.simulation.url + path,
                    data=json.dumps(body) if body is not None else None,
                    headers={"Content-Type": kind},
                ) as answer,
            ):
                return answer.status, json.loads(await answer.read())

        return await self.process.run(send())

    async def node(self, name: str, spec: Json | None = None, record: Json | None = None, **meta: Any) -> None:
        notes = {"annotations": {DRAIN: json.dumps(record)}} if record is not None else {}
        code, _ = await self.ask("PATCH", f"/api/v1/nodes/{name}", {"metadata": {**notes, **meta}, "spec": spec or {}})
        assert code == 200

    async def claim(self, name: str, op: str = "op1", phase: str = "Claimed") -> None:
        taint = {**DRAINING, "value": op}
        await self.node(name, {"unschedulable": True, "taints": [taint]}, self.record(op, phase))

    def record(self, op: str = "op1", phase: str = "Claimed", holder: str = "") -> Json:
        program = self.name.rpartition("-")[0]
        return {"v": 1, "phase": phase, "controller": program, "op": op, "holder": f"{holder or self.name}_1"}

    async def evict(self, pod: Json, **preconditions: str) -> int:
        meta = pod["metadata"]
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": meta["name"], "namespace": "shop"},
            "deleteOptions": {"preconditions": preconditions},
        }
        return (await self.ask("POST", f"/api/v1/namespaces/shop/pods/{meta['name']}/eviction", body))[0]

    async def lead(self) -> None:
        """Take the Lease of the own name."""
        program = self.name.rpartition("-")[0]
        path = "/apis/coordination.k8s.io/v1/namespaces/tightship/leases"
        lease = self.world.store.find("Lease", program, "tightship")
        spec = {"holderIdentity": f"{self.name}_1", "leaseDurationSeconds": 15}
        if lease is None:
            await self.ask("POST", path, {"metadata": {"name": program}, "spec": spec})
        else:
            await self.ask("PUT", f"{path}/{program}", {**lease, "spec": spec})


Script = Callable[[World], Awaitable[None]]
SCRIPTS: dict[str, tuple[Script, Scenario]] = {}


def _scenario(**changes: Any) -> Scenario:
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


def lies(promise: str, **changes: Any) -> Callable[[Script], Script]:
    """Register a script that breaks *promise*."""

    def register(script: Script) -> Script:
        SCRIPTS[promise] = script, _scenario(**changes)
        return script

    return register


def _pod(world: World, number: int = 0) -> Json:
    return world.store.list("Pod", "shop")[number]


async def _leading(world: World, name: str = NAME) -> Liar:
    liar = Liar(world, name)
    await asyncio.sleep(8)
    await liar.lead()
    return liar


@lies("within-pod-budgets", budgets=[Budget(name="b", workload="web", spec={"minAvailable": 3})])
async def _deletes_past_a_budget(world: World) -> None:
    liar = await _leading(world)
    await liar.ask("DELETE", f"/api/v1/namespaces/shop/pods/{_pod(world)['metadata']['name']}")


@lies("not-evicted-twice", workloads=[Workload(name="web", annotations={"tightship-simulator/stops-after": "30"})])
async def _evicts_again(world: World) -> None:
    liar = await _leading(world)
    pod = _pod(world)
    assert await liar.evict(pod, uid=pod["metadata"]["uid"]) == 201
    await asyncio.sleep(5)
    assert await liar.evict(pod, uid=pod["metadata"]["uid"]) == 201


@lies("opt-outs-respected")
async def _evicts_from_a_node_that_opts_out(world: World) -> None:
    liar = await _leading(world)
    pod = _pod(world)
    await liar.claim(pod["spec"]["nodeName"], phase="Evicting")
    with writing_as("person"):
        note = {"karpenter.sh/do-not-disrupt": "true"}
        world.store.modify(
            "Node", pod["spec"]["nodeName"], change=lambda each: each["metadata"]["annotations"].update(note)
        )
    await asyncio.sleep(4)
    await liar.evict(pod, uid=pod["metadata"]["uid"])


@lies("only-from-nodes-in-drain")
async def _evicts_without_a_record(world: World) -> None:
    liar = await _leading(world)
    await liar.evict(_pod(world), uid=_pod(world)["metadata"]["uid"])


@lies("somewhere-to-go", nodes=[Node(name="n1", pool="a")], pools=[Pool(name="a", most=1)])
async def _evicts_from_the_only_node(world: World) -> None:
    liar = await _leading(world)
    await liar.claim("n1", phase="Evicting")
    await asyncio.sleep(21)
    await liar.evict(_pod(world), uid=_pod(world)["metadata"]["uid"])


@lies("no-eviction-loop", workloads=[Workload(name="web", kind="ReplicaSet", spec={"nodeName": "n1"})])
async def _evicts_what_comes_back(world: World) -> None:
    liar = await _leading(world)
    await liar.claim("n1", phase="Evicting")
    for _ in range(2):
        await liar.evict(_pod(world), uid=_pod(world)["metadata"]["uid"])
        await asyncio.sleep(6)


@lies("cordon-has-owner", story=70.0)
async def _cordons_in_the_name_of_the_dead(world: World) -> None:
    liar = await _leading(world)
    await liar.node("n1", {"unschedulable": True, "taints": [DRAINING]}, liar.record(holder="node-compactor-7"))


@lies("persons-cordon-stays")
async def _lifts_a_persons_cordon(world: World) -> None:
    liar = await _leading(world)
    with writing_as("person"):
        world.store.modify("Node", "n1", change=lambda each: each["spec"].update(unschedulable=True))
    await liar.node("n1", {"unschedulable": None})


@lies("persons-uncordon-stays")
async def _cordons_again(world: World) -> None:
    liar = await _leading(world)
    await liar.claim("n1")
    with writing_as("person"):
        world.store.modify("Node", "n1", change=lambda each: each["spec"].update(unschedulable=False))
    await asyncio.sleep(1)
    await liar.node("n1", {"unschedulable": True})


@lies("left-to-autoscaler")
async def _uncordons_under_the_autoscaler(world: World) -> None:
    liar = await _leading(world)
    await liar.claim("n1")
    taint = {"key": "ToBeDeletedByClusterAutoscaler", "value": "1", "effect": "NoSchedule"}
    with writing_as("autoscaler"):
        world.store.modify("Node", "n1", change=lambda each: each["spec"]["taints"].append(taint))
    await liar.node("n1", {"unschedulable": None})


@lies("within-drain-budget")
async def _claims_two(world: World) -> None:
    liar = await _leading(world)
    await liar.claim("n1")
    await liar.claim("n2", "op2")


@lies("minimums-kept", controllers=[Controller(program="node-refiner", skews=[], settings={"minimum_nodes": 3})])
async def _goes_below_the_minimum(world: World) -> None:
    liar = await _leading(world, "node-refiner-0")
    await liar.claim("n1")


@lies(
    "waits-until-well",
    story=120.0,
    nodes=[Node(name="n1", pool="a"), Node(name="n2", pool="a")],
    pools=[Pool(name="a", most=2)],
    workloads=[Workload(name="web", replicas=2, cpu="3")],
    controllers=[Controller(program="node-compactor", skews=[], settings={"pendingAfterDrainTimeout": 5})],
)
async def _claims_while_pods_wait(world: World) -> None:
    liar = await _leading(world)
    await liar.claim("n1")
    await liar.node("n1", {"unschedulable": None, "taints": None}, {"v": 1, "phase": "Backoff"})
    await asyncio.sleep(10)
    with writing_as("person"):
        world.store.modify("Deployment", "web", "shop", lambda each: each["spec"].update(replicas=3))
    await asyncio.sleep(60)
    await liar.claim("n2", "op2")


@lies("written-before-done")
async def _cordons_before_it_says_so(world: World) -> None:
    liar = await _leading(world)
    await liar.node("n1", {"unschedulable": True})


@lies("settles", controllers=[Controller(program="node-compactor", skews=[], settings={"settleTime": 6})])
async def _evicts_at_once(world: World) -> None:
    liar = await _leading(world)
    pod = _pod(world)
    await liar.claim(pod["spec"]["nodeName"], phase="Evicting")
    await liar.evict(pod, uid=pod["metadata"]["uid"])


@lies("not-ready-left-alone")
async def _evicts_from_a_node_that_is_not_ready(world: World) -> None:
    liar = await _leading(world)
    pod = _pod(world)
    await liar.claim(pod["spec"]["nodeName"], phase="Evicting")
    set_ready(world, pod["spec"]["nodeName"], False)
    await asyncio.sleep(4)
    await liar.evict(pod, uid=pod["metadata"]["uid"])


@lies("drained-is-empty")
async def _calls_a_full_node_drained(world: World) -> None:
    liar = await _leading(world)
    await liar.claim(_pod(world)["spec"]["nodeName"], phase="Drained")


@lies("pauses-kept")
async def _tries_too_soon(world: World) -> None:
    liar = await _leading(world)
    await liar.node("n1", record={"v": 1, "phase": "Backoff", "nextTry": "2026-01-05T09:00:00.000Z"})
    await liar.claim("n1")


@lies("pending-gets-its-node", story=120.0, nodes=[Node(name="n1", pool="a")], pools=[Pool(name="a", most=1)])
async def _keeps_a_node_from_pods(world: World) -> None:
    liar = await _leading(world)
    await liar.claim("n1", phase="Drained")
    await asyncio.sleep(4)
    with writing_as("person"):
        world.store.modify("Deployment", "web", "shop", lambda each: each["spec"].update(replicas=5))


@lies("no-churn", story=60.0, pools=[Pool(name="a", least=0, most=3)])
async def _drains_what_comes_back(world: World) -> None:
    liar = await _leading(world)
    await liar.claim("n1", "op1", "Drained")
    node = world.store.get("Node", "n1")
    world.store.delete("Node", "n1")
    made = {"metadata": {"name": "n1", "labels": node["metadata"]["labels"]}, "spec": {}, "status": node["status"]}
    world.store.create("Node", made)
    await asyncio.sleep(31)
    await liar.claim("n1", "op2")


@lies("one-writer")
async def _writes_after_it_was_succeeded(world: World) -> None:
    liar = await _leading(world)
    await liar.node("n1", record={"v": 1, "phase": "Marked"})
    successor = Liar(world, "node-compactor-1")
    await successor.lead()
    await successor.node("n2", record={"v": 1, "phase": "Marked"})
    await asyncio.sleep(1)
    await liar.node("n3", record={"v": 1, "phase": "Marked"})


@lies("live-drain-left-alone")
async def _takes_anothers_drain(world: World) -> None:
    liar = await _leading(world)
    await liar.claim("n1")
    other = Liar(world, "node-refiner-0")
    await other.lead()
    await other.node("n1", record=other.record(phase="Restoring"))


@lies("dry-runs-write-nothing")
async def _claims_in_a_dry_run_that_has_a_node_to_give_back(world: World) -> None:
    liar = await _leading(world)
    await liar.claim("n1")
    world.teams["node-compactor"].dry.add(NAME)
    await liar.claim("n2")


@lies("only-documented-rights")
async def _reads_secrets(world: World) -> None:
    liar = await _leading(world)
    await liar.ask("GET", "/api/v1/secrets")


@lies("switched-off-begins-nothing", story=70.0)
async def _claims_switched_off(world: World) -> None:
    liar = await _leading(world)
    await asyncio.sleep(45)
    await liar.claim("n1")


@lies("nothing-left")
async def _leaves_a_soft_taint(world: World) -> None:
    liar = await _leading(world)
    await liar.node(
        "n1", {"taints": [{"key": "tightship.dev/candidate", "value": "node-compactor", "effect": "PreferNoSchedule"}]}
    )


@lies("no-crash")
async def _crashes(world: World) -> None:
    Liar(world).crashed = True


@lies("leaders-lead", story=60.0)
async def _lets_its_lease_run_out(world: World) -> None:
    Liar(world)


@lies(
    "drains-end",
    story=10.0,
    quiet=80.0,
    controllers=[
        Controller(
            program="node-compactor",
            skews=[],
            settings={"nodeDrainTimeout": 2, "settleTime": 1, "handOverTimeout": 1, "awaitCompletionFor": 0},
        )
    ],
)
async def _drains_for_ever(world: World) -> None:
    liar = await _leading(world)
    await liar.claim("n1")


@lies("nothing-of-others-changed")
async def _writes_a_label(world: World) -> None:
    liar = await _leading(world)
    await liar.node("n1", labels={"example.com/mine": "now"})


def _played(script: Script, scenario: Scenario) -> list[Any]:
    tasks: list[asyncio.Task[None]] = []

    def ready(world: World, _: Observer) -> None:
        async def play() -> None:
            await script(world)

        tasks.append(asyncio.create_task(play()))

    result = run(scenario, ready)
    [task] = tasks
    assert task.done(), "the liar was not done in time"
    task.result()
    return result.violations


@pytest.mark.parametrize("promise", sorted(SCRIPTS))
def test_a_liar_is_found_and_is_no_known_finding(promise: str) -> None:
    found = [each for each in _played(*SCRIPTS[promise]) if each.promise == promise]
    assert any(finding(each) is None for each in found)


def test_each_promise_has_a_liar() -> None:
    assert set(SCRIPTS) == {name for name, each in PROMISES.items() if each.about == "nodes"}


def test_where_nobody_lies_nothing_is_broken() -> None:
    async def nothing(_: World) -> None:
        await asyncio.sleep(0)

    assert _played(nothing, _scenario()) == []


def test_a_pause_that_the_record_itself_makes_too_short_is_seen() -> None:
    async def hurry(world: World) -> None:
        liar = await _leading(world)
        await liar.claim("n1")
        await liar.node("n1", record={"v": 1, "phase": "Backoff", "nextTry": "2026-01-05T08:00:00.000Z"})
        await liar.claim("n1", "op2")

    settings = {"backoff": 10}
    controllers = [Controller(program="node-compactor", skews=[], settings=settings)]
    found = [each.what for each in _played(hurry, _scenario(controllers=controllers)) if each.promise == "pauses-kept"]
    assert found == ["node-compactor-0 claimed it 0.0 s after its last drain was given up, 10 s must pass"]


@pytest.mark.parametrize(("after", "seen"), [(22, True), (0, False)])
def test_a_lease_that_is_left_behind_is_seen_while_it_keeps_others_waiting(after: float, seen: bool) -> None:
    async def leave(world: World) -> None:
        await asyncio.sleep(after)
        await _leading(world)

    left = [each.what for each in _played(leave, _scenario()) if each.promise == "nothing-left"]
    assert left == (["is held by node-compactor-0_1, which has ended"] if seen else [])


def test_who_turns_without_end_is_found() -> None:
    async def spin() -> None:
        while True:  # noqa: ASYNC110 - what is to be found
            await asyncio.sleep(0)

    def ready(world: World, _: Observer) -> None:
        Liar(world).process.run(spin())

    [found] = [each for each in run(_scenario(), ready).violations if each.promise == "no-crash"]
    assert "turns without end" in found.what
