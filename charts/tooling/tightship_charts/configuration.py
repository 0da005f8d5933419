"""The live configuration of each controller, as its code has it: keys, what each allows, and defaults."""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Union, get_args, get_origin

from msgspec import Struct
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from hpa_scaler.annotations.parsing import ANNOTATIONS
from hpa_scaler.process.settings import ScalerSettings
from node_compactor.settings import CompactorSettings
from node_refiner.settings import RefinerSettings
from tightship.objects.times import spell_duration
from tightship.process.settings.loading import (
    SWITCHABLE_RULES,
    Budget,
    Layered,
    flags_of,
    is_duration,
    nested,
    parse_ratio,
    wire_keys,
)
from tightship.process.settings.query_servers import ServerSettings
from tightship.process.settings.sections import EXACT, Steering
from tightship.process.settings.windows import KEYS, LoweringWindows
from tightship.rules.windows import Windows

Json = dict[str, Any]

DURATION = r"^(0|([0-9]+(\.[0-9]+)?(ms|s|m|h|d))+)$"
FRACTION = r"^[0-9]+(\.[0-9]+)?$"
RATIO = r"^[0-9]+(\.[0-9]+)?%?$"
BUDGET = r"^([0-9]+|[0-9]+(\.[0-9]+)?%)$"

_PRICE: Json = {"type": ["number", "string"], "pattern": FRACTION, "minimum": 0}
_WINDOW: Json = {
    "type": ["string", "object"],
    "properties": {"schedule": {"type": "string"}, "duration": {"type": "string"}},
    "required": ["schedule", "duration"],
    "additionalProperties": False,
}
WINDOWS: Json = {
    "type": "object",
    "properties": {
        "allow": {"type": "array", "items": _WINDOW, "minItems": 1},
        "deny": {"type": "array", "items": _WINDOW, "minItems": 1},
        "timeZone": {"type": "string"},
        "calendar": {"type": "string"},
        "hardStop": {"type": ["string", "integer"]},
        "notBefore": {"type": ["string", "integer"]},
    },
    "additionalProperties": False,
}
"""When work may begin; see ``tightship.process.settings.windows``."""

LOWERING: Json = WINDOWS | {"properties": {key: WINDOWS["properties"][key] for key in KEYS[:4]}}

PRICES: Json = {
    "type": "object",
    "properties": {
        "currency": {"type": "string", "pattern": "^[A-Za-z]{3}$"},
        "spotFactor": _PRICE | {"maximum": 1},
        "cloudPrices": {"type": "boolean"},
        "instanceTypes": {"type": "object", "additionalProperties": _PRICE},
        "prices": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "price": _PRICE,
                    "instanceType": {"type": "string"},
                    "selector": {"type": ["string", "object"]},
                    "zone": {"type": "string"},
                    "capacityType": {"enum": ["on-demand", "spot"]},
                },
                "required": ["price"],
                "additionalProperties": False,
            },
        },
    },
    "additionalProperties": False,
}
"""The price list of docs/money.md."""

_BOUNDS = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum"}
_PLAIN = {bool: "boolean", int: "integer", str: "string"}


class Key(Struct, frozen=True):
    """One key of a configuration: its *path*, the *flag* that sets it, the *schema* of its value, and its *default* as
    people write it.
    """

    path: tuple[str, ...]
    flag: str
    schema: Json
    default: str


MODELS: Mapping[str, type[Layered]] = {
    "node-compactor": CompactorSettings,
    "node-refiner": RefinerSettings,
    "hpa-scaler": ScalerSettings,
}
"""The settings that a controller's ConfigMap holds."""


def config_schema(controller: str) -> Json:
    """Return the JSON schema of ``config`` of *controller*."""
    model = MODELS[controller]
    return _object(model, wire_keys(model))


def config_keys(controller: str) -> list[Key]:
    """Return every key of ``config`` of *controller*, those of pools and servers under ``NAME``."""
    model = MODELS[controller]
    return list(_keys(model, wire_keys(model), ()))


def _keys(model: type[BaseModel], keys: Mapping[str, str], above: tuple[str, ...]) -> list[Key]:
    found: list[Key] = []
    flags = flags_of(model)
    for name in keys:
        field, here = model.model_fields[name], (*above, keys[name])
        schema = _field(name, field)
        inner = nested(field)
        if inner is None or inner[0] is Budget:
            found.append(Key(here, flags[name].name if name in flags else "", schema, shown(field)))
            continue
        named = ("NAME",) if inner[1] else ()
        found += _keys(inner[0], wire_keys(inner[0]), (*here, *named))
    return found


def _object(model: type[BaseModel], keys: Mapping[str, str]) -> Json:
    properties = {keys[name]: _field(name, model.model_fields[name]) for name in keys}
    required = [keys[name] for name in keys if model.model_fields[name].is_required()]
    schema: Json = {"type": "object", "properties": properties, "additionalProperties": False}
    return schema | ({"required": required} if required else {})


