"""Gives scenarios Deployments that drains restart instead of evicting their pods, and replicas killed meanwhile.

All of it comes from a source of chance of its own, so that what else a seed draws stays what it was.
"""

from __future__ import annotations

from random import Random

import msgspec

from tightship_testkit.disasters.registry import STEPS, Args
from tightship_testkit.disasters.scenario import Controller, Scenario, Step, Workload

SHARE = 0.2
"""The part of scenarios of nodes in which that happens."""

MARK = "tightship.dev/make-before-break"
_KILL = "kill"


def with_restarts(scenario: Scenario) -> Scenario:
    """Return *scenario* with such Deployments, or as it is."""
    rng = Random(f"restarts {scenario.seed}")  # noqa: S311 - a simulation
    if scenario.floors is not None or not scenario.of("Deployment") or rng.random() >= SHARE:
        return scenario
    mode = rng.choice(("marked", "all"))
    workloads = [_asking(rng, each, mode) for each in scenario.workloads]
    steps = list(scenario.steps)
    for _ in range(rng.randint(0, 3)):
        args = STEPS[_KILL].draw(rng, scenario)
        if args is not None:
            steps.append(Step(at=round(rng.uniform(20.0, scenario.story * 0.75), 1), kind=_KILL, args=args))
    return msgspec.structs.replace(
        scenario,
        workloads=workloads,
        controllers=[_restarting(each, mode) for each in scenario.controllers],
        steps=sorted(steps, key=lambda each: each.at),
    )


def restarts(settings: Args) -> bool:
    """Whether a controller is told to restart Deployments."""
    return bool(settings.get("makeBeforeBreak", "off") != "off")


def _restarting(controller: Controller, mode: str) -> Controller:
    more = {"makeBeforeBreak": mode, "afterCordonTimeout": 60}
    return msgspec.structs.replace(controller, settings={**controller.settings, **more})


def _asking(rng: Random, workload: Workload, mode: str) -> Workload:
    if workload.kind != "Deployment" or rng.random() < 0.3:
        return workload
    marks = {} if mode == "all" and rng.random() < 0.5 else {MARK: "true"}
    replicas = rng.choice((1, 1, 1, 2))
    return msgspec.structs.replace(workload, replicas=replicas, marks=marks)


__all__ = ["MARK", "SHARE", "restarts", "with_restarts"]
