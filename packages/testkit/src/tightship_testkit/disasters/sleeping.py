"""Gives scenarios leaders that are stopped between a look and what they do about it, until others lead.

All of it comes from a source of chance of its own, so that what else a seed draws stays what it was.
"""

from __future__ import annotations

from random import Random

import msgspec

from tightship_testkit.disasters.registry import STEPS
from tightship_testkit.disasters.scenario import Scenario, Step

SHARE = 0.25
"""The part of scenarios in which that happens, where there is another replica."""
_KIND = "freeze-at-request"
_BEGIN, _END = 10.0, 0.5


def with_sleepers(scenario: Scenario) -> Scenario:
    """Return *scenario* with such leaders, or as it is."""
    rng = Random(f"sleepers {scenario.seed}")  # noqa: S311 - a simulation
    if rng.random() >= SHARE:
        return scenario
    steps = [*scenario.steps]
    for _ in range(rng.randint(1, 3)):
        args = STEPS[_KIND].draw(rng, scenario)
        if args is not None:
            steps.append(Step(at=round(rng.uniform(_BEGIN, scenario.story * _END), 1), kind=_KIND, args=args))
    return msgspec.structs.replace(scenario, steps=sorted(steps, key=lambda each: each.at))


__all__ = ["SHARE", "with_sleepers"]
