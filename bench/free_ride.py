"""A day of a site under HPAs: how many nodes go without an eviction, with deletion costs and without.

    python bench/free_ride.py [smooth | real]

16 Deployments of 30 pods in the mean at the peak, half a CPU each, on nodes of four CPUs. The traffic falls to a
quarter of its peak at night: smoothly, or as that of a real site did on 1995-08-08 (request_rate.csv.gz of the shared
data; the highest mean of ten minutes is the peak). HPAs, scheduler and Cluster Autoscaler are the embedded cluster's;
the autoscaler removes empty nodes, and in the last case also drains those below 50 % by itself. The controllers are the
real ones with their defaults, on virtual time. An eviction by anybody counts.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence

from tightship_testkit.autoscaled import Outcome, live_for
from tightship_testkit.loads import Load, by_day, by_rates
from tightship_testkit.web_traffic import FILE, day_from

KEYS = {"node-compactor": "deletionCost", "node-refiner": "deletionCost"}


def traffic(kind: str) -> Load:
    if kind == "smooth":
        return by_day(deployments=16, peak=30)
    rates = day_from("1995-08-08T10:00:00+00:00")
    if rates is None:
        sys.exit(f"{FILE} is not at hand: name its folder in TIGHTSHIP_DATA")
    return by_rates(rates, deployments=16, peak=30)


def day(load: Load, controller: str, costs: bool, threshold: float) -> Outcome:
    controllers: Sequence[str] = [controller] if controller else []
    settings = {controller: {KEYS[controller]: costs}} if controller else {}
    return live_for(24, load, nodes=6, hpas=True, threshold=threshold, controllers=controllers, settings=settings)


def main() -> None:
    logging.disable(logging.WARNING)
    load = traffic("smooth" if sys.argv[1:] in ([], ["smooth"]) else "real")
    columns = "controller", "deletionCost", "autoscaler drains", "removed", "undisturbed", "our evictions", "CPUs kept"
    print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    cases = [("", False, 0.0), *((name, on, 0.0) for name in KEYS for on in (False, True))]
    for name, on, threshold in [*cases, ("node-compactor", True, 0.5)]:
        found = day(load, name, on, threshold)
        row = (
            name or "none", str(on).lower() if name else "", f"below {threshold:.0%}" if threshold else "never",
            len(found.removed), found.undisturbed, found.evictions, f"{found.cpus:.0f}",
        )  # fmt: skip
        print(f"| {' | '.join(map(str, row))} |", flush=True)


if __name__ == "__main__":
    main()
