"""What the strategy lowest-cost keeps of a real cluster, in money, beside fewest-nodes.

    python bench/money.py            the openb cluster, if it is at hand
    python bench/money.py --json

Nobody published prices of its machines. These are made by a formula from the machine types: amounts for a core, a GiB
and each model of GPU, invented but in a plausible order. With a *steepness* above 0, cores and memory of big nodes are
dearer: by a factor of (cores / 8) to that power.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from typing import Any

from planning import openb

from node_compactor.judge import CompactorJudge
from node_compactor.settings import load_settings
from tightship.cli.snapshot_file import read_file
from tightship.cluster import Snapshot
from tightship.objects.money import HOURS_PER_MONTH, INSTANCE_TYPE_LABELS, MICROS
from tightship.planning.evaluate import evaluate

STEEPNESS = (0.0, 0.15, 0.3)
CORE, GIB = 0.04, 0.005
GPUS = {"t4": 0.35, "a10": 0.75, "g2": 1.0, "p100": 1.2, "g3": 1.3, "v100m16": 2.2, "v100m32": 2.5}
TYPE = re.compile(r"openb-(\d+)c(\d+)g(?:-(\d+)x(\w+))?")


def hourly(machine: str, steepness: float) -> float:
    """Return the invented price of an hour of a machine type such as ``openb-96c384g-4xt4``."""
    found = TYPE.fullmatch(machine)
    if found is None:
        raise ValueError(f"{machine!r} is no machine type; allowed is a name such as openb-96c384g-4xt4")
    cores, gib, count, model = found.groups()
    plain: float = (CORE * int(cores) + GIB * int(gib)) * (int(cores) / 8) ** steepness
    return round(plain + (int(count) * GPUS[model] if model else 0.0), 6)


def measure(snapshot: Snapshot, steepness: float, strategy: str, placement: str) -> dict[str, Any]:
    """Plan one round on *snapshot*, all nodes being candidates."""
    machines = {view.node.labels[INSTANCE_TYPE_LABELS[0]] for view in snapshot.nodes.values()}
    settings = load_settings(
        {
            "nodePools": {"*": {"enabled": True, "scaleDownCPURequestRatioLimit": 1}},
            "minimumNodeAge": 0,
            "neededMarkedTimeForRemoval": 0,
            "strategy": strategy,
            "placement": placement,
            "prices": {"instanceTypes": {machine: hourly(machine, steepness) for machine in machines}},
        }
    )
    start = time.process_time()
    found = evaluate(snapshot, CompactorJudge(settings), time.time())
    gone = {each.node for each in found.plan.removals}
    kept = sum(fact.price.hourly for name, fact in found.facts.items() if fact.price is not None and name not in gone)
    return {
        "steepness": steepness,
        "placement": placement,
        "strategy": strategy,
        "kept": len(found.facts) - len(gone),
        "kept a month": round(kept * HOURS_PER_MONTH / MICROS),
        "evictions": found.plan.evictions,
        "s": round(time.process_time() - start, 2),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure the strategy lowest-cost on a real cluster.")
    parser.add_argument("--json", action="store_true", help="print JSON")
    arguments = parser.parse_args()
    data = openb()
    if data is None:
        print("the openb cluster is not at hand", file=sys.stderr)
        return 0
    snapshot = read_file(str(data))
    rows = [
        measure(snapshot, steepness, strategy, placement)
        for steepness in STEEPNESS
        for placement in ("possible", "likely")
        for strategy in ("fewest-nodes", "lowest-cost")
    ]
    if arguments.json:
        print(json.dumps(rows, indent=2))
        return 0
    for row in rows:
        print(
            f"power {row['steepness']:<4} {row['placement']:>8}  {row['strategy']:>12}  keeps {row['kept']:>4} nodes, "
            f"{row['kept a month']:>10,} a month, {row['evictions']:>5,} evictions, {row['s']:>5} s"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
