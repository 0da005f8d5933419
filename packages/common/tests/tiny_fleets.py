"""Random fleets small enough to try every plan: the fewest nodes that any plan keeps."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import combinations
from typing import Any

from cluster_builder import anti_affinity, node, pod
from msgspec import Struct
from search_fleets import OWNER


class TinyPod(Struct, frozen=True):
    """A pod: its workload, node, amounts, the zone it must be in if any, and whether its workload's pods go apart."""

    app: int
    home: int
    cpu: int
    memory: int
    zone: str
    apart: bool


class TinyNode(Struct, frozen=True):
    cpu: int
    memory: int
    zone: str
    goes: bool
    """Whether the node may go at all."""


class TinyFleet(Struct, frozen=True):
    """A fleet; *allowed* is what the budget of each workload that has one allows, *most* how many nodes may go."""

    nodes: tuple[TinyNode, ...]
    pods: tuple[TinyPod, ...]
    allowed: dict[int, int]
    most: int

    @property
    def cluster(self) -> dict[str, Any]:
        """The fleet as a List of API objects."""
        items: list[dict[str, Any]] = [OWNER]
        for number, each in enumerate(self.nodes):
            items.append(node(f"n{number}", str(each.cpu), f"{each.memory}Gi", zone=each.zone))
        for number, each in enumerate(self.pods):
            more: dict[str, Any] = {"nodeSelector": {"topology.kubernetes.io/zone": each.zone}} if each.zone else {}
            if each.apart:
                more["affinity"] = anti_affinity(app=f"w{each.app}")
            labels = {"app": f"w{each.app}"}
            items.append(pod(f"p{number}", f"n{each.home}", str(each.cpu), f"{each.memory}Gi", labels=labels, **more))
        for app, allowed in self.allowed.items():
            status = {"disruptionsAllowed": allowed, "currentHealthy": 9, "desiredHealthy": 9 - allowed}
            items.append(
                {
                    "kind": "PodDisruptionBudget",
                    "metadata": {"name": f"w{app}", "namespace": "default", "generation": 1},
                    "spec": {"selector": {"matchLabels": {"app": f"w{app}"}}, "maxUnavailable": allowed},
                    "status": {**status, "expectedPods": 9, "observedGeneration": 1},
                }
            )
        return {"kind": "List", "items": items}

    def fewest(self) -> int:
        """Return how many nodes the best plan of one round keeps."""
        return min(len(self.nodes) - len(closed) for closed in self._plans())

    def evictions(self) -> dict[int, int]:
        """Return the fewest evictions of a plan that removes at least so many nodes, by that number."""
        found: dict[int, int] = {}
        for closed in self._plans():
            pods = sum(each.home in closed for each in self.pods)
            for removed in range(len(closed) + 1):
                found[removed] = min(pods, found.get(removed, pods))
        return found

    def _plans(self) -> Iterator[frozenset[int]]:
        """Yield each set of nodes that can go together."""
        goes = [number for number, each in enumerate(self.nodes) if each.goes]
        for size in range(min(len(goes), self.most) + 1):
            for closed in map(frozenset, combinations(goes, size)):
                if self._within_budgets(closed) and self._fits(closed):
                    yield closed

    def _within_budgets(self, closed: frozenset[int]) -> bool:
        """Whether some order of the nodes finds an allowance of each budget left at the turn of each node."""
        for app, allowed in self.allowed.items():
            needs = [sum(each.home == number and each.app == app for each in self.pods) for number in closed]
            needs = [need for need in needs if need]
            # The node with the most pods goes last, and may take more than what is left.
            if needs and sum(needs) - max(needs) >= allowed:
                return False
        return True

    def _fits(self, closed: frozenset[int]) -> bool:
        free = [[each.cpu, each.memory] for each in self.nodes]
        apps: list[list[int]] = [[] for _ in self.nodes]
        moving = [each for each in self.pods if each.home in closed]
        for each in self.pods:
            if each.home not in closed:
                free[each.home][0] -= each.cpu
                free[each.home][1] -= each.memory
                apps[each.home].append(each.app)
        moving.sort(key=lambda each: -each.cpu)

        def place(rest: int) -> bool:
            if rest == len(moving):
                return True
            one = moving[rest]
            for number, at in enumerate(self.nodes):
                if number in closed or (one.zone and at.zone != one.zone) or (one.apart and one.app in apps[number]):
                    continue
                if free[number][0] >= one.cpu and free[number][1] >= one.memory:
                    free[number][0] -= one.cpu
                    free[number][1] -= one.memory
                    apps[number].append(one.app)
                    if place(rest + 1):
                        return True
                    apps[number].pop()
                    free[number][0] += one.cpu
                    free[number][1] += one.memory
            return False

        return place(0)


def tiny_fleet(seed: int) -> TinyFleet:
    """Return a fleet of three to six nodes with up to twelve pods, the same for the same seed."""
    rng = random.Random(seed)
    nodes = tuple(
        TinyNode(
            cpu=rng.choice([4, 4, 8, 16]),
            memory=rng.choice([8, 16, 32]),
            zone=rng.choice("ab"),
            goes=rng.random() < 0.85,
        )
        for _ in range(rng.randint(3, 6))
    )
    free = [[each.cpu, each.memory] for each in nodes]
    pods: list[TinyPod] = []
    apart = [rng.random() < 0.4 for _ in range(4)]
    shape = [(rng.randint(1, 5), rng.randint(1, 12), rng.choice(["", "", "a", "b"])) for _ in range(4)]
    for _ in range(rng.randint(3, 12)):
        app = rng.randrange(4)
        cpu, memory, zone = shape[app]
        homes = [
            number
            for number, each in enumerate(nodes)
            if free[number][0] >= cpu
            and free[number][1] >= memory
            and (not zone or each.zone == zone)
            and not (apart[app] and any(one.app == app and one.home == number for one in pods))
        ]
        if homes:
            home = rng.choice(homes)
            free[home][0] -= cpu
            free[home][1] -= memory
            pods.append(TinyPod(app, home, cpu, memory, zone, apart[app]))
    allowed = {app: rng.randint(1, 3) for app in range(4) if rng.random() < 0.3}
    return TinyFleet(nodes, tuple(pods), allowed, rng.choice([1, 2, 9, 9, 9]))
