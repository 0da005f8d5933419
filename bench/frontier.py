"""What each eviction buys: a plan against the proof at ten numbers of nodes, on openb and fleets of other seeds.

    python bench/frontier.py                 evictions over the proven least, and the time of the proof
    python bench/frontier.py --strategies    what balanced saves beside least-utilized at equal evictions
    python bench/frontier.py --json

The bars: at each number of nodes the plan has at most 5 % more evictions than proven, and ten proofs take one second.
Every node may go. With ``--strategies`` prices are those of ``bench/money.py`` on openb (steepness 0.15), elsewhere by
core and GiB; a ratio compares the money saved by the first removals of both plans with as many evictions.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import msgspec
from clusters import RECIPES, cluster
from gap import exclusive_fleet
from money import CORE, GIB, hourly
from planning import every_node, openb
from unseen import _generated

from tightship.cli.snapshot_file import parse, read_file
from tightship.cluster import Snapshot
from tightship.frontier import frontier
from tightship.objects.money import HOURS_PER_MONTH, INSTANCE_TYPE_LABELS, MICROS
from tightship.objects.selectors import Taint
from tightship.planning.plan import STRATEGIES, Judgement, Plan, SearchRules, SteeringRules, make_plan
from tightship.planning.plan.model import CANDIDATE
from tightship_testkit.builders import Json

GOLDEN = Path(__file__).resolve().parents[1] / "packages"
CONTROLLERS = ("node-compactor", "node-refiner")
BAR, SECONDS, POINTS = 1.05, 1.0, 10
STEERED = SteeringRules(Taint(CANDIDATE, "PreferNoSchedule", "bench"), 400)

FLEETS: dict[str, Callable[[], Snapshot]] = {
    "300 nodes, 60 % full, excludes itself": partial(exclusive_fleet, 8801, 4, 0.6, 300, (2, 24)),
    "250 nodes, 85 % full, excludes itself": partial(exclusive_fleet, 8802, 3, 0.85, 250, (2, 40)),
    "600 nodes, pools and rules": partial(_generated, 8803, 600, 9000, 0),
}


def fleets() -> Iterator[tuple[str, Snapshot]]:
    """Yield the clusters by name, openb first if it is at hand."""
    data = openb()
    if data is not None:
        yield "openb", read_file(str(data))
    for name, made in FLEETS.items():
        yield name, made()


def measure(name: str, seen: Snapshot) -> Iterator[Json]:
    """Yield what the plan takes at ten numbers of nodes of *seen*."""
    improve, prove = frontier()
    start = time.process_time()
    plan = make_plan(seen, every_node, improve(STRATEGIES["balanced"], SearchRules()), "possible")
    planned = time.process_time()
    proven = prove(plan)
    if not proven.solved:
        sys.exit("no proof without the solver: pip install 'tightship[solver]'")
    for removed, evictions, least in proven.points:
        yield {
            "fleet": name,
            "kept": len(seen.nodes) - removed,
            "proven": least,
            "evictions": evictions,
            "over": round(evictions / max(1, least), 4) if evictions else 1.0,
            "plan s": round(planned - start, 2),
            "proofs s": round(time.process_time() - planned, 2),
        }


def priced(seen: Snapshot) -> Judgement:
    """Return the judgement that lets every node go, with prices."""
    judgement, found = every_node(seen), []
    for each in judgement.candidates:
        node = seen.nodes[each.name].node
        machine = node.labels.get(INSTANCE_TYPE_LABELS[0], "")
        cores, gib = node.allocatable.get("cpu", 0) / 1000, node.allocatable.get("memory", 0) / 2**30
        price = hourly(machine, 0.15) if machine.startswith("openb-") else CORE * cores + GIB * gib
        found.append(msgspec.structs.replace(each, price=round(price * MICROS)))
    return msgspec.structs.replace(judgement, candidates=tuple(found))


def compare(name: str, seen: Snapshot) -> Iterator[Json]:
    """Yield what the strategies save of *seen*, and balanced beside least-utilized at equal evictions."""
    prices = {each.name: (each.price or 0) * HOURS_PER_MONTH / MICROS for each in priced(seen).candidates}

    def curve(plan: Plan) -> list[tuple[int, float]]:
        found = [(0, 0.0)]
        for each in plan.removals:
            found.append((found[-1][0] + len(each.moves), found[-1][1] + prices[each.node]))
        return found

    for placement, steering in (("likely", STEERED), ("possible", None)):
        curves = {
            strategy: curve(make_plan(seen, priced, STRATEGIES[strategy], placement, steering=steering))  # type: ignore[arg-type]
            for strategy in STRATEGIES
        }
        plain, balanced = curves["least-utilized"], curves["balanced"]
        equal = min(plain[-1][0], balanced[-1][0])

        def saved(of: list[tuple[int, float]], part: float, equal: int = equal) -> float:
            return max(money for evictions, money in of if evictions <= part * equal)

        yield {
            "fleet": name,
            "placement": placement,
            **{strategy: [len(of) - 1, of[-1][0], round(of[-1][1])] for strategy, of in curves.items()},
            "at": [round(saved(balanced, part) / max(1, saved(plain, part)), 3) for part in (0.25, 0.5, 0.75, 1)],
        }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--strategies", action="store_true", help="compare balanced with least-utilized instead")
    parser.add_argument("--json", action="store_true", help="print JSON")
    chosen = parser.parse_args()
    rows: list[Json] = []
    known = list(fleets())
    if chosen.strategies:
        known += [(name, parse(json.dumps(cluster(recipe)).encode(), name)) for name, recipe in RECIPES.items()]
        known += [(f"golden, {each}", read_file(GOLDEN / each / "tests/golden/cluster.json")) for each in CONTROLLERS]
    for name, seen in known:
        for row in (compare if chosen.strategies else measure)(name, seen):
            rows.append(row)
            if not chosen.json:
                print("  ".join(f"{key} {value}" for key, value in row.items()), flush=True)
    if chosen.json:
        print(json.dumps(rows, indent=2))
    if chosen.strategies:
        return 0
    return 0 if all(row["over"] <= BAR and row["proofs s"] <= SECONDS for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
