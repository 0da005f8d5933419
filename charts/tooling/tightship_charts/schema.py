"""``values.schema.json`` of a chart: the kinds that its values name, else the types of their defaults.

The code of the controller says what ``config`` allows.

Helm puts ``global``, a mapping for each dependency (the library too) and, by a dependency's condition, ``enabled`` into
the values of a chart: all are allowed, and ``global`` may hold what other charts want.

A default that a user takes away with ``null``, or with a heading that has nothing under it, is gone. Where templates
count on it, it is required, so that the error names it.
"""

from __future__ import annotations

from collections.abc import Mapping

from tightship.process.logging import FORMATS, LEVELS
from tightship_charts.configuration import DURATION, FRACTION, MODELS, Json, config_schema
from tightship_charts.places import CONTROLLERS, LIBRARY, UMBRELLA
from tightship_charts.values import Value, defaults, documented

_PORT: Json = {"type": "integer", "minimum": 1, "maximum": 65535}
_OBJECT: Json = {"type": "object"}
_TEXT: Json = {"type": "string"}
# Templates write it into a line of YAML: with a second line a value would be a key of its own.
_LINE: Json = _TEXT | {"pattern": r"^[^\r\n]*$"}
_NAME: Json = _TEXT | {"pattern": "^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?)?$"}
_VARIABLE: Json = {
    "type": "object",
    "properties": {"value": {"type": ["string", "null"]}},
}
"""The API server refuses a value that is a number or a boolean."""
_TOLERATION: Json = {
    "type": "object",
    "properties": {
        **{key: {"type": ["string", "null"]} for key in ("key", "operator", "value", "effect")},
        "tolerationSeconds": {"type": ["integer", "null"]},
    },
}
"""Likewise; ``--set tolerations[0].value=true`` is a boolean."""
_PERCENTAGE = "^(100|[0-9]{1,2})%$"

KINDS: Mapping[str, Json] = {
    "DNS name": _TEXT | {"pattern": "^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$"},
    "Prometheus duration or empty": _TEXT | {"pattern": "^(|([0-9]+(ms|[smhdwy]))+)$"},
    "RBAC rules": {
        "type": "array",
        "items": {
            "type": "object",
            "properties": {"verbs": {"type": "array", "minItems": 1, "items": _TEXT}},
            "required": ["verbs"],
        },
    },
    "URL or empty": _TEXT | {"pattern": "^(|https?://.+)$"},
    "alerts by name": {
        "type": "object",
        "additionalProperties": {
            "type": "object",
            "properties": {
                "enabled": {"type": "boolean"},
                "severity": _LINE | {"minLength": 1},
                "for": _TEXT | {"pattern": "^([0-9]+(ms|[smhdwy]))+$"},
                "threshold": {"type": ["number", "string"], "pattern": FRACTION},
            },
            "additionalProperties": False,
        },
    },
    "bool or null": {"type": ["boolean", "null"]},
    "count": {"type": "integer", "minimum": 0},
    "count or null": {"type": ["integer", "null"], "minimum": 0},
    "digest or empty": _TEXT | {"pattern": "^(|sha256:[0-9a-f]{64})$"},
    "duration": _TEXT | {"pattern": DURATION},
    "image": _TEXT | {"pattern": r"^([^\s/@]+/)*[^\s/:@]+$"},
    "image registry": _TEXT | {"pattern": r"^([^\s/]+(/[^\s/]+)*)?$"},
    "int or string": _LINE | {"type": ["integer", "string"]},
    "label or empty": _TEXT | {"pattern": "^([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)?$"},
    "log format": {"enum": ["", *FORMATS]},
    "log level": {"enum": ["", *LEVELS]},
    "name": _NAME | {"minLength": 1},
    "name or empty": _NAME,
    "non-empty string": _LINE | {"minLength": 1},
    "number, percentage or null": {"type": ["integer", "string", "null"], "minimum": 0, "pattern": _PERCENTAGE},
    "object": _OBJECT,
    "objects": {"type": "array", "items": _OBJECT},
    # Another chart of a parent may have a global value of the same name: what is no list is nothing of ours.
    "our log level": {"enum": ["", *range(11), *LEVELS]},  # cert-manager's are numbers
    "our objects": {"items": _OBJECT},
    "our variables": {"items": _VARIABLE},
    "objects or strings": {"type": "array", "items": {"type": ["object", "string"]}},
    "one or more ports": {"type": "array", "items": _PORT, "minItems": 1},
    "port": _PORT,
    "port or null": _PORT | {"type": ["integer", "null"]},
    "positive int": {"type": "integer", "minimum": 1},
    "positive number": {"type": "number", "exclusiveMinimum": 0},
    "probe": {"type": "object", "properties": {"enabled": {"type": "boolean"}}, "required": ["enabled"]},
    "secrets by folder": {
        "type": "object",
        "propertyNames": {"pattern": "^[a-z0-9]([-a-z0-9]{0,50}[a-z0-9])?$"},
        "additionalProperties": _NAME | {"minLength": 1},
    },
    "strategy": {"type": "object", "properties": {"type": {"enum": ["RollingUpdate", "Recreate"]}}},
    "strings": {"type": "array", "items": _TEXT},
    "strings by name": {"type": "object", "additionalProperties": _TEXT},
    "tolerations": {"type": "array", "items": _TOLERATION},
    "variables": {"type": "array", "items": _VARIABLE},
    "unique ports": {"type": "array", "items": _PORT, "uniqueItems": True},
}
"""What a kind allows. Beside these, ``A|B`` is one of these words, and ``list of A|B`` a list of them."""

