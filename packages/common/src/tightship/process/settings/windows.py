"""The setting ``windows``: when drains may begin, as a mapping of a configuration spells it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated
from zoneinfo import ZoneInfo

import msgspec
from pydantic import BeforeValidator, Field, InstanceOf
from pydantic_core import PydanticCustomError

from tightship.kube.host import wall
from tightship.objects.quoting import quoted
from tightship.objects.times import DurationError, parse_duration
from tightship.process.settings.calendars import CalendarError, freeze_spans
from tightship.process.settings.loading import TELLS_ALL
from tightship.rules.windows import HORIZON, Window, WindowError, Windows, parse_window, scheduled

KEYS = ("allow", "deny", "timeZone", "calendar", "hardStop", "notBefore")


def read_windows(value: object, keys: Sequence[str] = KEYS) -> Windows:
    """Return the windows that *value*, a mapping of *keys*, spells. Raises ``PydanticCustomError`` with all problems.

    *allow* and *deny* are lists of windows, each a text or ``{schedule, duration}``. *calendar* is the text of an
    iCalendar file, whose events are denied. *timeZone* is an IANA name, *hardStop* and *notBefore* are durations.
    """
    if isinstance(value, Windows):
        return value
    if value is None:
        return Windows()
    if not isinstance(value, Mapping):
        raise _problem(f"{quoted(value)} is no mapping; allowed are {', '.join(keys)}")
    problems = [f"{each}: unknown key; allowed are {', '.join(keys)}" for each in value if each not in keys]
    zone, calendar = value.get("timeZone", "UTC"), value.get("calendar")
    try:
        ZoneInfo(str(zone))
    except (ValueError, OSError, KeyError):
        problems.append(f"timeZone: {quoted(zone)} is unknown; allowed are IANA names, such as Europe/Berlin")
        zone = "UTC"
    found: dict[str, tuple[Window, ...]] = {}
    for key in ("allow", "deny"):
        found[key], bad = _windows(value.get(key))
        problems += [f"{key}{each}" for each in bad]
    durations: dict[str, float | None] = {}
    for key in ("hardStop", "notBefore"):
        try:
            durations[key] = None if value.get(key) is None else parse_duration(str(value[key]))
        except DurationError as error:
            problems.append(f"{key}: {error}")
    now = wall()
    try:
        freeze = () if calendar is None else freeze_spans(str(calendar), str(zone), now)
    except CalendarError as error:
        problems.append(f"calendar: {error}")
        freeze = ()
    if not problems:
        written = {**value, **({} if calendar is None else {"calendar": f"{len(freeze)} events from now on"})}
        allow, deny, stop, rest = found["allow"], found["deny"], durations["hardStop"], durations["notBefore"]
        windows = Windows(allow, deny, str(zone), freeze, stop, rest or 0.0, _text(written))
        state = windows.state(now, HORIZON)
        if state.open or state.until is not None:
            return windows
        problems.append(f"no window opens within a year: {state.because}")
    raise _problem("; ".join(problems))


def _windows(given: object) -> tuple[tuple[Window, ...], list[str]]:
    if given is None:
        return (), []
    if not isinstance(given, Sequence) or isinstance(given, str):
        return (), [f": {quoted(given)} is no list of windows"]
    found, problems = [], []
    for number, each in enumerate(given, 1):
        try:
            if isinstance(each, Mapping):
                if each.keys() != {"schedule", "duration"}:
                    raise WindowError(f"{quoted(dict(each))}; needed are schedule and duration")
                found.append(scheduled(str(each["schedule"]), parse_duration(str(each["duration"]))))
            else:
                found.append(parse_window(str(each)))
        except (WindowError, DurationError) as error:
            problems.append(f"[{number}]: {error}")
    if not given:
        problems.append(": an empty list opens nothing; leave the key out")
    return tuple(found), problems


def _text(written: Mapping[str, object]) -> str:
    return msgspec.json.encode(written, order="sorted").decode()


def _problem(text: str) -> PydanticCustomError:
    return PydanticCustomError(TELLS_ALL, "{problem}", {"problem": text})


WindowsSetting = Annotated[InstanceOf[Windows], BeforeValidator(read_windows), Field(default=Windows())]
"""When drains may begin: see [windows](settings.md#windows). Without windows, at any time."""

LoweringWindows = Annotated[InstanceOf[Windows], BeforeValidator(partial(read_windows, keys=KEYS[:4]))]
"""When floors may be lowered: without the keys that are about drains."""
