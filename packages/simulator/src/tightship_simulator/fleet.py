"""An imagined fleet, before it is written as API objects: pools, workloads, and where their pods ended up off-peak.

At peak every pool is about four fifths requested, its pods spread as a scheduler that prefers the least allocated node
spreads them. Then night falls: most workloads lose pods at random, and all nodes stay.
"""

from __future__ import annotations

import heapq
import random
from dataclasses import dataclass, field

ZONES = ("europe-west4-a", "europe-west4-b", "europe-west4-c")
PEAK = 0.8
"""Share of its CPU and memory that a pool's nodes have given away at peak."""

KEPT = 0.55
"""Share of the pods that is left off-peak."""

MEBI = 2**20
ITSELF = (250, 300 * MEBI)
"""milli-CPU and bytes that the DaemonSets' pods take of each node."""

_SHAPES = (
    ("general", "e2-standard-8", 8, 32),
    ("memory", "n2-highmem-16", 16, 128),
    ("small", "e2-standard-4", 4, 16),
    ("compute", "c3-highcpu-22", 22, 44),
)
_NAMES = (
    "cart",
    "search",
    "login",
    "billing",
    "feed",
    "media",
    "orders",
    "notify",
    "quote",
    "report",
    "stock",
    "trace",
)
_ROLES = ("api", "web", "worker", "cache", "gateway", "sync")


@dataclass
class Machine:
    """A node: allocatable milli-CPU and bytes, and what is left of them."""

    name: str
    pool: str
    kind: str
    zone: str
    cpu: int
    memory: int
    gpus: int = 0
    free_cpu: int = 0
    free_memory: int = 0
    pods: int = 0


@dataclass
class Load:
    """A workload: what one pod asks (milli-CPU, bytes), its traits, and its pods' machines (``None``: pending).

    *rivals* are the workloads of its namespace with which it does not share a machine.
    """

    name: str
    namespace: str
    kind: str
    pool: str
    cpu: int
    memory: int
    peak: int
    traits: frozenset[str] = frozenset()
    rivals: tuple[str, ...] = ()
    places: list[Machine | None] = field(default_factory=list)


@dataclass
class Fleet:
    """Machines and the workloads on them."""

    machines: list[Machine]
    loads: list[Load]


def make_fleet(rng: random.Random, nodes: int, pools: int, pods: int) -> Fleet:
    """Return a fleet of *nodes* machines, whose workloads have about *pods* pods left, DaemonSets' not counted."""
    machines = make_machines(rng, nodes, pools)
    loads: list[Load] = []
    by_pool: dict[str, list[Machine]] = {}
    for machine in machines:
        by_pool.setdefault(machine.pool, []).append(machine)
    for pool, members in by_pool.items():
        share = max(2, round(pods / KEPT * len(members) / nodes)) if pool != "gpu" else len(members)
        loads += _loads(rng, pool, members, share, first=len(loads))
    loads += _system(by_pool)
    for load in sorted(loads, key=lambda each: (-each.cpu, each.name)):
        _place(rng, load, by_pool[load.pool])
    for load in loads:
        _shrink(rng, load)
    return Fleet(machines, loads)


