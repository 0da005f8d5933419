"""Finds a shorter story that breaks the same promise: by leaving out what it can do without."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from tightship_testkit.disasters.floors.shrinking import shorter
from tightship_testkit.disasters.known import finding
from tightship_testkit.disasters.promises.base import Violation
from tightship_testkit.disasters.run import Result, run
from tightship_testkit.disasters.scenario import Controller, Scenario, encode

_SHORTEST = 20.0
"""Seconds of story below which nothing is halved."""


class NothingBroken(Exception):  # noqa: N818 - what it says
    """The scenario doesn't break the promise."""


class Unfinished(Exception):  # noqa: N818
    """Tries or time were up before nothing could be left out any more; *scenario* is the shortest until then."""

    def __init__(self, text: str, scenario: Scenario) -> None:
        super().__init__(text)
        self.scenario = scenario


def shrink(
    scenario: Scenario,
    promise: str,
    *,
    known: bool = False,
    tries: int = 300,
    seconds: float = 300.0,
    play: Callable[[Scenario], Result] = run,
) -> Scenario:
    """Return the shortest scenario found that breaks *promise* by what is no known finding, unless *known*.

    Raises :class:`NothingBroken`, and :class:`Unfinished` after so many *tries* or *seconds*.
    """

    def fails(each: Scenario) -> bool:
        return any(_counts(violation, promise, known) for violation in play(each).violations)

    if not fails(scenario):
        raise NothingBroken(f"seed {scenario.seed}: {promise} is not broken; there is nothing to shrink")
    end, done, best = time.monotonic() + seconds, 0, scenario
    seen = {encode(best)}
    while True:
        for each in _shorter(best):
            if encode(each) in seen:
                continue
            seen.add(encode(each))
            if done >= tries or time.monotonic() >= end:
                limit = f"{tries} tries" if done >= tries else f"{seconds:g} s"
                raise Unfinished(f"seed {scenario.seed}: not shrunk to the end within {limit}", best)
            done += 1
            if fails(each):
                best = each
                break
        else:
            return best


def _counts(violation: Violation, promise: str, known: bool) -> bool:
    return violation.promise == promise and (known or finding(violation) is None)


def _shorter(scenario: Scenario) -> Iterator[Scenario]:
    """Yield scenarios that lack something, those that lack much first."""
    for field in ("faults", "steps", "budgets", "objects", "workloads", "nodes", "controllers"):
        yield from _without(scenario, field)
    for number, each in enumerate(scenario.controllers):
        if len(each.skews) > 1:
            yield _with_controller(scenario, number, msgspec.structs.replace(each, skews=each.skews[:1]))
        if any(each.skews):
            level = [0.0] * len(each.skews)
            yield _with_controller(scenario, number, msgspec.structs.replace(each, skews=level))
    yield from _without_pilots(scenario)
    for number, workload in enumerate(scenario.workloads):
        if workload.replicas > 1:
            fewer = [*scenario.workloads]
            fewer[number] = msgspec.structs.replace(workload, replicas=workload.replicas // 2)
            yield msgspec.structs.replace(scenario, workloads=fewer)
    if scenario.floors is not None:
        for fewer_floors in shorter(scenario.floors):
            yield msgspec.structs.replace(scenario, floors=fewer_floors)
    if scenario.latency:
        yield msgspec.structs.replace(scenario, latency=0.0)
    if scenario.story / 2 >= _SHORTEST:
        yield _faster(scenario)
        last = max([0.0, *(each.at for each in scenario.steps), *(each.until for each in scenario.faults)])
        if last + _SHORTEST < scenario.story * 0.9:
            yield msgspec.structs.replace(scenario, story=round(last + _SHORTEST, 1))


def _without(scenario: Scenario, field: str) -> Iterator[Scenario]:
    """Leave out all of a list, halves of it, then single ones."""
    things: list[Any] = getattr(scenario, field)
    size = len(things)
    while size:
        for begin in range(0, len(things), size):
            yield msgspec.structs.replace(scenario, **{field: [*things[:begin], *things[begin + size :]]})
        size //= 2


def _without_pilots(scenario: Scenario) -> Iterator[Scenario]:
    for number, each in enumerate(scenario.controllers):
        if each.landings is not None:
            plain = {key: value for key, value in each.settings.items() if key != "steering"}
            yield _with_controller(scenario, number, msgspec.structs.replace(each, landings=None, settings=plain))


def _with_controller(scenario: Scenario, number: int, controller: Controller) -> Scenario:
    controllers = [*scenario.controllers]
    controllers[number] = controller
    return msgspec.structs.replace(scenario, controllers=controllers)


def _faster(scenario: Scenario) -> Scenario:
    """Halve all times of the story."""

    def half(seconds: float) -> float:
        return round(seconds / 2, 1)

    return msgspec.structs.replace(
        scenario,
        story=half(scenario.story),
        steps=[msgspec.structs.replace(each, at=half(each.at)) for each in scenario.steps],
        faults=[msgspec.structs.replace(each, at=half(each.at), until=half(each.until)) for each in scenario.faults],
    )


__all__ = ["NothingBroken", "Unfinished", "shrink"]
