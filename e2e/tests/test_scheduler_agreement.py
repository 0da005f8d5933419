"""Our placement judgement against the real kube-scheduler, on random clusters.

``--clusters N --first-seed S`` (or TIGHTSHIP_CLUSTERS, TIGHTSHIP_FIRST_SEED) choose the clusters. A disagreement
writes the cluster to a file in pytest's temporary directory and prints its path, the seed and the step.
"""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Awaitable, Iterator
from functools import partial
from pathlib import Path

import msgspec
import pytest

from tightship.cluster import Budgets
from tightship.objects import Pod
from tightship.objects.reasons import Reason
from tightship.planning.plan import STRATEGIES, Candidate, Planner, Removal, Strategy, make_plan
from tightship.rules.disruption import DisruptionLedger
from tightship_e2e import ControlPlane
from tightship_e2e.draining import (
    DEADLINE,
    TALLY,
    begin,
    cordon,
    evict_all,
    name,
    pods_of,
    saved,
    scheduled,
    settled,
    uncordon,
)
from tightship_e2e.provisioner import provisioning
from tightship_simulator import World, random_cluster, with_volumes
from tightship_simulator.checker import place_all
from tightship_testkit.client import Client, Items, Json, wait_for
from tightship_testkit.planning import judge, snapshot_of

HOLD = "e2e.tightship.dev/hold"
NO_PLACE = {Reason.NO_PLACE, Reason.NO_PLACE_TOGETHER}
REFUSALS = 2
"""Refusals tried out per cluster."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    first = metafunc.config.getoption("first_seed")
    metafunc.parametrize("seed", range(first, first + metafunc.config.getoption("clusters")))


@contextlib.contextmanager
def on_record(tmp_path: Path, seed: int) -> Iterator[Json]:
    """Yield the seed's cluster; when the body fails, write it down and say where."""
    cluster = random_cluster(seed)
    if seed % 3:
        cluster = with_volumes(cluster, seed)
    try:
        yield cluster
    except BaseException as error:
        path = tmp_path / f"cluster-{seed}.json"
        path.write_text(json.dumps(cluster))
        error.add_note(f"seed {seed}; the cluster is in {path}")
        raise
    TALLY["clusters"] += 1


def strategy_for(seed: int) -> Strategy:
    strategies = list(STRATEGIES.values())
    return strategies[seed % len(strategies)]


def test_every_planned_target_is_accepted(control_plane: ControlPlane, tmp_path: Path, seed: int) -> None:
    """The scheduler, asked for each pod whether it may go where the plan sends it, says yes every time."""
    with on_record(tmp_path, seed) as cluster:
        control_plane.run(lambda api: _provided(api, _Targets(api, control_plane, strategy_for(seed)).run(cluster)))


async def _provided(api: Client, work: Awaitable[None]) -> None:
    async with provisioning(api):
        await work


class _Targets:
    """Replacements are held by a scheduling gate, nominated to their target, and let go one at a time.

    kube-scheduler tries the nominated node first, and takes it if and only if all its filters pass.
    """

    def __init__(self, api: Client, plane: ControlPlane, strategy: Strategy) -> None:
        self.api = api
        self.plane = plane
        self.strategy = strategy

    async def run(self, cluster: Json) -> None:
        live = await begin(self.api, self.plane, cluster)
        plan = make_plan(snapshot_of(live), judge, self.strategy, "possible")
        TALLY["plans"] += 1
        self.world = World(live)
        self.names = {key: name(pod) for key, pod in self.world.pods.items()}
        if plan.evictions:
            await self.api.each(
                self.hold_replacements, [each for each in live["items"] if each["kind"] == "ReplicaSet"]
            )
        for removal in plan.removals:
            await self.drain(removal)

    async def hold_replacements(self, owner: Json) -> None:
        spec = {"template": {"spec": {"schedulingGates": [{"name": HOLD}]}}}
        namespace = owner["metadata"]["namespace"]
        held = await self.api.patch("ReplicaSet", name(owner), {"spec": spec}, namespace)

        async def seen() -> bool:
            # Its watches of ReplicaSets and pods are not ordered among each other.
            status = (await self.api.get("ReplicaSet", name(owner), namespace)).get("status") or {}
            return bool(status.get("observedGeneration", 0) >= held["metadata"]["generation"])

        await wait_for(seen, DEADLINE, f"the controller of {name(owner)} has seen the gate")

    async def drain(self, removal: Removal) -> None:
        self.world.cordon(removal.node)
        await cordon(self.api, removal.node)
        staying = {move.pod.key: move.target for move in removal.moves}
        leaving: dict[str, tuple[Json, str]] = {}

        async def emptied() -> bool:
            for key in list(staying):
                if await self.api.evict(key.partition("/")[0], self.names[key], grace=0) == 201:
                    leaving[key] = self.world.remove(key), staying.pop(key)
            order: list[str] = []
            # Where budgets let pods go only one after another, the first find their place before the last have left.
            if place_all(self.world, list(leaving.values()), order.append):
                for key in order:
                    await self.land(removal.node, key, *leaving.pop(key))
            return not staying and not leaving

        await wait_for(emptied, DEADLINE, f"{removal.node} is emptied as planned; {sorted(staying)} {sorted(leaving)}")

    async def land(self, origin: str, key: str, pod: Json, target: str) -> None:
        owner = pod["metadata"]["ownerReferences"][0]["uid"]
        namespace = pod["metadata"]["namespace"]

        async def held() -> Items:
            pods = await self.api.list("Pod", namespace, fieldSelector="spec.nodeName=")
            return [
                each for each in pods if owner in [ref["uid"] for ref in each["metadata"].get("ownerReferences", [])]
            ]

        new = name((await wait_for(held, DEADLINE, f"a replacement of {key}"))[0])
        self.names[key] = new
        status = {"status": {"nominatedNodeName": target}}
        await self.api.patch("Pod", new, status, namespace, subresource="status")
        let_go = [{"op": "remove", "path": "/spec/schedulingGates"}]
        await self.api.patch("Pod", new, let_go, namespace, patch_type="json")

        async def decided() -> Json | None:
            found = await self.api.get("Pod", new, namespace)
            return found if found["spec"].get("nodeName") or scheduled(found)[0] == "Unschedulable" else None

        found = await wait_for(decided, DEADLINE, f"a decision on {new}")
        assert found is not None
        landed = found["spec"].get("nodeName")
        TALLY["targets accepted"] += 1
        assert landed == target, f"{origin}: {key} was to go to {target}, went to {landed}: {scheduled(found)[1]}"