def make_machines(rng: random.Random, nodes: int, pools: int) -> list[Machine]:
    """Return *nodes* machines with nothing but the DaemonSets' pods, a few of them with a GPU."""
    gpu_nodes = 0 if nodes < 8 else 1 if nodes < 20 else 2
    found = []
    for number in range(nodes):
        if number >= nodes - gpu_nodes:
            pool, kind, cores, gigabytes, gpus = "gpu", "g2-standard-12", 12, 48, 1
        else:
            pool, kind, cores, gigabytes = _SHAPES[number % pools % len(_SHAPES)]
            gpus = 0
        # What the kubelet and the system keep for themselves, roughly as the cloud reserves it.
        cpu, memory = cores * 1000 - 90, int(gigabytes * 1024 * 0.92) * MEBI
        name = f"gke-fleet-{pool}-{rng.randrange(16**8):08x}-{number:04d}"
        machine = Machine(name, pool, kind, ZONES[number // pools % len(ZONES)], cpu, memory, gpus)
        machine.free_cpu, machine.free_memory = cpu - ITSELF[0], memory - ITSELF[1]
        found.append(machine)
    return found


def _loads(rng: random.Random, pool: str, members: list[Machine], pods: int, first: int) -> list[Load]:
    mean_cpu = PEAK * sum(machine.free_cpu for machine in members) / pods
    mean_memory = PEAK * sum(machine.free_memory for machine in members) / pods
    found: list[Load] = []
    left = pods
    while left > 0:
        number = first + len(found)
        team = _NAMES[number % len(_NAMES)]
        stateful = number % 11 == 5 and pool != "gpu"
        replicas = min(left, rng.choice((1, 2, 3)) if stateful else _replicas(rng, pods))
        size = rng.choice((0.4, 0.6, 0.8, 1.0, 1.2, 1.6, 2.2))
        load = Load(
            name=f"{team}-{_ROLES[number // len(_NAMES) % len(_ROLES)]}-{number}",
            namespace=f"team-{team}",
            kind="StatefulSet" if stateful else "ReplicaSet",
            pool=pool,
            cpu=max(10, round(mean_cpu * size / 10) * 10),
            memory=max(16, round(mean_memory * size * rng.uniform(0.6, 1.2) / MEBI)) * MEBI,
            peak=replicas,
            traits=_traits(rng, pool, stateful, replicas, len(members)),
        )
        load.cpu = min(load.cpu, members[0].cpu // 3)
        load.memory = min(load.memory, members[0].memory // 3)
        found.append(load)
        left -= replicas
    return found


def _replicas(rng: random.Random, pods: int) -> int:
    largest = max(3, min(120, pods // 6))
    return max(1, min(largest, int(rng.paretovariate(1.1) * 2)))


def _traits(rng: random.Random, pool: str, stateful: bool, replicas: int, members: int) -> frozenset[str]:
    traits = {"claim"} if stateful else set()
    if pool == "gpu":
        traits.add("gpu")
    elif replicas <= members // 2 and rng.random() < 0.15:
        traits.add("apart")
    elif replicas >= 3 and rng.random() < 0.25:
        traits.add("zones")
    for trait, rate in (("scratch", 0.06), ("vouched", 0.04), ("pinned", 0.02), ("pooled", 0.3)):
        if rng.random() < rate:
            traits.add(trait)
    if replicas >= 2 and rng.random() < 0.6:
        traits.add("never" if rng.random() < 0.06 else "budget")
    return frozenset(traits)


def _system(by_pool: dict[str, list[Machine]]) -> list[Load]:
    pool = next(iter(by_pool))
    return [
        Load("coredns", "kube-system", "ReplicaSet", pool, 100, 70 * MEBI, 2, frozenset({"budget", "system", "all"})),
        Load("metrics-server", "kube-system", "ReplicaSet", pool, 100, 200 * MEBI, 1, frozenset({"system", "all"})),
        Load("nightly-report", "team-report", "Job", pool, 500, 512 * MEBI, 1, frozenset({"all"})),
        Load("debug-shell", "default", "Pod", pool, 50, 64 * MEBI, 1, frozenset({"all"})),
        Load("oversized", "team-quote", "Pending", pool, 64_000, 256 * 1024 * MEBI, 1, frozenset({"all"})),
    ]


def _place(rng: random.Random, load: Load, members: list[Machine]) -> None:
    """Bind pods to the least allocated machine that may take one; one that fits nowhere is not made, or is pending."""
    if load.kind == "Pending":
        load.places = [None]
        return
    heap = [(1 - machine.free_cpu / machine.cpu, number) for number, machine in enumerate(members)]
    heapq.heapify(heap)
    zones = {machine.zone: 0 for machine in members}
    for _ in range(load.peak):
        skipped: list[tuple[float, int]] = []
        while heap:
            ratio, number = heapq.heappop(heap)
            machine = members[number]
            lopsided = "zones" in load.traits and zones[machine.zone] > min(zones.values())
            if machine.free_cpu < load.cpu or machine.free_memory < load.memory or machine.pods >= 90:
                continue  # it only gets fuller
            if lopsided:
                skipped.append((ratio, number))
                continue
            load.places.append(machine)
            zones[machine.zone] += 1
            machine.free_cpu -= load.cpu
            machine.free_memory -= load.memory
            machine.pods += 1
            if "apart" not in load.traits and "gpu" not in load.traits:
                skipped.append((1 - machine.free_cpu / machine.cpu, number))
            break
        for entry in skipped:
            heapq.heappush(heap, entry)
    rng.shuffle(load.places)


def _shrink(rng: random.Random, load: Load) -> None:
    """Scale down for the night; at least one pod stays, and what keeps state or is the system's stays whole."""
    if load.kind != "ReplicaSet" or "system" in load.traits or "gpu" in load.traits or len(load.places) < 2:
        return
    # Single pods and stateful ones stay, so the others lose a little more.
    kept = sum(rng.random() < KEPT - 0.05 for _ in load.places)
    del load.places[max(1, kept) :]
