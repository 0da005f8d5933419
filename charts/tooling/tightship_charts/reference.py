"""``docs/settings.md``: every setting of every controller with its names, what it allows, its default and meaning."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
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
_POOL = ("nodePools", "NAME")
_TABLE = "| {} | value | meaning |\n|---|---|---|"
_CHART = "https://github.com/tightship/tightship/blob/main/charts/node-compactor/README.md#configuration"
"""Where long lists are."""
_KNOWN = {"a string", "a path", "a price list: docs/money.md", "windows: docs/settings.md#windows"}
"""What a default or the meaning says already."""


def reference() -> str:
    """Return the whole page: the notes, with the tables in their places."""
    notes = (CHARTS / "tooling" / "settings-notes.md").read_text(encoding="utf-8")
    own = {key.path[0] for key in config_keys("node-refiner")}
    missing = dict.fromkeys(key.path[0] for key in config_keys(_FIRST) if key.path[0] not in own)
    notes = notes.replace("MISSING", ", ".join(map(_code, missing)))
    notes = notes.replace(
        "PROCESS\n", "\n".join(["### The process\n", _TABLE.format("variable, flag"), *_process(_FIRST), ""])
    )
    return re.sub(r"^KEYS (.+)$", lambda found: "\n".join(_keys(found[1])), notes, flags=re.MULTILINE)


def _keys(controller: str) -> Iterator[str]:
    if controller != _FIRST:
        name = controller if controller == "node-refiner" else f"the {controller}"
        yield f"### The process of {name}\n"
        yield f"The variables are node-compactor's, but {', '.join(_defaults(controller))}.\n"
        theirs = {row.partition(" | ")[0] for row in _process(_FIRST)}
        if own := [row for row in _process(controller) if row.partition(" | ")[0] not in theirs]:
            yield from (_TABLE.format("variable, flag"), *own, "")
    keys = config_keys(controller)
    yield f"### {'All HPAs' if controller == 'hpa-scaler' else f'Plans of {controller}'}\n"
    yield _TABLE.format("key, flag")
    if controller == _FIRST:
        of_all = {key.path for key in keys}
        rest = [key for key in keys if not _section(key) and not _of_pool(key) & of_all]
    else:
        rest = [key for key in keys if controller != "node-refiner" or not _shared(key)]
    yield from (_row(controller, key, keys) for key in rest)
    if controller == _FIRST:
        for title in _SECTIONS:
            yield from (f"\n### {title}\n", _TABLE.format("key, flag"))
            yield from (_row(controller, key, keys) for key in keys if _section(key) == title)


def _of_pool(key: Key) -> set[tuple[str, ...]]:
    """The path of the key for all pools that a key of one pool overrides."""
    return {key.path[2:]} if key.path[:2] == _POOL else set()


def _shared(key: Key) -> bool:
    """Whether *key* of node-refiner has the default and the meaning of node-compactor's."""
    return _row("node-refiner", key, ()) in [_row(_FIRST, each, ()) for each in config_keys(_FIRST)]


def _section(key: Key) -> str:
    return next((title for title, model in _SECTIONS.items() if key.path[0] in wire_keys(model).values()), "")


def _row(controller: str, key: Key, keys: Sequence[Key]) -> str:
    same = [key, *(each for each in keys if key.path in _of_pool(each))]
    names = ", ".join(_code(name) for each in same for name in (".".join(each.path), each.flag) if name)
    return f"| {names} | {_value(allowed(key.schema), key.default)} | {_meaning(controller, key.path[-1])} |"


def _process(controller: str) -> Iterator[str]:
    model = _PROCESS[controller]
    flags = flags_of(model)
    for name, field in model.model_fields.items():
        variables = model.variables(name)
        names = ", else ".join(_code(each) for each in variables)
        flag = f", {_code(flags[name].name)}" if name in flags else ""
        value = _value(_allows(name, field), shown(field))
        yield f"| {names}{flag} | {value} | {_meaning(controller, variables[0])} |"


def _defaults(controller: str) -> Iterator[str]:
    """The variables that a controller shares with the first one, where their defaults differ."""
    first, model = (_PROCESS[each].model_fields for each in (_FIRST, controller))
    for name in (each for each in model if each in first):
        if shown(model[name]) != shown(first[name]):
            yield f"{_code(_PROCESS[controller].variables(name)[0])} is {_code(shown(model[name]))}"


def _value(words: str, default: str) -> str:
    """The default, and what else is allowed where the default does not show that; of a choice the default first."""
    choices = [each for each in words.split(", ") if each.startswith("`")]
    if choices and words.startswith("`"):
        return ", ".join(sorted(choices, key=lambda each: each != _code(default)))
    if words.startswith("a list of `"):
        return "reasons"
    if words.startswith("by annotation"):
        return "by annotation"
    if default.count(",") > 9:
        return f"[the chart's]({_CHART})"
    number = "number" in words and "percentage" not in words
    bounds = re.sub(r"^a (whole )?number( from 0$)?,?", "", words) if number else ""
    bounds = bounds and f",{bounds}"
    return f"{_code(default)}{bounds}" if default else "" if words in _KNOWN else words


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
