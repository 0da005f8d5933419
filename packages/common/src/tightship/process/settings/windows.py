"""The setting ``windows``: when drains may begin, as a mapping of a configuration spells it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any
from zoneinfo import ZoneInfo

import msgspec
from pydantic import BeforeValidator, Field, InstanceOf
from pydantic_core import PydanticCustomError

from tightship.kube.host import wall
from tightship.objects.quoting import quoted
from tightship.objects.times import DurationError, parse_duration
from tightship.process.settings.calendars import CalendarError, freeze_spans
from tightship.process.settings.loading import TELLS_ALL
from tightship.rules.windows import HORIZON, Window, WindowError, Windows, parse_window, scheduled, state_of

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
    given: Mapping[str, Any] = value
    problems = [f"{each}: unknown key; allowed are {', '.join(keys)}" for each in given if each not in keys]

    def read(name: str, parse: Callable[[Any], Any], value: object, missing: Any = None) -> Any:
        try:
            return missing if value is None else parse(value)
        except (WindowError, DurationError, CalendarError) as error:
            problems.append(f"{name}: {error}")
            return missing

    def listed(key: str) -> tuple[Window, ...]:
        each = read(key, _list, given.get(key), ())
        return tuple(read(f"{key}[{number}]", _window, window) for number, window in enumerate(each, 1))

    now, zone = wall(), read("timeZone", _zone, given.get("timeZone"), "UTC")
    windows = Windows(
        allow=listed("allow"),
        deny=listed("deny"),
        zone=zone,
        freeze=read("calendar", lambda text: freeze_spans(str(text), zone, now), given.get("calendar"), ()),
        hard_stop=read("hardStop", _seconds, given.get("hardStop")),
        not_before=read("notBefore", _seconds, given.get("notBefore"), 0.0),
    )
    if problems:
        raise _problem("; ".join(problems))
    state = windows.state(now, HORIZON)
    if not state.open and state.until is None:
        raise _problem(f"no window opens within a year: {state.because}")
    written = {**given, "calendar": f"{len(windows.freeze)} events from now on"} if given.get("calendar") else given
    return msgspec.structs.replace(windows, written=msgspec.json.encode(written, order="sorted").decode())


def check_together(windows: Windows, of_pools: Mapping[str, Windows]) -> None:
    """Raise ``PydanticCustomError`` if the windows of a pool are never open within a year while *windows* are."""
    for name, own in of_pools.items():
        state = state_of((windows, own), wall(), HORIZON)
        if not state.open and state.until is None:
            raise _problem(f"{name}.windows: never open within a year while the windows of all pools are open")


def _zone(given: object) -> str:
    try:
        return ZoneInfo(str(given)).key
    except (ValueError, OSError, KeyError) as error:
        raise WindowError(f"{quoted(given)} is unknown; allowed are IANA names, such as Europe/Berlin") from error


def _list(given: object) -> Sequence[object]:
    if not isinstance(given, Sequence) or isinstance(given, str):
        raise WindowError(f"{quoted(given)} is no list of windows")
    if not given:
        raise WindowError("an empty list opens nothing; leave the key out")
    return ["" if each is None else each for each in given]


def _window(given: object) -> Window:
    if not isinstance(given, Mapping):
        return parse_window(str(given))
    if given.keys() != {"schedule", "duration"}:
        raise WindowError(f"{quoted(dict(given))}; needed are schedule and duration")
    return scheduled(str(given["schedule"]), _seconds(given["duration"]))


def _seconds(given: object) -> float:
    return parse_duration(str(given))


def _problem(text: str) -> PydanticCustomError:
    return PydanticCustomError(TELLS_ALL, "{problem}", {"problem": text})


WindowsSetting = Annotated[InstanceOf[Windows], BeforeValidator(read_windows), Field(default=Windows())]
"""When drains may begin: see [windows](settings.md#windows). Without windows, at any time."""

LoweringWindows = Annotated[InstanceOf[Windows], BeforeValidator(partial(read_windows, keys=KEYS[:4]))]
"""When floors may be lowered: without the keys that are about drains."""
