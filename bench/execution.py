"""A searched plan of a real cluster of 1,523 nodes, carried out without Kubernetes.

    python bench/execution.py                            all pods on target, one in 20 elsewhere, one in 5 elsewhere
    python bench/execution.py --miss 0.05 --search 30s   one of them, with longer searches
    python bench/execution.py --together                 pods of one workload share their targets
    python bench/execution.py --at-once 100 --quiet

Passes and background searches are a running controller's. See :mod:`tightship_testkit.execution` for what is played.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import sys
import time

from live import openb
from planning import EVERY_POOL

from node_compactor.judge import CompactorJudge
from node_compactor.settings import load_settings
from tightship.cli.app import COLLECTIONS
from tightship.cli.snapshot_file import read_file
from tightship.objects.times import parse_duration
from tightship_testkit.execution import Execution

SETTINGS = EVERY_POOL | {
    "nodePools": {"*": {"enabled": True, "scaleDownCPURequestRatioLimit": 1.01}},
    "strategy": "fewest-nodes",
    "placement": "possible",
}
"""Every node may go, however full."""

MOST_KEPT, MOST_EVICTIONS = 370, 1650
"""The bars with all pods on target."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--miss", type=float, nargs="*", default=[0.0, 0.05, 0.2], help="chances to land elsewhere")
    parser.add_argument("--search", type=parse_duration, default=10.0, help="how long a search takes (default: 10s)")
    parser.add_argument("--at-once", type=int, default=20, help="nodes that are drained side by side (default: 20)")
    parser.add_argument("--together", action="store_true", help="pods of one workload share their targets")
    parser.add_argument("--quiet", action="store_true", help="print no passes")
    options = parser.parse_args()
    path = openb()
    if path is None:
        sys.exit("not at hand (set TIGHTSHIP_DATA to the folder of openb_cluster.json.gz)")
    gc.set_threshold(*COLLECTIONS)
    snapshot = read_file(str(path))
    for miss in options.miss:
        judge, spent = CompactorJudge(load_settings(SETTINGS)), time.process_time()

        def reported(line: str) -> None:
            if not options.quiet:
                print(f"    {line}", file=sys.stderr, flush=True)

        execution = Execution(
            snapshot, judge, options.search, miss=miss, together=options.together, at_once=options.at_once,
            seed=1, reported=reported,
        )  # fmt: skip
        end = asyncio.run(execution.run())
        bar = ""
        if not miss:
            holds = end.kept <= MOST_KEPT and end.evictions <= MOST_EVICTIONS
            bar = f"   bar {MOST_KEPT}, {MOST_EVICTIONS:,}: {'holds' if holds else 'DOES NOT HOLD'}"
        print(
            f"{miss:4.0%} elsewhere: keeps {end.kept} (strategy {end.greedy}, first search {end.planned}), "
            f"{end.evictions:,} evictions, {end.missed} missed, {end.pending} pending, {end.passes} passes, "
            f"{end.searches} searches, {time.process_time() - spent:.0f} s of processor time{bar}",
            flush=True,
        )


if __name__ == "__main__":
    main()
