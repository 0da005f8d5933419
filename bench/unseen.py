"""How near a run comes to the best known plan, on generated clusters that nothing was tuned on.

    python bench/unseen.py                  four clusters: half an hour of one core
    python bench/unseen.py --only 0 2       some of them
    python bench/unseen.py --search 60s     searches longer for the best known plan

*soft taints* is the model of a run of ``bench/steering.py``, *pilot* that of ``bench/execution.py`` with one pod in a
hundred elsewhere. The best known plan is the best of a searched one, round after round, and of both runs. All go by
the same rules: every node may go, however full, unless it has a pod that may never be evicted (*kept by rules*).
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import sys
import time
from collections.abc import Callable
from functools import partial

from execution import SETTINGS
from gap import exclusive_fleet
from planning import fleet
from steering import NOW, run

from node_compactor.judge import CompactorJudge
from node_compactor.settings import load_settings
from tightship.cli.app import COLLECTIONS
from tightship.cluster import Snapshot
from tightship.objects.times import parse_duration
from tightship.planning.evaluate import Evaluation, Horizon, evaluate
from tightship.planning.plan import SearchRules
from tightship.search import search as improving
from tightship_testkit.execution import Execution


def _generated(seed: int, nodes: int, pods: int, conflicts: int) -> Snapshot:
    return fleet(nodes, pods, conflicts, seed)[0].snapshot()


FLEETS: dict[str, Callable[[], Snapshot]] = {
    "300 nodes, 60 % full, excludes itself": partial(exclusive_fleet, 7601, 4, 0.6, 300, (2, 24)),
    "250 nodes, 85 % full, excludes itself": partial(exclusive_fleet, 7602, 3, 0.85, 250, (2, 40)),
    "400 nodes, applications exclude each other": partial(_generated, 7603, 400, 5200, 6000),
    "600 nodes, pools and rules": partial(_generated, 7604, 600, 9000, 0),
}
MISS = 0.01
"""The chance of a pod led by the pilot to land elsewhere: real control planes had 0.3 and 1.4 %."""
BARS = {"soft taints": 1.07, "pilot": 1.02}
"""The most nodes that a run may keep, as a factor of the best known plan's."""


def measure(name: str, seconds: float, pilot: float) -> dict[str, object]:
    """Return what the plans and both runs keep of one cluster, all by the same rules."""
    seen, began = FLEETS[name](), time.process_time()
    judge, search = CompactorJudge(load_settings(SETTINGS)), SearchRules(seconds=seconds, clock=time.process_time)
    plain = evaluate(seen, judge, NOW, Horizon(until_stable=True))
    searched = _kept(evaluate(seen, judge, NOW, Horizon(until_stable=True, search=search), improve=improving))
    print(f"  {name}: searched {searched}", file=sys.stderr, flush=True)
    steered = run(seen, SETTINGS | {"placement": "likely"}, grades=1, in_drain=10, seed=1)
    print(f"  {name}: soft taints {steered.kept}", file=sys.stderr, flush=True)
    led = asyncio.run(Execution(seen, judge, pilot, miss=MISS, at_once=20, seed=1).run())
    kept = {"soft taints": steered.kept, "pilot": led.kept}
    best = min(searched, *kept.values())
    return {
        "cluster": name,
        "nodes": len(seen.nodes),
        "pods": seen.pod_count,
        "kept by rules": sum(bool(fact.refusals) for fact in plain.facts.values()),
        "fewest-nodes": _kept(plain),
        "searched": searched,
        "best known": best,
        **kept,
        "evictions": (steered.evictions, led.evictions),
        **{f"{how} over": round(kept[how] / best, 4) for how in kept},
        "holds": all(kept[how] <= bar * best for how, bar in BARS.items()),
        "CPU s": round(time.process_time() - began),
    }


def _kept(found: Evaluation) -> int:
    return len(found.snapshot.nodes) - len(found.plan.removals)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", type=int, nargs="*", default=[*range(len(FLEETS))], help="numbers of clusters")
    parser.add_argument("--search", type=parse_duration, default=60.0, help="of the best known plan (60s)")
    parser.add_argument("--pilot", type=parse_duration, default=10.0, help="of a running controller (10s)")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    gc.set_threshold(*COLLECTIONS)
    rows = []
    for number in options.only:
        rows.append(measure([*FLEETS][number], options.search, options.pilot))
        if not options.json:
            print("  ".join(f"{key} {value}" for key, value in rows[-1].items()), flush=True)
    if options.json:
        print(json.dumps(rows, indent=1))
    return 0 if all(row["holds"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
