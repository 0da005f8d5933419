"""Gives scenarios a pilot: landings by hints, what its chart has installed, and steps of its own.

All of it comes from a source of chance of its own, so that what else a seed draws stays what it was.
"""

from __future__ import annotations

from random import Random

import msgspec

from tightship_testkit.disasters.floors.making import drawn_faults
from tightship_testkit.disasters.registry import STEPS, Args
from tightship_testkit.disasters.scenario import Controller, Landings, Scenario, Step

SHARE = 0.5
"""The part of scenarios with a pilot."""
_OF_NODES = ("node-compactor", "node-refiner")
_STEPS = {
    "grow-in-drain": 4, "kill-at-landing": 6, "freeze-at-landing": 4, "stop-at-landing": 3, "edit-landings": 3,
    "annotate-landings": 1, "delete-landings": 1.5, "take-landing-rights": 1.5, "steer": 2,
    "label-by-hand": 2, "fill-up": 2,
}  # fmt: skip
"""Kinds of steps, and how often each is drawn."""
_RESOURCES = ("configmaps", "nodes", "pods", "pods/eviction", "leases")
_BEGIN, _END = 10.0, 0.75


def with_pilot(scenario: Scenario) -> Scenario:
    """Return *scenario* with pilots, or as it is."""
    rng = Random(f"pilot {scenario.seed}")  # noqa: S311 - a simulation
    if rng.random() >= SHARE:
        return scenario
    controllers = [_controller(rng, each) if each.program in _OF_NODES else each for each in scenario.controllers]
    scenario = msgspec.structs.replace(scenario, controllers=controllers)
    steps = [*scenario.steps, *_steps(rng, scenario)]
    scenario = msgspec.structs.replace(scenario, steps=sorted(steps, key=lambda each: each.at))

    def whose() -> Args:
        return {"programs": [], "resources": [rng.choice(_RESOURCES)]}

    more = drawn_faults(
        rng, scenario, counts=(0, 0, 1, 2), last=scenario.story - 20, shares=(0.1, 0.3, 1.0), whose=whose
    )
    return msgspec.structs.replace(scenario, faults=[*scenario.faults, *more])


def _controller(rng: Random, controller: Controller) -> Controller:
    policy = rng.choices(("hints/2", "", "hints/1", "hints/3"), (90, 3, 4, 3))[0]
    landings = Landings(policy=policy, there=rng.random() < 0.95)
    return msgspec.structs.replace(controller, settings={**controller.settings, "steering": "hints"}, landings=landings)


def _steps(rng: Random, scenario: Scenario) -> list[Step]:
    found: list[Step] = []
    for _ in range(rng.randint(0, 4)):
        kind = rng.choices(list(_STEPS), list(_STEPS.values()))[0]
        args = STEPS[kind].draw(rng, scenario)
        if args is not None:
            found.append(Step(at=round(rng.uniform(_BEGIN, scenario.story * _END), 1), kind=kind, args=args))
    return found


__all__ = ["SHARE", "with_pilot"]