def test_nodes_refused_for_want_of_a_place_leave_something_pending(
    control_plane: ControlPlane, tmp_path: Path, seed: int
) -> None:
    """Nodes that a plan refuses for want of a place are drained all the same."""
    with on_record(tmp_path, seed) as cluster:
        control_plane.run(lambda api: _provided(api, _refusals_hold(api, control_plane, cluster)))


async def _refusals_hold(api: Client, plane: ControlPlane, cluster: Json) -> None:
    live = await begin(api, plane, cluster)
    # Budgets are another rule; they would only hide refusals for want of a place.
    await api.each(lambda item: api.delete("PodDisruptionBudget", name(item), item["metadata"]["namespace"]),
                   [item for item in live["items"] if item["kind"] == "PodDisruptionBudget"])  # fmt: skip
    for _ in range(REFUSALS):
        live = await saved(api)
        snapshot = msgspec.structs.replace(snapshot_of(live), budgets=Budgets())
        candidates = judge(snapshot).candidates
        planner = Planner(snapshot, DisruptionLedger(snapshot), candidates, "possible")
        for candidate in candidates:
            refusals = planner.attempt(candidate)
            if refusals and {each.reason for each in refusals} <= NO_PLACE and not _shared(planner, candidate):
                break
            if not refusals:
                # This one would go; judge the others without it.
                planner = Planner(snapshot, DisruptionLedger(snapshot), candidates, "possible")
        else:
            return
        await cordon(api, candidate.name)
        # The scheduler sees the pods only when all have left: a refusal speaks of all of them together.
        with plane.paused("kube-scheduler"):
            await evict_all(api, pods_of(live, {pod.key for pod in candidate.evict}), ask_budgets=False)
            await wait_for(partial(_left, api, candidate.name), DEADLINE, f"pods have left {candidate.name}")
        stuck = await settled(api, plane)
        TALLY["refusals tried"] += 1
        texts = "; ".join(map(str, refusals))
        assert stuck, f"{candidate.name} was refused ({texts}), and yet all its pods found a place"
        await uncordon(api, candidate.name, [
            {key: value for key, value in (("key", t.key), ("effect", t.effect), ("value", t.value)) if value}
            for t in snapshot.nodes[candidate.name].node.taints
        ])  # fmt: skip
        await settled(api, plane)  # what was left without a place goes back


def _shared(planner: Planner, candidate: Candidate) -> bool:
    """Whether a pod has a claim that pods on two nodes can't share: the scheduler would part them."""
    views = planner.snapshot.nodes.values()
    users = Counter(claim for view in views for pod in view.pods for claim in _once(planner, pod))
    return any(users[claim] > 1 for pod in candidate.evict for claim in _once(planner, pod))


def _once(planner: Planner, pod: Pod) -> list[str]:
    return [claim for claim, alone in planner.space.demand_of(pod).attachments.shared if not alone]


async def _left(api: Client, node: str) -> bool:
    pods = await api.list("Pod", fieldSelector=f"spec.nodeName={node}")
    return all(
        ref["kind"] == "DaemonSet" for pod in pods for ref in pod["metadata"].get("ownerReferences") or [{"kind": ""}]
    )
