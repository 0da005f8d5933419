"""Plays a scenario and tells all of it: the story, the controllers' log, each write, and what was broken."""

from __future__ import annotations

import json
import logging
from typing import Any, TextIO

from tightship_simulator.api.store import Change
from tightship_simulator.virtual.process import PROCESS
from tightship_testkit.disasters.known import finding
from tightship_testkit.disasters.observer import Observer
from tightship_testkit.disasters.run import Result, run
from tightship_testkit.disasters.scenario import Scenario
from tightship_testkit.disasters.world import World

_LOGGERS = ("tightship", "node_compactor", "node_refiner", "hpa_scaler")
_LONGEST = 400
_DULL = frozenset({"Lease", "Event"})


def replay(scenario: Scenario, out: TextIO, *, debug: bool = False) -> Result:
    """Play *scenario*, tell of it on *out*, and return its result."""
    levels = {name: logging.getLogger(name).level for name in _LOGGERS}
    handlers: list[logging.Handler] = []

    def ready(world: World, _: Observer) -> None:
        handler = _Told(world, out)
        handlers.append(handler)
        for name in _LOGGERS:
            logging.getLogger(name).setLevel(logging.DEBUG if debug else logging.INFO)
            logging.getLogger(name).addHandler(handler)
        world.telling = lambda text: _line(out, world.now, "story", text)
        world.broken = lambda violation: _line(out, world.now, "BROKEN", str(violation))
        world.store.listeners.append(lambda change, author: _write(out, world.now, change, author))

    try:
        result = run(scenario, ready)
    finally:
        for name in _LOGGERS:
            logging.getLogger(name).setLevel(levels[name])
            for handler in handlers:
                logging.getLogger(name).removeHandler(handler)
    out.write(f"seed {scenario.seed}: {result.seconds:g} s, {result.changes} changes, {result.digest[:16]}\n")
    for each in result.violations:
        known = finding(each)
        out.write(f"{each}{f' (known: {known.reference})' if known is not None else ''}\n")
    return result


def _line(out: TextIO, at: float, who: str, text: str) -> None:
    out.write(f"{at:9.3f}  {who:<18} {text}\n")


class _Told(logging.Handler):
    def __init__(self, world: World, out: TextIO) -> None:
        super().__init__(logging.DEBUG)
        self._world = world
        self._out = out
        self._format = logging.Formatter()

    def emit(self, record: logging.LogRecord) -> None:
        process = PROCESS.get()
        fields = {key: value for key, value in getattr(record, "fields", {}).items() if value not in ("", None)}
        more = " ".join(f"{key}={value}" for key, value in fields.items())
        text = f"{record.levelname.lower()}: {record.getMessage()} {more}"
        if record.exc_info and record.exc_info[0] is not None:
            text += "\n" + self._format.formatException(record.exc_info)
        _line(self._out, self._world.now, process.name if process is not None else "", text)


def _write(out: TextIO, at: float, change: Change, author: str) -> None:
    kind = change.object["kind"]
    if kind in _DULL:
        return
    meta = change.object["metadata"]
    name = "/".join(filter(None, (meta.get("namespace"), meta["name"])))
    reported = _shown(change.previous, change.object) if change.type == "MODIFIED" else ""
    if change.type == "MODIFIED" and not reported:
        return
    _line(out, at, author or "cluster", f"{change.type.lower()} {kind} {name} {reported}")


def _shown(old: Any, new: Any) -> str:
    """Return what differs, as far as it says something."""
    found = []
    for path, was, now in _differing("", old, new):
        if not path.startswith((".metadata.resourceVersion", ".metadata.generation")):
            found.append(f"{path[1:]}: {_short(was)} -> {_short(now)}")
    return "; ".join(found)


def _differing(path: str, old: Any, new: Any) -> list[tuple[str, Any, Any]]:
    if isinstance(old, dict) and isinstance(new, dict):
        keys = [*old, *(key for key in new if key not in old)]
        return [each for key in keys for each in _differing(f"{path}.{key}", old.get(key), new.get(key))]
    return [] if old == new else [(path, old, new)]


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "..."


__all__ = ["replay"]