_PLAIN: Mapping[type, Json] = {
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    str: _LINE,
}


def schema_of(chart: str) -> Json:
    """Return the schema of all values of *chart*. Raises :class:`TypeError` for a default that says no type."""
    said = {each.dotted: each for each in documented(chart)}
    schema = _closed(defaults(chart), (), said, {"config": config_schema(chart)} if chart in MODELS else {})
    schema["properties"]["global"] |= {"required": [], "additionalProperties": True}
    known = schema["properties"]["global"]["properties"]
    shared = ("compatibility", "networkPolicy", "serviceMonitor", "podMonitor", "prometheusRule")
    for part in (*(known[each] for each in shared), known["compatibility"]["properties"]["openshift"]):
        part |= {"required": [], "additionalProperties": True}  # other charts have these words too
    if chart == UMBRELLA:
        # Each of them checks its own values.
        for controller in CONTROLLERS:
            own = schema["properties"][controller]
            for each in (own, own["properties"].get("giveBack", {})):
                each |= {"required": [], "additionalProperties": True}
        # A heading with nothing under it leaves the controllers' own defaults.
        schema["required"] = [each for each in schema["required"] if each not in {"global", *CONTROLLERS}]
    what = "Whether a parent chart installs this chart."
    schema["properties"]["enabled"] = {"type": "boolean", "description": what}
    # For anchors, which YAML has to see before they are used.
    schema["patternProperties"] = {"^x-": {}}
    schema["properties"][LIBRARY] = {"type": "object", "description": "Helm sets this. Leave it out."}
    return {"$schema": "http://json-schema.org/draft-07/schema#", "title": f"Values of the chart {chart}", **schema}


def _closed(
    values: Mapping[str, object], above: tuple[str, ...], said: Mapping[str, Value], from_code: Mapping[str, Json]
) -> Json:
    properties: Json = {}
    required: list[str] = []
    for key, value in values.items():
        dotted = ".".join((*above, key))
        kind = said[dotted].kind
        if dotted in from_code:
            schema = from_code[dotted]
        elif kind:
            schema = _of_kind(kind)
        elif isinstance(value, Mapping) and value:
            schema = _closed(value, (*above, key), said, from_code)
        elif type(value) in _PLAIN:
            schema = _PLAIN[type(value)]
        else:
            raise TypeError(f"{dotted}: its default, {value!r}, does not say what is allowed: name a kind")
        counted_on = _says_something(value, whole=bool(kind)) and "null" not in schema.get("type", "")
        if counted_on or dotted in from_code:
            required.append(key)
        text = said[dotted].description
        properties[key] = schema | ({"description": text} if text else {})
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _of_kind(kind: str) -> Json:
    if "|" not in kind:
        return KINDS[kind]
    words = {"enum": kind.removeprefix("list of ").split("|")}
    return {"type": "array", "items": words} if kind.startswith("list of ") else words


def _says_something(value: object, *, whole: bool) -> bool:
    """Whether templates count on this default: it is not empty, nor a part of the pod that goes *whole* with it."""
    if isinstance(value, Mapping | list):
        return bool(value) and not whole
    return value is not None and value != ""


__all__ = ["KINDS", "schema_of"]
