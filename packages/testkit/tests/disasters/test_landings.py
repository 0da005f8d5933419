"""The pilot in a small cluster: where replacements land, and what a replica leaves that is lost at a write."""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import Any

import pytest

from tightship_simulator.api.store import Change
from tightship_testkit.disasters import steps as all_steps
from tightship_testkit.disasters.landings import led
from tightship_testkit.disasters.observer import Observer
from tightship_testkit.disasters.run import Result, run
from tightship_testkit.disasters.scenario import Autoscaler, Controller, Landings, Node, Pool, Scenario, Step, Workload
from tightship_testkit.disasters.world import Json, World

pytestmark = pytest.mark.virtual_time

assert all_steps

VARIABLES = {
    "INTERVAL": "5",
    "LEASE_DURATION": "15s",
    "LEASE_RENEW_DEADLINE": "10s",
    "LEASE_RETRY_PERIOD": "4s",
    "REQUEST_TIMEOUT": "5s",
    "HTTP_PORTS": "9101",
}
SETTINGS: Json = {
    "nodePools": {"*": {"enabled": False}},
    "maximumNodesInDrain": 2,
    "minimumNodeAge": 0,
    "neededMarkedTimeForRemoval": 0,
    "settleTime": "1s",
    "coolDownAfterNodeAdded": 0,
    "workloadPause": 0,
}
POOLS: Json = {"*": {"enabled": True, "scaleDownCPURequestRatioLimit": 0.9}}
BEGIN = Step(at=8.0, kind="configure", args={"program": "node-compactor", "key": "nodePools", "value": POOLS})
"""By then all pods run, on all nodes."""
WRITES = ("configmaps", "nodes", "pods/eviction")
NODES = 6
ALONE = {"kill": 15.0, "freeze": 50.0, "stop": 8.0}
"""Most seconds for which a pod may be without a node without a standby: until another one leads, goes on, or ends."""
MOST = {"kill": 2, "freeze": 1, "stop": 1}
"""Writes of each resource at which a replica is lost, from the first on."""


def scenario(*steps: Step, replicas: int = 2, story: float = 100.0, **chart: Any) -> Scenario:
    """Return a cluster in which most nodes may go, and replicas that lead pods."""
    landings = Landings(**chart)
    kinds = ("Deployment", "StatefulSet", "Deployment", "ReplicaSet")
    return Scenario(
        seed=7,
        story=story,
        quiet=60.0,
        pools=[Pool(name="a", least=1, most=NODES)],
        nodes=[Node(name=f"n{number}", pool="a") for number in range(NODES)],
        workloads=[Workload(name=f"w{number}", kind=kind, replicas=3, cpu="250m") for number, kind in enumerate(kinds)],
        controllers=[
            Controller(
                program="node-compactor",
                skews=[0.0] * replicas,
                settings={**SETTINGS, "steering": "hints"},
                variables=VARIABLES,
                landings=landings,
            )
        ],
        steps=[*steps, BEGIN],
        autoscaler=Autoscaler(unneeded=5.0, threshold=0.0),
    )


class Seen:
    """What became of led pods in a run."""

    def __init__(self) -> None:
        self.led = 0
        self.landed: Counter[str] = Counter()
        self.evicted = 0
        self.longest = 0.0
        self.asked: Counter[str] = Counter()
        self._since: dict[str, float] = {}

    def ready(self, world: World, observer: Observer) -> None:
        """Look on from here."""
        self._world = world
        world.store.listeners.append(self._changed)
        asked = observer.asked

        def note(request: Any) -> None:
            if request.by and request.writes:
                full = f"{request.resource}/{request.subresource}" if request.subresource else request.resource
                self.asked[full] += 1
            asked(request)

        observer.asked = note  # type: ignore[method-assign]

    def _changed(self, change: Change, author: str) -> None:
        pod, old = change.object, change.previous
        if pod["kind"] != "Pod":
            return
        uid, now = pod["metadata"]["uid"], self._world.now
        if led(pod) and change.type == "ADDED":
            self.led += 1
            self._since[uid] = now
        if uid in self._since and ("nodeName" in pod["spec"] or change.type == "DELETED"):
            self.longest = max(self.longest, now - self._since.pop(uid))
            of_nodes = pod["spec"]["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
            wanted = {each["preference"]["matchFields"][0]["values"][0] for each in of_nodes}
            self.landed["target" if pod["spec"].get("nodeName") in wanted else "elsewhere"] += 1
        leaves = [each is not None and "deletionTimestamp" in each["metadata"] for each in (old, pod)]
        self.evicted += bool(author) and leaves == [False, True]


def played(story: Scenario) -> tuple[Seen, Result]:
    seen = Seen()
    return seen, run(story, seen.ready)


@cache
def untroubled(replicas: int) -> Counter[str]:
    """Return how often each resource is written where nothing happens to the replicas."""
    return played(scenario(replicas=replicas))[0].asked


def test_each_replacement_lands_where_the_plan_wants_it_without_a_right_on_pods() -> None:
    seen, result = played(scenario())
    assert result.violations == []
    assert seen.evicted == seen.led
    assert seen.led > 3
    assert seen.landed["target"] == seen.led
    assert seen.longest < 2.0
    assert seen.asked["configmaps"] > 0
    assert seen.asked["pods"] == seen.asked["pods/status"] == 0


@pytest.mark.parametrize(
    "chart",
    [{"there": False}, {"policy": ""}, {"policy": "hints/1"}, {"policy": "hints/3"}],
    ids=["no ConfigMap", "no policy", "older", "newer"],
)
def test_without_its_policy_the_pilot_is_off_and_drains_go_on(chart: dict[str, Any]) -> None:
    seen, result = played(scenario(**chart))
    assert result.violations == []
    assert seen.evicted > 3
    assert seen.asked["configmaps"] == seen.asked["pods"] == seen.asked["pods/status"] == 0


@pytest.mark.slow
@pytest.mark.takes(20)
@pytest.mark.parametrize(
    ("what", "replicas", "before"),
    [
        ("kill", 1, True),
        ("kill", 2, False),
        ("freeze", 1, False),
        ("freeze", 2, True),
        ("stop", 1, True),
        ("stop", 2, False),
    ],
)
def test_a_replica_that_is_lost_at_a_write_keeps_no_pod_waiting(what: str, replicas: int, before: bool) -> None:
    asked = untroubled(replicas)
    back = {"skew": 0.0, "back": 5.0}
    reported = {"kill": back, "freeze": {"seconds": 40.0}, "stop": {**back, "back": 30.0}}[what]
    wrong: list[str] = []
    for resource in WRITES:
        assert asked[resource]
        for skip in range(min(asked[resource], MOST[what])):
            args = {"program": "node-compactor", "resource": resource, "before": before, "skip": skip, **reported}
            found, result = played(scenario(Step(at=0.0, kind=f"{what}-at-landing", args=args), replicas=replicas))
            wrong += [f"{resource} {skip}: {each}" for each in result.violations]
            limit = 20.0 if replicas > 1 else ALONE[what]
            if found.longest > limit:
                wrong.append(f"{resource} {skip}: a pod had no node for {found.longest:.1f} s")
    assert not wrong, "\n".join(wrong)
