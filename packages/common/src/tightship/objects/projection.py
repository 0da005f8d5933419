"""Objects reduced to the fields that decisions read: those of the types on the wire, whatever their values.

A field keeps the value that it has, right or wrong, so that the rest decodes like the whole.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Struct

from tightship.objects.autoscaling import HorizontalPodAutoscalerWire
from tightship.objects.decode import ObjectError, decode, wire_of
from tightship.objects.meta import kept_annotations
from tightship.objects.volume import Volume

_LEFT_OUT = object()

_Cut = Callable[[Any], Any]


def projected(kind: str, raw: bytes | msgspec.Raw) -> bytes:
    """Return the object of *kind* in *raw* (JSON) as JSON without the fields that :func:`decode` skips.

    Of annotations, those remain that some rule reads. What decodes to an object or an error before does so after.
    """
    wire = wire_of(kind)
    whole = msgspec.json.decode(raw)
    cut = _whole(kind)(whole)
    metadata = whole.get("metadata") if isinstance(whole, dict) else None
    notes = metadata.get("annotations") if isinstance(metadata, dict) else None
    # HPAs decode with all annotations, because hpa-scaler's have a prefix of the user's choice.
    if isinstance(notes, dict) and wire is not HorizontalPodAutoscalerWire:
        _restore(kind, cut, notes)
    return msgspec.json.encode(cut)


@cache
def _whole(kind: str) -> _Cut:
    return _cut_of(wire_of(kind))


def _restore(kind: str, cut: dict[str, Any], notes: dict[str, Any]) -> None:
    """Put back those of *notes* without which the object decodes differently: who reads them says so nowhere else."""
    kept = cut["metadata"]["annotations"]

    def same(more: dict[str, Any]) -> bool:
        cut["metadata"]["annotations"] = kept | more
        return bool(decode(kind, msgspec.json.encode(cut)) == wanted)

    others = {key: text for key, text in notes.items() if key not in kept}
    found = {}
    with suppress(ObjectError):
        if others:
            cut["metadata"]["annotations"] = kept | others
            wanted = decode(kind, msgspec.json.encode(cut))
            if not same({}):
                found = {
                    key: text
                    for key, text in others.items()
                    if not same({each: value for each, value in others.items() if each != key})
                }
    cut["metadata"]["annotations"] = kept | found


def _cut_of(hint: Any) -> _Cut:
    """Return what reduces a value to the fields of the type *hint*."""
    if get_origin(hint) is Annotated:
        of, *parts = get_args(hint)
        return _fields(tuple(parts)) if of is msgspec.Raw else _cut_of(of)
    if hint is Any:
        return lambda _: _LEFT_OUT
    if isinstance(hint, type) and issubclass(hint, Struct):
        return _fields((hint,))
    inner = [each for each in get_args(hint) if each is not type(None) and each is not Ellipsis]
    if get_origin(hint) is tuple and inner:
        cut = _cut_of(inner[0])
        return lambda value: _present(map(cut, value)) if isinstance(value, list) else value
    if get_origin(hint) is dict and isinstance(inner[1], type) and issubclass(inner[1], Struct):
        entry = _cut_of(inner[1])
        return lambda value: {key: entry(each) for key, each in value.items()} if isinstance(value, dict) else value
    if len(inner) == 1 and get_origin(hint) is not dict:
        return _cut_of(inner[0])
    return lambda value: value


def _fields(types: tuple[type[Struct], ...]) -> _Cut:
    """Return what keeps the fields of *types*, each of which reads the same object."""
    cuts: dict[str, _Cut] = {}
    for of in types:
        hints = get_type_hints(of, include_extras=True)
        cuts |= {each.encode_name: _cut_of(hints[each.name]) for each in msgspec.structs.fields(of)}
    if any(_mapping(get_type_hints(of).get("annotations")) for of in types):
        cuts["annotations"] = lambda value: dict(kept_annotations(value)) if isinstance(value, dict) else value

    def cut(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        kept = {key: each(value[key]) for key, each in cuts.items() if key in value}
        kept = {key: each for key, each in kept.items() if each is not _LEFT_OUT}
        # A volume that exists on every node, such as a Secret's.
        return _LEFT_OUT if types == (Volume,) and [*kept] == ["name"] else kept

    return cut


def _mapping(hint: Any) -> bool:
    return any(get_origin(each) is dict for each in get_args(hint))


def _present(values: Any) -> list[Any]:
    return [each for each in values if each is not _LEFT_OUT]
