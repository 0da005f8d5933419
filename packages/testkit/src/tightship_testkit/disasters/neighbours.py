"""What else runs beside our controllers in some stories: another installation, termination handlers, slow webhooks."""

from __future__ import annotations

from random import Random

import msgspec

from tightship_testkit.disasters.registry import STEPS
from tightship_testkit.disasters.scenario import Controller, Fault, Scenario, Step

_ANOTHER, _SLOW, _TERMINATED, _SURGED, _OVERTAKEN = 0.2, 0.1, 0.2, 0.15, 0.1
"""The parts of stories with each."""
_LASTS = (30.0, 90.0)
"""Seconds for which admission is slow."""


def with_neighbours(scenario: Scenario) -> Scenario:
    """Return *scenario*, some of them with neighbours; nothing else of it changes."""
    rng = Random(f"neighbours {scenario.seed}")  # noqa: S311 - a simulation
    steps, faults = list(scenario.steps), list(scenario.faults)

    def may(kind: str, part: float) -> None:
        args = STEPS[kind].draw(rng, scenario) if rng.random() < part else None
        if args is not None:
            steps.append(Step(at=round(rng.uniform(20.0, scenario.story * 0.5), 1), kind=kind, args=args))

    may("another-installation", _ANOTHER)
    if rng.random() < _SLOW:
        at = round(rng.uniform(10.0, scenario.story * 0.5), 1)
        faults.append(
            Fault(
                at=at,
                until=at + round(rng.uniform(*_LASTS), 1),
                kind="slow-admission",
                resources=[rng.choice(("nodes", "nodes", "pods"))],
                dice=rng.randrange(1 << 30),
                args={"seconds": rng.choice((10.0, 20.0, 28.0))},
            )
        )
    may("termination-handler", _TERMINATED)
    controllers = scenario.controllers
    if scenario.of("Deployment") and rng.random() < _SURGED:
        args = STEPS["surge-on-cordon"].draw(rng, scenario) or {}
        steps.append(Step(at=round(rng.uniform(0.0, scenario.story * 0.3), 1), kind="surge-on-cordon", args=args))
        controllers = [_patient(each) for each in controllers]
    steps.sort(key=lambda each: each.at)
    faults += _overtaken(scenario)
    return msgspec.structs.replace(scenario, steps=steps, faults=faults, controllers=controllers)


def _overtaken(scenario: Scenario) -> list[Fault]:
    """Return the time, if any, in which somebody taints nodes just before writes of them."""
    # Of its own, so that what else a seed draws stays what it was.
    rng = Random(f"overtaken {scenario.seed}")  # noqa: S311 - a simulation
    if rng.random() >= _OVERTAKEN:
        return []
    at = round(rng.uniform(10.0, scenario.story * 0.5), 1)
    until = at + round(rng.uniform(*_LASTS), 1)
    share, dice = rng.choice((0.2, 0.5)), rng.randrange(1 << 30)
    return [Fault(at=at, until=until, kind="overtaken", resources=["nodes"], share=share, dice=dice)]


def _patient(controller: Controller) -> Controller:
    if controller.program == "hpa-scaler":
        return controller
    return msgspec.structs.replace(controller, settings={**controller.settings, "afterCordonTimeout": "40s"})


__all__ = ["with_neighbours"]
