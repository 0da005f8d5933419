"""How near a search comes to the proven bound: openb, and fleets in which every workload excludes its own replicas.

    python bench/gap.py             searches of ten seconds of one core
    python bench/gap.py --seconds 30
    python bench/gap.py --json

In the generated fleets each workload has required anti-affinity against itself by node, and its replicas are spread as
a scheduler spreads them. The bar: a search keeps at most 4 % more nodes than the bound. The bound needs the solver:
``pip install 'tightship[solver]'``.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time

from planning import every_node, openb

from tightship.cli.snapshot_file import read_file
from tightship.cluster import Snapshot
from tightship.planning.plan import STRATEGIES, Planner, SearchRules, make_plan
from tightship.rules.disruption import DisruptionLedger
from tightship.search.limits import limits_of
from tightship.search.linear import solved
from tightship.search.problem import extract
from tightship.search.relaxation import proven, relaxed
from tightship.search.strategy import Searching
from tightship_testkit.builders import Json, node, pod, snapshot, workload

BAR = 1.04
HOST = "kubernetes.io/hostname"

FLEETS: dict[str, tuple[int, float, int, tuple[int, int]]] = {
    "1 shape, half full, 2 to 5 replicas": (1, 0.5, 200, (2, 5)),
    "1 shape, 80 % full, 2 to 5 replicas": (1, 0.8, 200, (2, 5)),
    "1 shape, 80 % full, 3 to 80 replicas": (1, 0.8, 200, (3, 80)),
    "4 shapes, half full, 2 to 37 replicas": (4, 0.5, 300, (2, 37)),
    "4 shapes, half full, 40 to 95 replicas": (4, 0.5, 300, (40, 95)),
    "4 shapes, 80 % full, 2 to 150 replicas": (4, 0.8, 300, (2, 150)),
}
"""By name: shapes, the part of memory requested, nodes, and the replicas of a workload."""

SHAPES = ((16, 64), (8, 32), (16, 128), (32, 128))


def exclusive_fleet(seed: int, shapes: int, full: float, nodes: int, replicas: tuple[int, int]) -> Snapshot:
    """Return a fleet in which no node may run two replicas of any workload."""
    rng = random.Random(seed)
    room: list[list[float]] = [list(rng.choice(SHAPES[:shapes])) for _ in range(nodes)]
    things: list[Json] = [workload()]
    for number, (has, left) in enumerate(room):
        name, amounts = f"n{number:04}", {"cpu": f"{has}", "memory": f"{left}Gi", "pods": "110"}
        things.append(node(name, labels={HOST: name}, allocatable=amounts))
    wanted, app = full * sum(memory for _, memory in room), 0
    while wanted > 0:
        app += 1
        cpu, memory = rng.choice((0.1, 0.25, 0.5, 1)), rng.choice((1, 2, 4, 8))
        if not any(has >= 1 and left >= 8 for has, left in room):
            break
        fits = [at for at, (has, left) in enumerate(room) if has >= cpu and left >= memory]
        rng.shuffle(fits)
        fits.sort(key=lambda at: -room[at][1])
        term = {"topologyKey": HOST, "labelSelector": {"matchLabels": {"app": f"w{app}"}}}
        apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
        for replica, at in enumerate(fits[: rng.randint(*replicas)]):
            room[at][0] -= cpu
            room[at][1] -= memory
            wanted -= memory
            name, labels = f"w{app}-{replica}", {"app": f"w{app}"}
            amount, size = f"{int(cpu * 1000)}m", f"{memory}Gi"
            things.append(pod(name, on=f"n{at:04}", labels=labels, cpu=amount, memory=size, affinity=apart))
    return snapshot(*things)


def measure(name: str, fleet: Snapshot, seconds: float) -> Json:
    """Return what plans keep of *fleet*, and the bound."""
    judgement = every_node(fleet)
    planner = Planner(fleet, DisruptionLedger(fleet), judgement.candidates, "possible")
    problem = extract(planner, limits_of(judgement.gates, planner))
    assert problem is not None
    start = time.monotonic()
    relaxation = relaxed(problem)
    duals = solved(relaxation, 60.0)
    if duals is None:
        sys.exit("no bound without the solver: pip install 'tightship[solver]'")
    least = proven(relaxation, duals).least
    solving = time.monotonic() - start
    searching = Searching(STRATEGIES["fewest-nodes"], SearchRules(seconds=seconds, clock=time.process_time))
    make_plan(fleet, every_node, searching, "possible")
    told = searching.searched
    assert told is not None
    many = len(fleet.nodes)
    return {
        "fleet": name,
        "nodes": many,
        "pods": sum(len(view.pods) for view in fleet.nodes.values()),
        "fewest-nodes": many - told.greedy_removed,
        "search": many - told.removed,
        "bound": least,
        "over": round((many - told.removed) / max(1, least), 4),
        "bound s": round(solving, 2),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure how near a search comes to the bound.")
    parser.add_argument("--seconds", type=float, default=10.0, help="processor time of each search (default: 10)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    chosen = parser.parse_args()
    fleets = {name: exclusive_fleet(seed, *fleet) for seed, (name, fleet) in enumerate(FLEETS.items(), 1)}
    data = openb()
    if data is not None:
        fleets["openb"] = read_file(str(data))
    rows: list[Json] = []
    for name, fleet in fleets.items():
        rows.append(measure(name, fleet, chosen.seconds))
        if not chosen.json:
            print("  ".join(f"{key} {value}" for key, value in rows[-1].items()), flush=True)
    if chosen.json:
        print(json.dumps(rows, indent=2))
    return 0 if all(row["over"] <= BAR for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
