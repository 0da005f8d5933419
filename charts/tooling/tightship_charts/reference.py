"""``docs/settings.md``: every setting of every controller with its names, what it allows, its default and meaning."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import yaml
from pydantic.fields import FieldInfo

import hpa_scaler.process.settings
import node_compactor.controller
import node_refiner.controller
from node_compactor.settings import CoolDownKeys
from tightship.process.settings.loading import Allowed, Layered, flags_of, wire_keys
from tightship.process.settings.process import ProcessSettings
from tightship.process.settings.sections import (
    DrainKeys,
    HealthKeys,
    RegretKeys,
    ScaleUpKeys,
    SearchKeys,
    SteeringKeys,
)
from tightship_charts.configuration import Key, allowed, config_keys, shown
from tightship_charts.places import CHARTS

REFERENCE = CHARTS.parent / "docs" / "settings.md"

_PROCESS: Mapping[str, type[ProcessSettings]] = {
    "node-compactor": node_compactor.controller.CompactorRunSettings,
    "node-refiner": node_refiner.controller.RefinerRunSettings,
    "hpa-scaler": hpa_scaler.process.settings.ScalerRunSettings,
}
_SECTIONS: Mapping[str, type[Layered]] = {
    "Drains": DrainKeys,
    "Pauses": CoolDownKeys,
    "Health brake": HealthKeys,
    "Regret": RegretKeys,
    "Replicas about to start": ScaleUpKeys,
    "Steering": SteeringKeys,
    "Search": SearchKeys,
}
_WORDS: Mapping[object, str] = {Path | None: "a path", str: "a string", str | None: "a string"}
"""What a type allows that has no words of its own."""

_FIRST = "node-compactor"
_TABLE = "| key | flag | allowed | default | meaning |\n|---|---|---|---|---|"
_VARIABLES = "| variable | flag of `run` | allowed | default | meaning |\n|---|---|---|---|---|"


def reference() -> str:
    """Return the whole page: the notes, with the tables in their places."""
    notes = (CHARTS / "tooling" / "settings-notes.md").read_text(encoding="utf-8")
    shared = [f"{_code(key.path[0])} {_code(key.flag)}".strip() for key in config_keys("node-refiner") if _shared(key)]
    notes = notes.replace("SHARED", ", ".join(shared))
    notes = notes.replace("PROCESS\n", "\n".join(["## The process\n", _VARIABLES, *_process(_FIRST), ""]))
    return re.sub(r"^KEYS (.+)$", lambda found: "\n".join(_keys(found[1])), notes, flags=re.MULTILINE)


def _keys(controller: str) -> Iterator[str]:
    if controller != _FIRST:
        name = controller if controller == "node-refiner" else f"the {controller}"
        theirs = set(_process(_FIRST))
        yield from (f"## The process of {name}\n", _VARIABLES)
        yield from (row for row in _process(controller) if row not in theirs)
        yield ""
    keys = config_keys(controller)
    yield from (f"## Plans of {controller}\n" if controller != "hpa-scaler" else "## All HPAs\n", _TABLE)
    if controller == _FIRST:
        rest = [key for key in keys if not _section(key)]
    else:
        rest = [key for key in keys if controller != "node-refiner" or not _shared(key)]
    yield from (_row(controller, key) for key in rest)
    if controller == _FIRST:
        for title in _SECTIONS:
            yield from (f"\n## {title}\n", _TABLE)
            yield from (_row(controller, key) for key in keys if _section(key) == title)


def _shared(key: Key) -> bool:
    """Whether *key* of node-refiner has the default and the meaning of node-compactor's."""
    return _row("node-refiner", key) in [_row(_FIRST, each) for each in config_keys(_FIRST)]


def _section(key: Key) -> str:
    return next((title for title, model in _SECTIONS.items() if key.path[0] in wire_keys(model).values()), "")


def _row(controller: str, key: Key) -> str:
    cells = (_code(".".join(key.path)), _code(key.flag), allowed(key.schema), _code(key.default))
    return f"| {' | '.join((*cells, _meaning(controller, key.path[-1])))} |"


def _process(controller: str) -> Iterator[str]:
    model = _PROCESS[controller]
    flags = flags_of(model)
    for name, field in model.model_fields.items():
        names = model.variables(name)
        variables = ", else ".join(f"`{each}`" for each in names)
        flag = _code(flags[name].name if name in flags else "")
        meaning = _meaning(controller, names[0])
        yield f"| {variables} | {flag} | {_allows(name, field)} | {_code(shown(field))} | {meaning} |"


@cache
def _texts() -> Mapping[str, Mapping[str, str]]:
    found: Mapping[str, Mapping[str, str]] = yaml.safe_load(
        (CHARTS / "tooling" / "settings.yaml").read_text(encoding="utf-8")
    )
    return found


def _meaning(controller: str, name: str) -> str:
    """Return what a setting means; KeyError where nobody has written that."""
    own = _texts()[controller]
    return own[name] if name in own else _texts()[_FIRST][name]


def _allows(name: str, field: FieldInfo) -> str:
    said = [each.words for each in field.metadata if isinstance(each, Allowed)]
    words = said[-1] if said else _WORDS.get(field.annotation)
    if words is None:
        raise TypeError(f"{name}: no words for {field.annotation!r}")
    return words


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


__all__ = ["REFERENCE", "reference"]
