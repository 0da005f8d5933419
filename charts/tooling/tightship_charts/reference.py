"""``docs/settings-reference.md``: every setting of every controller with its names, what it allows and its default."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from pydantic.fields import FieldInfo

import hpa_scaler.process.settings
import node_compactor.controller
import node_refiner.controller
from tightship.process.settings.fields import Allowed
from tightship.process.settings.loading import flags_of
from tightship.process.settings.process import ProcessSettings
from tightship_charts.configuration import allowed, config_keys, shown
from tightship_charts.places import CHARTS, CONTROLLERS
from tightship_charts.readme import SETTINGS_PAGES

REFERENCE = CHARTS.parent / "docs" / "settings-reference.md"

_HEAD = """\
<!-- Made by `make charts` from the code: edit that. -->
# Every setting, by name

[Settings](settings.md) explains what each setting means. This page lists each setting with all its names, what it
allows, and its default. A flag overrides the environment, the environment overrides the ConfigMap, and the ConfigMap
overrides the default. The keys of the ConfigMap are also the keys of `config` in the
[charts' values](https://github.com/tightship/tightship/blob/main/charts/tightship/README.md).
"""

_PROCESS: Mapping[str, type[ProcessSettings]] = {
    "node-compactor": node_compactor.controller.CompactorRunSettings,
    "node-refiner": node_refiner.controller.RefinerRunSettings,
    "hpa-scaler": hpa_scaler.process.settings.ScalerRunSettings,
}
_WORDS: Mapping[object, str] = {Path | None: "a path", str: "a string", str | None: "a string"}
"""What a type allows that has no words of its own."""


def reference() -> str:
    """Return the whole page."""
    return "\n".join([_HEAD, *(line for controller in CONTROLLERS for line in _section(controller))])


def _section(controller: str) -> Iterator[str]:
    yield f"## {controller}\n"
    yield f"What each setting means: [settings]({SETTINGS_PAGES[controller]}).\n"
    yield f"### The process of {controller}\n"
    yield "| variable | flag of `run` | allowed | default |\n|---|---|---|---|"
    yield from _process(controller)
    yield f"\n### The ConfigMap of {controller}\n"
    yield "| key | flag of `plan` and `explain` | allowed | default |\n|---|---|---|---|"
    for key in config_keys(controller):
        flag = _code(key.flag)
        yield f"| {_code('.'.join(key.path))} | {flag} | {allowed(key.schema)} | {_code(key.default)} |"
    yield ""


def _process(controller: str) -> Iterator[str]:
    model = _PROCESS[controller]
    flags = flags_of(model)
    for name, field in model.model_fields.items():
        variables = ", else ".join(f"`{each}`" for each in model.variables(name))
        flag = _code(flags[name].name if name in flags else "")
        yield f"| {variables} | {flag} | {_allows(name, field)} | {_code(shown(field))} |"


def _allows(name: str, field: FieldInfo) -> str:
    said = [each.words for each in field.metadata if isinstance(each, Allowed)]
    words = said[-1] if said else _WORDS.get(field.annotation)
    if words is None:
        raise TypeError(f"{name}: no words for {field.annotation!r}")
    return words


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


__all__ = ["REFERENCE", "reference"]
