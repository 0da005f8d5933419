"""Gives scenarios workloads that several drains want within their pause, and more nodes to drain than the rate of an
hour allows.

All of it comes from a source of chance of its own, so that what else a seed draws stays what it was.
"""

from __future__ import annotations

from random import Random

import msgspec

from tightship_testkit.disasters.registry import Args
from tightship_testkit.disasters.scenario import Controller, Scenario, Workload

SHARE = 0.3
"""The part of scenarios of nodes in which that happens."""


def with_rests(scenario: Scenario) -> Scenario:
    """Return *scenario* with pauses and rates that drains meet, or as it is."""
    rng = Random(f"rests {scenario.seed}")  # noqa: S311 - a simulation
    if scenario.floors is not None or rng.random() >= SHARE:
        return scenario
    pause, rate = rng.choice((30, 60, 60)), rng.choice((0, 0, 1, 2))
    return msgspec.structs.replace(
        scenario,
        controllers=[_gentle(each, pause, rate) for each in scenario.controllers],
        workloads=[_spread(rng, each) for each in scenario.workloads],
    )


def _gentle(controller: Controller, pause: int, rate: int) -> Controller:
    """Return *controller* that would drain nodes one after the other, but for its pauses and its rate.

    It begins once the nodes have pods.
    """
    settings = {**controller.settings, "workloadPause": pause, "nodeDrainTimeout": 200, "maximumNodesInDrain": 2}
    if controller.program == "node-refiner":
        settings |= {"excessNodesThreshold": 0, "minimumNodeCount": 1}
        settings |= {"clusterCoolDownAfterDrain": "0s", "clusterCoolDownAfterNodeAdded": "20s"}
    else:
        pools: Args = settings["nodePools"]
        wide = {"enabled": True, "scaleDownCPURequestRatioLimit": 0.9, "scaleDownRequiredUnderutilizedNodeCount": 0}
        wide["maximumNodesInDrain"] = 2
        settings |= {
            "nodePools": {name: {**each, **wide} for name, each in pools.items()},
            "coolDownAfterNodeAdded": 20,
        }
    if rate:
        settings["maximumNodesPerHour"] = rate
    return msgspec.structs.replace(controller, settings=settings)


def _spread(rng: Random, workload: Workload) -> Workload:
    """Return *workload* with small pods on several nodes, if nothing else is to happen to it."""
    if workload.kind != "Deployment" or workload.annotations or workload.finalizers or rng.random() < 0.3:
        return workload
    return msgspec.structs.replace(workload, replicas=rng.choice((4, 6)), cpu="200m", spec={})


__all__ = ["SHARE", "with_rests"]
