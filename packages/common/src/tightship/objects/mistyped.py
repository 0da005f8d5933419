"""Values of the wrong type: those that an API server takes are mended, everything else is named by key and value."""

from __future__ import annotations

import re

import msgspec

from tightship.objects.quantity import QuantityError
from tightship.objects.quoting import quoted
from tightship.objects.unreadable import UNREADABLE

QUANTITIES = frozenset({"requests", "limits", "allocatable", "capacity", "allocatedResources", "overhead"})
"""Keys of maps of quantities. The ``allocatable.count`` of a CSINode is a number."""

_PARTS = frozenset({"spec", "status"})

_JSON = bytes | bytearray | memoryview | msgspec.Raw

_PLACE = re.compile(r"(?:key in )?\$(?P<path>[^`]*)`")
_MISSING = re.compile(r"Object missing required field `(?P<name>[^`]+)`(?: - at `\$(?P<path>[^`]*)`)?")
_STEP = re.compile(r"\.(?P<name>[^.\[\]]+)|\[(?P<index>[0-9]+|\.\.\.)\]")
_TYPES: dict[str, type | tuple[type, ...]] = {
    "str": str,
    "int": int,
    "float": (int, float),
    "bool": bool,
    "object": dict,
    "array": list,
    "null": type(None),
}
_NAMES = {"str": "text", "int": "a whole number", "bool": "true or false", "object": "a mapping", "array": "a list"}
_WANTED = re.compile(r"Expected `(?P<wanted>[^`]+)`, got `(?P<got>[^`]+)`")


def tree(raw: _JSON) -> object:
    """Return the JSON in *raw* as plain data, ``None`` if it is broken."""
    try:
        return msgspec.json.decode(raw)
    except UNREADABLE:
        return None


def mend(node: object) -> bool:
    """Turn numbers in maps of quantities into text, and drop ``spec: null`` and ``status: null``, in place.

    An API server reads both so. Return whether there were any.
    """
    found = False
    if isinstance(node, list):
        for each in node:
            found |= mend(each)
    elif isinstance(node, dict):
        for key in _PARTS & node.keys():
            if node[key] is None:
                del node[key]
                found = True
        for key, value in node.items():
            if key in QUANTITIES and isinstance(value, dict):
                for name, amount in value.items():
                    if isinstance(amount, int | float) and not isinstance(amount, bool) and name != "count":
                        value[name] = str(amount)
                        found = True
            else:
                found |= mend(value)
    return found


def mended(raw: _JSON) -> _JSON:
    """Return *raw* as :func:`mend` leaves it; *raw* itself if it is that already."""
    document = tree(raw)
    try:
        return msgspec.json.encode(document) if mend(document) else raw
    except RecursionError:
        return raw


def explained(raw: _JSON, problem: str) -> str:
    """Return the *problem* of a decoder with the key, the value and what is allowed, as far as *raw* shows them."""
    missing = _MISSING.fullmatch(problem)
    if missing is not None:
        return f"{missing['path'] or ''}.{missing['name']} is missing".lstrip(".")
    why, _, rest = problem.partition(" - at `")
    place = _PLACE.fullmatch(rest)
    if place is None:
        return problem
    wanted = _WANTED.fullmatch(why)
    path, value = _found(tree(raw), place["path"], wanted)
    if wanted is None:
        return f"{path}: {why}"
    accepted = [_NAMES.get(each, each) for each in wanted["wanted"].split(" | ") if each != "null"]
    hint = ""
    if "str" in wanted["wanted"] and isinstance(value, bool | int | float):
        hint = f'; put the value in quotes: "{msgspec.json.encode(value).decode()}"'
    shown = (
        msgspec.json.encode(value).decode()
        if not isinstance(value, dict | list)
        else _NAMES.get(wanted["got"], wanted["got"])
    )
    return f"{path}: {quoted(shown) if isinstance(value, str) else shown[:80]} is not {' or '.join(accepted)}{hint}"


def within(part: str, problem: str) -> str:
    """Return the *problem* that a decoder found in *part* of an object as one of the whole object."""
    return problem.replace("`$", f"`$.{part}", 1) if "`$" in problem else f"{problem} - at `$.{part}`"


def part_explained(part: str, raw: _JSON, error: Exception) -> str:
    """Return what is wrong in *raw*, the JSON of one *part* of an object, in the words of :func:`explained`."""
    return explained(msgspec.json.encode({part: tree(raw)}), within(part, str(error)))


def located(raw: _JSON, error: QuantityError) -> str:
    """Add the path of the bad quantity to *error*: the parser has seen only the text."""

    def walk(value: object, path: str) -> str | None:
        if value == error.text and isinstance(value, str):
            return path
        if isinstance(value, dict):
            parts = [(f"{path}.{key}", each) for key, each in value.items()]
        elif isinstance(value, list):
            parts = [(f"{path}[{index}]", each) for index, each in enumerate(value)]
        else:
            return None
        return next((found for at, each in parts if (found := walk(each, at))), None)

    document = tree(raw)
    sections = document if isinstance(document, dict) else {}
    places = [section for section in ("spec", "status", "template") if section in sections]
    try:
        path = next((found for section in places if (found := walk(sections[section], section))), "")
    except RecursionError:
        path = ""
    return f"{path}: {error}" if path else str(error)


def _found(document: object, path: str, wanted: re.Match[str] | None) -> tuple[str, object]:
    """Return the keys and the value at a decoder's *path*, in which ``[...]`` is any entry of a mapping."""
    named, value = "", document
    steps = list(_STEP.finditer(path))
    for number, step in enumerate(steps):
        last = number == len(steps) - 1
        if step["name"] is not None:
            named += f".{step['name']}"
            value = value.get(step["name"]) if isinstance(value, dict) else None
        elif step["index"] != "..." and isinstance(value, list) and int(step["index"]) < len(value):
            named += f"[{step['index']}]"
            value = value[int(step["index"])]
        elif isinstance(value, dict):
            entries = [(key, each) for key, each in value.items() if not last or not _fits(each, wanted)]
            key, value = entries[0] if entries else ("...", None)
            named += f".{key}"
        elif isinstance(value, list):
            entry = next((n for n, each in enumerate(value) if not last or not _fits(each, wanted)), None)
            named += "[...]" if entry is None else f"[{entry}]"
            value = None if entry is None else value[entry]
    return named.lstrip(".") or "the object", value


def _fits(value: object, wanted: re.Match[str] | None) -> bool:
    if wanted is None:
        return False
    kinds = [_TYPES[each] for each in wanted["wanted"].split(" | ") if each in _TYPES]
    flat = tuple(each for kind in kinds for each in (kind if isinstance(kind, tuple) else (kind,)))
    return isinstance(value, flat) and not (isinstance(value, bool) and bool not in flat)
