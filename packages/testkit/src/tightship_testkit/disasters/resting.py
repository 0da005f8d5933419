"""Makes of some scenarios quiet ones, in which drains want one workload's pods again and again, and more nodes than the
rate of an hour allows: only pauses, rates and windows keep them.

All of it comes from a source of chance of its own, so that what else a seed draws stays what it was.
"""

from __future__ import annotations

from random import Random

import msgspec

from tightship_testkit.disasters.registry import Args
from tightship_testkit.disasters.scenario import Autoscaler, Controller, Node, Pool, Scenario, Workload

SHARE = 0.2
"""The part of scenarios of nodes in which that happens."""

WINDOWS: Args = {"allow": ["Mon 08:00-08:02"], "hardStop": "0s"}
"""They close in the middle of a drain whose workloads rest: the story begins on Monday at 08:00 UTC."""

_BOTH: Args = {
    "settleTime": "1s", "podEvictionTimeout": "30s", "nodeDrainTimeout": "250s", "handOverTimeout": "30s",
    "backoff": "10s", "backoffLimit": "40s", "holdOff": "200s", "notReadyTimeout": "20s", "pendingTimeout": "15s",
    "pendingAfterDrainTimeout": "20s", "maximumNodesInDrain": 2, "steering": False,
}  # fmt: skip
_OWN: dict[str, Args] = {
    "node-refiner": {
        "excessNodesThreshold": 0, "minimumNodeCount": 1, "minimumNonTaintedNodeCount": 1,
        "clusterCoolDownAfterDrain": "0s", "clusterCoolDownAfterNodeAdded": "20s",
    },
    "node-compactor": {
        "nodePools": {
            "*": {
                "enabled": True,
                "scaleDownCPURequestRatioLimit": 0.9,
                "scaleDownRequiredUnderutilizedNodeCount": 0,
                "maximumNodesInDrain": 2,
            }
        },
        "neededMarkedTimeForRemoval": "0s", "minimumNodeAge": "0s", "coolDownAfterNodeAdded": "20s",
        "coolDownAfterFailure": "10s", "clusterCoolDownAfterFailure": "5s",
    },
}  # fmt: skip


def with_rests(scenario: Scenario) -> Scenario:
    """Return *scenario*, or a quiet one in its place."""
    rng = Random(f"rests {scenario.seed}")  # noqa: S311 - a simulation
    if scenario.floors is not None or rng.random() >= SHARE:
        return scenario
    return quiet(rng, scenario, f"{rng.choice((30, 60))}s", rng.choice(("windows", "rate", "")))


def quiet(rng: Random, scenario: Scenario, pause: str, more: str = "") -> Scenario:
    """Return a quiet *scenario* of two workloads on nodes that are too many, with a *pause*, windows or a rate."""
    return msgspec.structs.replace(
        scenario,
        pools=[Pool(name="p0")],
        nodes=[Node(name=f"n{number}", pool="p0") for number in range(rng.choice((5, 6)))],
        workloads=[Workload(name=f"w{number}", replicas=rng.choice((5, 8)), cpu="300m") for number in range(2)],
        budgets=[],
        objects=[],
        controllers=[_gentle(each, pause, more) for each in scenario.controllers],
        steps=[each for each in scenario.steps if each.kind == "kill"],
        faults=[],
        autoscaler=Autoscaler(unneeded=10.0, threshold=0.0),
    )


def _gentle(controller: Controller, pause: str, more: str) -> Controller:
    """Return *controller* with a *pause*, and with the windows or the rate that *more* asks for."""
    settings = {**_BOTH, **_OWN[controller.program], "workloadPause": pause}
    if more == "windows":
        settings["windows"] = WINDOWS
    elif more == "rate":
        settings["maximumNodesPerHour"] = 1
    variables = {key: text for key, text in controller.variables.items() if key not in ("DRY_RUN", "STEERING")}
    return msgspec.structs.replace(controller, settings=settings, variables=variables, landings=None)


__all__ = ["SHARE", "quiet", "with_rests"]