def _field(name: str, field: FieldInfo) -> Json:
    if is_duration(field):
        return {"type": ["string", "integer"], "pattern": DURATION, "minimum": 0, "maximum": 0}
    if name == "prices":
        return PRICES
    if name == "windows":
        return LOWERING if get_args(LoweringWindows)[-1] in field.metadata else WINDOWS
    if name == "disabled_rules":
        return {"type": "array", "items": {"enum": sorted(SWITCHABLE_RULES)}}
    if name == "defaults" and field.alias is None:
        text = {"type": ["string", "number", "boolean"]}
        return {"type": "object", "properties": {each.key: text for each in ANNOTATIONS}, "additionalProperties": False}
    return _kind(field.annotation, field.metadata)


def _kind(annotation: object, metadata: list[Any]) -> Json:
    """Return the schema of a type; a value that may be absent is just left out."""
    bounds = {
        bound: getattr(each, name)
        for each in metadata
        for name, bound in _BOUNDS.items()
        if getattr(each, name, None) is not None
    }
    if isinstance(annotation, type):
        if annotation is Budget:
            return {"type": ["string", "integer"], "pattern": BUDGET, "minimum": 0}
        if annotation is float:
            # `helm --set` knows whole numbers alone, and makes a text of 0.75.
            ratio = any(getattr(each, "func", None) is parse_ratio for each in metadata)
            return {"type": ["number", "string"], "pattern": RATIO if ratio else FRACTION, **bounds}
        if annotation in _PLAIN:
            return {"type": _PLAIN[annotation], **bounds}
        if issubclass(annotation, BaseModel):
            return _object(annotation, wire_keys(annotation))
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        # YAML 1.1, and so Helm, reads `off` as false.
        false, former = [False] if "off" in arguments else [], [EXACT] if annotation == Steering else []
        return {"enum": [*arguments, *false, *former]}
    if origin in {Union, types.UnionType}:
        [some] = [each for each in arguments if each is not types.NoneType]
        return _annotated(some, metadata)
    if origin is tuple:
        return {"type": "array", "items": _annotated(arguments[0], [])}
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {"type": "object", "additionalProperties": _texts(_annotated(arguments[1], []))}
    raise TypeError(f"no schema for {annotation!r}")


def _annotated(annotation: object, metadata: list[Any]) -> Json:
    inner = getattr(annotation, "__metadata__", None)
    if inner is None:
        return _kind(annotation, metadata)
    field = FieldInfo.from_annotation(annotation)  # type: ignore[arg-type]
    return _field("", field) if is_duration(field) else _kind(field.annotation, [*metadata, *field.metadata])


def _texts(schema: Json) -> Json:
    """Let YAML's numbers stand for texts: ``X-Scope-OrgID: 1``."""
    return {"type": ["string", "integer"]} if schema == {"type": "string"} else schema


def shown(field: FieldInfo) -> str:
    """Return the default of *field* as people write it; nothing where there is none."""
    default = field.get_default(call_default_factory=True)
    if default is None or default in ((), {}, frozenset(), Windows()) or field.is_required():
        return ""
    if is_duration(field):
        return spell_duration(float(default))
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, float) and any(getattr(each, "func", None) is parse_ratio for each in field.metadata):
        return f"{100 * default:g}%"
    if isinstance(default, tuple):
        return ", ".join(str(each) for each in default)
    return f"{default:g}" if isinstance(default, float) else str(default)


_WORDS: Mapping[str, str] = {
    DURATION: "a duration",
    BUDGET: "a number or a percentage",
    RATIO: "a share, such as 75% or 0.75",
}


def allowed(schema: Json) -> str:
    """Return in words what *schema* allows."""
    if schema is PRICES:
        return "a price list: docs/money.md"
    if schema is WINDOWS or schema is LOWERING:
        return "windows: docs/settings.md#windows"
    if "enum" in schema:
        words = (str(each).lower() if isinstance(each, bool) else each for each in schema["enum"])
        return ", ".join(f"`{each}`" for each in words)
    kinds = schema.get("type", [])
    kinds = kinds if isinstance(kinds, list) else [kinds]
    pattern = schema.get("pattern", "")
    if pattern in _WORDS:
        return _WORDS[pattern]
    if kinds == ["array"]:
        return f"a list of {allowed(schema['items'])}".replace("a string", "strings")
    if kinds == ["object"]:
        names = ", ".join(f"`{each}`" for each in schema.get("properties", ()))
        return f"by annotation: {names}" if names else "strings by name"
    if kinds in (["integer"], ["number", "string"]):
        return f"a {'whole ' if kinds == ['integer'] else ''}number{_bounds(schema)}"
    return "`true`, `false`" if kinds == ["boolean"] else "a string"


def _bounds(schema: Json) -> str:
    words: Sequence[tuple[str, str]] = (
        ("minimum", "from {}"),
        ("exclusiveMinimum", "above {}"),
        ("maximum", "up to {}"),
        ("exclusiveMaximum", "below {}"),
    )
    found = [text.format(f"{schema[key]:g}") for key, text in words if key in schema]
    return f" {' '.join(found)}" if found else ""


# An address, or what hpa-scaler takes for a server.
PRICES["properties"]["openCost"] = {
    **_object(ServerSettings, wire_keys(ServerSettings)),
    "type": ["string", "object"],
    "required": ["url"],
}

__all__ = [
    "DURATION",
    "FRACTION",
    "MODELS",
    "PRICES",
    "Json",
    "Key",
    "allowed",
    "config_keys",
    "config_schema",
    "shown",
]
