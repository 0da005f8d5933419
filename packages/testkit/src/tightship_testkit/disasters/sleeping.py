"""Gives scenarios leaders that are stopped in the very step in which a request leaves, until others lead.

All of it comes from a source of chance of its own, so that what else a seed draws stays what it was. Which step that is
says a rehearsal: the same run up to there, without the stop.
"""

from __future__ import annotations

from collections import Counter
from random import Random

import msgspec

from tightship_testkit.disasters.promises.base import ours
from tightship_testkit.disasters.registry import STEPS
from tightship_testkit.disasters.scenario import Scenario, Step
from tightship_testkit.disasters.world import Moment, World

SHARE = 0.13
"""The part of scenarios in which that happens, where there is another replica."""
_KIND = "freeze-as-it-asks"
_AT = 0.0
"""When the step begins, which waits for its moment."""
_REQUESTS = {"eviction": (b"POST ", b"/eviction "), "node": (b"PATCH /api/v1/nodes/", b"")}


def with_sleepers(scenario: Scenario) -> Scenario:
    """Return *scenario* with such a leader, or as it is."""
    rng = Random(f"sleepers {scenario.seed}")  # noqa: S311 - a simulation
    if rng.random() >= SHARE or (args := STEPS[_KIND].draw(rng, scenario)) is None:
        return scenario
    steps = [*scenario.steps, Step(at=_AT, kind=_KIND, args=args)]
    return msgspec.structs.replace(scenario, steps=sorted(steps, key=lambda each: each.at))


class Rehearsal:
    """Listens to a run, and notes the steps of processes in which requests leave that *scenario* asks for."""

    def __init__(self, scenario: Scenario) -> None:
        asked = [each.args for each in scenario.steps if each.kind == _KIND]
        self._wanted = {(each["program"], each["request"], each["number"]) for each in asked}
        self._counts: Counter[tuple[str, str]] = Counter()
        self.moments: dict[Moment, tuple[str, int]] = {}

    @property
    def over(self) -> bool:
        """Whether all is known."""
        return len(self.moments) == len(self._wanted)

    def heard(self, world: World, sender: str, data: bytes) -> None:
        """Take note of what a process sends."""
        program = ours(sender)
        for request, (begin, part) in _REQUESTS.items() if program else ():
            if not data.startswith(begin) or part not in data.partition(b"\r\n")[0]:
                continue
            self._counts[program, request] += 1
            moment = program, request, self._counts[program, request]
            if moment in self._wanted:
                [replica] = [each for each in world.teams[program].replicas if each.name == sender]
                self.moments[moment] = sender, replica.process.steps


__all__ = ["SHARE", "Rehearsal", "with_sleepers"]
