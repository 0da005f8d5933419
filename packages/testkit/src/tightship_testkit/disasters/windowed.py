"""Gives scenarios windows that open and close within the story, and clocks that are a few seconds apart.

All of it comes from a source of chance of its own, so that what else a seed draws stays what it was.
"""

from __future__ import annotations

from random import Random

import msgspec

from tightship_testkit.disasters.registry import Args
from tightship_testkit.disasters.resting import quiet
from tightship_testkit.disasters.scenario import Controller, Scenario, Step, Workload

SHARE = 0.2
"""The part of scenarios of nodes that have windows."""

_OPEN = ((1, 3), (2, 3), (0, 1), (3, 5))
"""Minutes of the story (4.7 of them, and 3.8 of quiet), which begins on Monday 2026-01-05 at 08:00 UTC."""

_EVENT = (
    "BEGIN:VCALENDAR\nVERSION:2.0\nPRODID:-//tests//EN\nBEGIN:VEVENT\nUID:1\nDTSTAMP:20260101T000000Z\n"
    "DTSTART:20260105T08{:02}00Z\nDTEND:20260105T08{:02}00Z\nSUMMARY:Freeze\nEND:VEVENT\nEND:VCALENDAR\n"
)


def with_windows(scenario: Scenario) -> Scenario:
    """Return *scenario* with windows, or as it is."""
    rng = Random(f"windows {scenario.seed}")  # noqa: S311 - a simulation
    if scenario.floors is not None or rng.random() >= SHARE:
        return scenario
    controllers = [_windowed(rng, each) for each in scenario.controllers]
    workloads = [_slow(each) if rng.random() < 0.5 else each for each in scenario.workloads]
    return msgspec.structs.replace(scenario, controllers=controllers, workloads=workloads)


def with_settling(scenario: Scenario) -> Scenario:
    """Return a quiet scenario whose workloads are rolled out right before drains would begin, or as it is.

    That is before the window opens, and then each time that drains have just gone on.
    """
    rng = Random(f"settling {scenario.seed}")  # noqa: S311 - a simulation
    if scenario.floors is not None or rng.random() >= SHARE:
        return scenario
    rest = rng.choice((20, 60))
    scenario = quiet(rng, scenario, rng.choice(("0s", "10s")))
    steps, at = list(scenario.steps), rng.uniform(48.0, 58.0)
    while at < scenario.story * 0.75:
        steps += [Step(at=round(at, 1), kind="rollout", args={"workload": each.name}) for each in scenario.workloads]
        at += rest + rng.uniform(10.0, 25.0)
    windows = {"allow": ["Mon 08:01-09:00"], "notBefore": f"{rest}s"}
    controllers = [
        msgspec.structs.replace(each, settings={**each.settings, "windows": windows}) for each in scenario.controllers
    ]
    return msgspec.structs.replace(scenario, controllers=controllers, steps=sorted(steps, key=lambda each: each.at))


def _slow(workload: Workload) -> Workload:
    """Return *workload* with pods that take their time, so that drains are under way when windows close."""
    if workload.kind not in ("Deployment", "StatefulSet") or workload.annotations:
        return workload
    spec = {**workload.spec, "terminationGracePeriodSeconds": 30}
    return msgspec.structs.replace(workload, annotations={"tightship-simulator/stops-after": "15"}, spec=spec)


def _windowed(rng: Random, controller: Controller) -> Controller:
    windows, settings = _windows(rng), dict(controller.settings)
    if rng.random() < 0.6:
        windows["hardStop"] = rng.choice(("0s", "0s", "10s", "30s"))
        settings |= {"maximumEvictionsInFlight": 1, "nodeDrainTimeout": 200, "workloadPause": 15}
    pools: Args = settings.get("nodePools") or {}
    if pools and rng.random() < 0.4:
        settings["nodePools"] = {name: {**each, "windows": windows} for name, each in pools.items()}
    else:
        settings["windows"] = windows
    # The clocks of the controllers and of their replicas are five seconds apart.
    skews = [rng.choice((-2.5, 2.5)) for _ in controller.skews]
    return msgspec.structs.replace(controller, settings=settings, skews=skews)


def _windows(rng: Random) -> Args:
    begin, end = rng.choice(_OPEN)
    hours, zone = rng.choice(((8, ""), (9, "Europe/Berlin"), (3, "America/New_York")))
    windows: Args = {"timeZone": zone} if zone else {}
    kind = rng.choice(("allow", "schedule", "deny", "calendar"))
    if kind == "allow":
        windows["allow"] = [f"Mon {hours:02}:{begin:02}-{hours:02}:{end:02}"]
    elif kind == "schedule":
        windows["allow"] = [{"schedule": f"{begin} {hours} * * 1", "duration": f"{end - begin}m"}]
    elif kind == "deny":
        windows["deny"] = [f"{hours:02}:{begin:02}-{hours:02}:{end:02}"]
    else:
        windows["calendar"] = _EVENT.format(begin, end)
    return windows


__all__ = ["SHARE", "with_settling", "with_windows"]
