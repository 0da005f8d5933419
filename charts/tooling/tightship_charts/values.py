"""A chart's ``values.yaml``: every key with its default and what the comment above it says."""

from __future__ import annotations

import re
from pathlib import Path

import yaml
from msgspec import Struct

from tightship_charts.configuration import MODELS, allowed, config_keys
from tightship_charts.places import AUDIENCES, CHARTS, CONTROLLERS, TOOLING

MARK = "# -- "
"""Begins the description of the key below it."""

SHARED = "# --- Shared values: `make charts` copies them from charts/tooling/shared-values.yaml ---"
"""From this line on a chart's ``values.yaml`` is made from ``shared-values.yaml``."""

EVERY_KEY = "  # Every key, with its default and what it allows (made by `make charts`):"
_CONFIG = re.compile(
    r"^(config:.*\n(?:  [^#\s].*\n|  # (?!Every key).*\n)*)" + rf"(?:{re.escape(EVERY_KEY)}\n(?:  #.*\n)*)?\n",
    re.MULTILINE,
)
_LONGEST = 70
"""Characters of a default or of what is allowed; what is longer is in the chart's README."""

_PORTS = {"node-refiner": ("8080", "9102"), "hpa-scaler": ("9103", "9104")}
_USUAL_PORTS = ("9101", "5000")
_PART = re.compile(r"^# --- For (.+) ---\n+", re.MULTILINE)
_KIND = re.compile(r"\(([^)]*)\) ")

Keys = tuple[str, ...]


class Value(Struct, frozen=True):
    """One key: its *path* from the top, its *default*, and its *description*, empty where a part speaks for itself.

    *kind* says what is allowed where the default does not say enough; empty where the default does.
    """

    path: Keys
    default: object
    description: str
    kind: str

    @property
    def dotted(self) -> str:
        """The path as ``--set`` takes it."""
        return ".".join(self.path)


def values_file(chart: str) -> Path:
    """Return the file of *chart*."""
    return CHARTS / chart / "values.yaml"


def values_text(chart: str) -> str:
    """Return what the file of *chart* should say: its own part, and what it shares with other charts.

    Below ``config`` every key of the configuration stands as a comment.
    """
    own = _own_part(chart)
    if chart in MODELS:
        own = _CONFIG.sub(lambda found: f"{found[1]}{EVERY_KEY}\n{_commented(chart)}\n", own, count=1)
    return f"{own}{SHARED}\n\n{_shared_part(chart)}"


def _commented(chart: str) -> str:
    """Return every key of ``config`` with its default, or what it allows if it has none, as comments."""
    lines: list[str] = []
    above: tuple[str, ...] = ()
    for key in config_keys(chart):
        *parents, name = key.path
        same = next((at for at, each in enumerate(parents) if above[at : at + 1] != (each,)), len(parents))
        lines += [f"{'  ' * at}{each}:" for at, each in enumerate(parents) if at >= same]
        above, words = tuple(parents), allowed(key.schema)
        default = f" {key.default}" if key.default and len(key.default) <= _LONGEST else ""
        note = f"  # {words.replace('`', '')}" if len(words) <= _LONGEST else ""
        lines.append(f"{'  ' * len(parents)}{name}:{default}{note}")
    return "".join(f"  # {line}\n" for line in lines)


def defaults(chart: str) -> dict[str, object]:
    """Return the values of *chart* as they are by default."""
    found: dict[str, object] = yaml.safe_load(values_text(chart))
    return found


def shared_defaults() -> str:
    """Return the template that says what is the default of each value which ``global`` may have too."""
    values = defaults(CONTROLLERS[0])
    found = _in_both(values, values["global"])
    # Its template asks for the global value itself.
    del found["priorityClassName"]
    text = yaml.safe_dump(found, default_flow_style=False)
    comment = "{{/* Made by `make charts`: defaults of the values that `global` may have too. */}}"
    return f'{comment}\n{{{{- define "tightship-lib.defaults" -}}}}\n{text}{{{{- end -}}}}\n'


def _in_both(values: object, everywhere: object) -> dict[str, object]:
    """Return those of *values* that *everywhere* has too; of a mapping that is empty there, the whole."""
    assert isinstance(values, dict)
    assert isinstance(everywhere, dict)
    return {
        key: _in_both(values[key], value) if isinstance(value, dict) and value else values[key]
        for key, value in everywhere.items()
        if key in values
    }


def own_keys(chart: str) -> frozenset[str]:
    """Return the keys at the top of *chart* that are not shared."""
    return frozenset(yaml.safe_load(_own_part(chart)))


def documented(chart: str) -> list[Value]:
    """Return every key of *chart*, parents before their parts, in the order of the file."""
    text = values_text(chart)
    found: list[Value] = []
    _walk(yaml.compose(text, yaml.SafeLoader), (), text.splitlines(), found)
    return found


def leaves(chart: str) -> list[Value]:
    """Return the keys of *chart* that hold a value: what is described as a whole counts as one."""
    every = documented(chart)
    whole = [each.path for each in every if each.description]
    kept = [each for each in every if not any(each.path[: len(path)] == path for path in whole if path != each.path)]
    return [each for each in kept if each.description or not isinstance(each.default, dict)]


def _own_part(chart: str) -> str:
    """Return what people write in the file of *chart*."""
    return values_file(chart).read_text(encoding="utf-8").partition(SHARED)[0]


def _shared_part(chart: str) -> str:
    """Return the parts of ``shared-values.yaml`` that are for *chart*."""
    _, *parts = _PART.split((TOOLING / "shared-values.yaml").read_text(encoding="utf-8"))
    text = "".join(part for audience, part in zip(parts[::2], parts[1::2], strict=True) if chart in AUDIENCES[audience])
    port, probe_port = _PORTS.get(chart, _USUAL_PORTS)
    for word, meaning in (("CHART_NAME", chart), ("HTTP_PORT", port), ("PROBE_PORT", probe_port)):
        text = text.replace(word, meaning)
    return text.rstrip() + "\n"


def _walk(node: yaml.Node | None, path: Keys, lines: list[str], found: list[Value]) -> None:
    if not isinstance(node, yaml.MappingNode):
        return
    for key, value in node.value:
        here = (*path, str(key.value))
        text = _above(lines, key.start_mark.line)
        kind = _KIND.match(text)
        found.append(Value(here, _plain(value), text[kind.end() :] if kind else text, kind[1] if kind else ""))
        _walk(value, here, lines, found)


def _plain(node: yaml.Node) -> object:
    found: object = yaml.safe_load(yaml.serialize(node))
    return found


def _above(lines: list[str], line: int) -> str:
    """Return the description that ends just above *line*."""
    comment: list[str] = []
    for text in reversed([each.strip() for each in lines[:line]]):
        if not text.startswith("#"):
            return ""
        if text.startswith(MARK):
            return " ".join([text.removeprefix(MARK), *reversed(comment)])
        comment.append(text.removeprefix("#").strip())
    return ""


__all__ = [
    "MARK",
    "SHARED",
    "Value",
    "defaults",
    "documented",
    "leaves",
    "own_keys",
    "shared_defaults",
    "values_file",
    "values_text",
]
