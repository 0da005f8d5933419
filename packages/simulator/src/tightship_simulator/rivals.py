"""An imagined fleet whose applications exclude each other from nodes, as traces of large clusters show it.

Memory is tight: the pods request four fifths of it, at any hour. Every application has one required anti-affinity term
by hostname that lists the applications it does not share a node with. Some applications exclude themselves too. Half of
an exclusion is enough, since the term of either pod keeps both apart; so a conflict is in the term of one side only.
"""

from __future__ import annotations

import heapq
import random

from tightship_simulator.fleet import MEBI, PEAK, Fleet, Load, Machine, make_machines

PODS_PER_APPLICATION = 30 / 7
"""Pods of one application, on average."""

CPU = 0.45
"""Share of the CPU that pods request."""

APART = 0.25
"""Share of the applications that exclude themselves."""

NAMESPACE = "rivals"


def make_rivals(rng: random.Random, nodes: int, pools: int, pods: int, conflicts: int) -> Fleet:
    """Return a fleet of *nodes* machines with about *pods* pods, whose applications have *conflicts* conflicts.

    A few applications conflict with many others, most with some. A pod that finds no machine is not made.
    """
    machines = make_machines(rng, nodes, pools)
    members = [machine for machine in machines if not machine.gpus]
    loads = _applications(rng, members, pods)
    excluded = _conflicts(rng, loads, conflicts)
    names = {load.name: load for load in loads}
    for name, others in excluded.items():
        names[name].rivals = tuple(sorted(others))
    both: dict[str, set[str]] = {load.name: set(load.rivals) for load in loads}
    for load in loads:
        for other in load.rivals:
            both[other].add(load.name)
    held: dict[str, set[str]] = {machine.name: set() for machine in members}
    for load in sorted(loads, key=lambda each: (-len(both[each.name]), each.name)):
        _place(load, members, both[load.name], held)
    return Fleet(machines, [load for load in loads if load.places])


def _applications(rng: random.Random, members: list[Machine], pods: int) -> list[Load]:
    count = max(2, round(pods / PODS_PER_APPLICATION))
    mean_cpu = CPU * sum(machine.free_cpu for machine in members) / pods
    mean_memory = PEAK * sum(machine.free_memory for machine in members) / pods
    # Every application has a pod, and the rest go to a few at first: fleets have few large and many small ones.
    replicas = [1] * count
    for _ in range(pods - count):
        replicas[int(count * rng.random() ** 2)] += 1
    largest = max(machine.memory for machine in members) // 3
    found: list[Load] = []
    for number in range(count):
        memory = mean_memory * rng.choice((0.4, 0.6, 0.8, 1.0, 1.2, 1.5, 1.5))
        found.append(
            Load(
                name=f"app-{number:04d}",
                namespace=NAMESPACE,
                kind="ReplicaSet",
                pool="",
                cpu=max(10, round(mean_cpu * rng.choice((0.5, 0.8, 1.0, 1.2, 1.5)) / 10) * 10),
                memory=min(largest, max(16, round(memory / MEBI)) * MEBI),
                peak=replicas[number],
            )
        )
    return found


def _conflicts(rng: random.Random, loads: list[Load], conflicts: int) -> dict[str, set[str]]:
    """Return by application those that its term lists: *conflicts* pairs, or as many as there are, and some itself."""
    count = len(loads)
    most = count * (count - 1) // 2
    found: dict[str, set[str]] = {load.name: set() for load in loads}
    pairs: set[tuple[int, int]] = set()
    while len(pairs) < min(conflicts, most):
        one, other = int(count * rng.random() ** 1.5), rng.randrange(count)
        pair = min(one, other), max(one, other)
        if one != other and pair not in pairs:
            pairs.add(pair)
            found[loads[one].name].add(loads[other].name)
    for load in loads:
        if load.peak <= 10 and rng.random() < APART:
            found[load.name].add(load.name)
    return found


def _place(load: Load, members: list[Machine], excluded: set[str], held: dict[str, set[str]]) -> None:
    """Bind pods to the machine with the largest share of free memory that may take one."""
    heap = [(machine.free_memory / -machine.memory, number) for number, machine in enumerate(members)]
    heapq.heapify(heap)
    left = load.peak
    while heap and left:
        _, number = heapq.heappop(heap)
        machine = members[number]
        own = held[machine.name]
        short = machine.free_cpu < load.cpu or machine.free_memory < load.memory or machine.pods >= 90
        if short or not own.isdisjoint(excluded):
            continue
        load.places.append(machine)
        own.add(load.name)
        machine.free_cpu -= load.cpu
        machine.free_memory -= load.memory
        machine.pods += 1
        left -= 1
        heapq.heappush(heap, (machine.free_memory / -machine.memory, number))
