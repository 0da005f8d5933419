"""What else runs beside our controllers in some stories: another installation, and a webhook that takes its time."""

from __future__ import annotations

from random import Random

import msgspec

from tightship_testkit.disasters.registry import STEPS
from tightship_testkit.disasters.scenario import Fault, Scenario, Step

_ANOTHER, _SLOW = 0.2, 0.1
"""The parts of stories with each."""
_KIND = "another-installation"
_LASTS = (30.0, 90.0)
"""Seconds for which admission is slow."""


def with_neighbours(scenario: Scenario) -> Scenario:
    """Return *scenario*, some of them with neighbours; nothing else of it changes."""
    rng = Random(f"neighbours {scenario.seed}")  # noqa: S311 - a simulation
    steps, faults = list(scenario.steps), list(scenario.faults)
    if rng.random() < _ANOTHER:
        args = STEPS[_KIND].draw(rng, scenario)
        if args is not None:
            steps.append(Step(at=round(rng.uniform(20.0, scenario.story * 0.5), 1), kind=_KIND, args=args))
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
    steps.sort(key=lambda each: each.at)
    return msgspec.structs.replace(scenario, steps=steps, faults=faults)


__all__ = ["with_neighbours"]
