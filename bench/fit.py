"""How near to the proven bound the machines of ``tightship fit`` come, and what finding them costs.

    python bench/fit.py                     24, 40 and 400 nodes, seeds 1 to 3
    python bench/fit.py --sizes 1000        another size, 30 pods for each node

Seconds are CPU seconds of this process, memory its largest resident set so far.
"""

from __future__ import annotations

import argparse
import resource
import time

import msgspec

from tightship.cluster import ClusterState, Snapshot
from tightship.fit import fit
from tightship.fit.model import MODES, Asked
from tightship.objects import KINDS, decode
from tightship.prices import prices
from tightship_simulator.generate import objects

LARGE = 400
"""Nodes from which a node has 30 pods, as in the other measurements."""


def snapshot(seed: int, nodes: int) -> Snapshot:
    state = ClusterState()
    for each in objects(seed, nodes, pods=nodes * 30 if nodes >= LARGE else None):
        if each["kind"] in KINDS:
            state.upsert(each["kind"], decode(each["kind"], msgspec.Raw(msgspec.json.encode(each))))
    return state.snapshot()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[24, 40, 400])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    given = parser.parse_args()
    print("nodes seed mode         now   then  over-bound  unplaced  seconds  MB")
    for nodes in given.sizes:
        for seed in given.seeds:
            cluster = snapshot(seed, nodes)
            for mode in MODES:
                began = time.process_time()
                fitted = fit(Asked(snapshot=cluster, prices=prices(None, None), modes=(mode,)))
                seconds = time.process_time() - began
                (found,) = fitted.answers[0].alternatives
                over = found.micros_per_hour / max(1, found.bound_micros_per_hour) - 1
                size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
                print(
                    f"{nodes:5} {seed:4} {mode:11} {fitted.present.nodes:5} {found.nodes:6} {over:10.1%} "
                    f"{len(found.unplaced):9} {seconds:8.1f} {size:4}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
