"""What a load that rises and falls costs with the controllers of nodes and without: nodes added, and CPUs kept.

    python bench/regret.py                  20 seeds, eight hours each: some five minutes of a core
    python bench/regret.py --seeds 5

Eight Deployments rise and fall together by 30 to 50 percent every 80 minutes. The embedded stand-in for the Cluster
Autoscaler removes nodes under half of their requests after ten minutes, and adds one where a pod finds none. The
cluster has lived so for three waves when the controllers start, with their charts' defaults and a limit of 0.8. All
durations are divided by 20.
"""

from __future__ import annotations

import argparse
import logging

from tightship_testkit.autoscaled import BOTH, Outcome, live_for
from tightship_testkit.loads import together

WARM_UP = 2.75 * 80 * 60.0


def _lived(seed: int, *controllers: str) -> Outcome:
    return live_for(8, together(seed), seed=seed, nodes=12, controllers=controllers, warm_up=WARM_UP)


def main() -> None:
    """Print a line for each seed, and the ratios of the sums."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20, help="how many (20)")
    logging.disable(logging.CRITICAL)
    seeds = range(parser.parse_args().seeds)
    print("seed   nodes added: alone, with ours   CPUs kept: alone, with ours   our evictions")
    alone, ours = [], []
    for seed in seeds:
        alone.append(_lived(seed))
        ours.append(_lived(seed, *BOTH))
        added, cpus = (len(alone[-1].added), len(ours[-1].added)), (alone[-1].cpus, ours[-1].cpus)
        print(
            f"{seed:4} {added[0]:20} {added[1]:10} {cpus[0]:18.1f} {cpus[1]:10.1f} {ours[-1].evictions:15}", flush=True
        )
    added_ratio = sum(len(each.added) for each in ours) / sum(len(each.added) for each in alone)
    cpus_ratio = sum(each.cpus for each in ours) / sum(each.cpus for each in alone)
    print(f"\nwith ours: {added_ratio:.2f} times the nodes added, {cpus_ratio:.2f} times the CPUs kept")


if __name__ == "__main__":
    main()
