"""``docs/settings-reference.md``: every setting of every controller with its names, what it allows and its default."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, get_type_hints

import hpa_scaler.app.run_settings
import hpa_scaler.cli
import node_compactor.cli
import node_compactor.options
import node_compactor.run_settings
import node_refiner.cli
import node_refiner.options
import node_refiner.run_settings
from tightship.app.cli.options import Flag
from tightship.app.observability.logging import FORMATS, LEVELS
from tightship.app.settings.process import LogFormat, LogLevel, Name, Port, Ports, Positive, ProcessSettings, Switch
from tightship_charts.configuration import Key, config_keys, shown
from tightship_charts.places import CHARTS, CONTROLLERS
from tightship_charts.readme import SETTINGS_PAGES, allowed

REFERENCE = CHARTS.parent / "docs" / "settings-reference.md"

_HEAD = """\
<!-- Made by `make charts` from the code: edit that. -->
# Every setting, by name

[Settings](settings.md) explains what each setting means. This page lists each setting with all its names, what it
allows, and its default. A flag overrides the environment, the environment overrides the ConfigMap, and the ConfigMap
overrides the default. The keys of the ConfigMap are also the keys of `config` in the
[charts' values](../charts/tightship/README.md).
"""

_PROCESS: Mapping[str, type[ProcessSettings]] = {
    "node-compactor": node_compactor.run_settings.RunSettings,
    "node-refiner": node_refiner.run_settings.RunSettings,
    "hpa-scaler": hpa_scaler.app.run_settings.RunSettings,
}
_PARSERS = {
    "node-compactor": node_compactor.cli.COMMAND.parser,
    "node-refiner": node_refiner.cli.COMMAND.parser,
    "hpa-scaler": hpa_scaler.cli.build_parser,
}
_FLAGS: Mapping[str, Iterable[Flag]] = {
    "node-compactor": node_compactor.options.FLAGS,
    "node-refiner": node_refiner.options.FLAGS,
    "hpa-scaler": (),
}

_WORDS: tuple[tuple[object, str], ...] = (
    (Switch, "`true`, `false`"),
    (Positive, "a duration above 0, up to a day"),
    (Name, "a name of a Kubernetes object"),
    (Port, "a port"),
    (Ports, "ports, separated by commas"),
    (LogFormat, ", ".join(f"`{each}`" for each in FORMATS)),
    (LogLevel, ", ".join(f"`{each}`" for each in LEVELS)),
    (Path | None, "a path"),
    (str, "a string"),
    (str | None, "a string"),
)
"""What the types of a process's settings allow."""

_SPECIAL: Mapping[str, str] = {
    "prometheus_server_url": "an address with `http` or `https`",
    "lower_bound": "a whole number, as Go reads it",
    "annotation_prefix": "a DNS name",
    "decision_log_megabytes": "a number above 0, up to 100000",
    "listening_port": "a port",
}
"""The same of fields with a check of their own."""


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
        flag = _code(_plan_flag(controller, key))
        yield f"| {_code('.'.join(key.path))} | {flag} | {allowed(key.schema)} | {_code(key.default)} |"
    yield ""


def _process(controller: str) -> Iterator[str]:
    model, flags = _PROCESS[controller], _run_flags(controller)
    kinds = get_type_hints(model, include_extras=True)
    for name, field in model.model_fields.items():
        variables = ", else ".join(f"`{each}`" for each in model.variables(name))
        flag = _code(flags.get(name, ""))
        yield f"| {variables} | {flag} | {_allows(name, kinds[name])} | {_code(shown(field))} |"


def _allows(name: str, kind: object) -> str:
    found = next((words for each, words in _WORDS if each == kind), None)
    words = _SPECIAL.get(name, found)
    if words is None:
        raise TypeError(f"{name}: no words for {kind!r}")
    return words


def _run_flags(controller: str) -> Mapping[str, str]:
    """Return the flag of ``run`` for each field that has one, as ``--help`` shows it."""
    parser = _PARSERS[controller]()
    [commands] = [each for each in parser._actions if isinstance(each, argparse._SubParsersAction)]
    run: Any = commands.choices["run"]
    return {each.dest: each.option_strings[-1] for each in run._actions if each.option_strings}


def _plan_flag(controller: str, key: Key) -> str:
    """Return the flag of ``plan`` that sets the same; those for pools are apart from those for everything."""
    for each in _FLAGS[controller]:
        of_pools = each in node_compactor.options.POOL_GATES
        if each.field == key.field and of_pools == (len(key.path) > 1):
            return each.flag
    return ""


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


__all__ = ["REFERENCE", "reference"]
