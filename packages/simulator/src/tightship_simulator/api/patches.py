"""The three kinds of patch that the controllers and kubectl send, applied to plain JSON. Pure.

Strategic merge knows the lists that have merge keys in ``k8s.io/api`` for the kinds that are served; every other list
is replaced. A JSON patch that does not apply is 422, as from the API server: the hpa-scaler goes by it.
"""

from __future__ import annotations

from typing import Any

from tightship_simulator.api.errors import BadRequest, Invalid, UnsupportedMediaType
from tightship_simulator.api.objects import copy_of

Json = dict[str, Any]

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"

_REJECTED = "the server rejected our request due to an error in our request"

_MERGE_KEYS = {
    "containers": "name",
    "initContainers": "name",
    "ephemeralContainers": "name",
    "env": "name",
    "ports": "containerPort",
    "volumes": "name",
    "volumeMounts": "mountPath",
    "volumeDevices": "devicePath",
    "imagePullSecrets": "name",
    "secrets": "name",
    "hostAliases": "ip",
    "topologySpreadConstraints": "topologyKey",
    "conditions": "type",
    "addresses": "type",
    "ownerReferences": "uid",
    "schedulingGates": "name",
}
"""The merge key of each list that has one, by the list's name. ``taints`` and ``tolerations`` are replaced whole."""

_PRIMITIVE_SETS = ("finalizers",)


def patched(thing: Json, patch: Any, content_type: str) -> Json:
    """Return *thing* after *patch*; neither is changed.

    Raises :class:`~tightship_simulator.api.errors.BadRequest` for what is no patch, ``Invalid`` for a JSON patch that
    does not apply, and ``UnsupportedMediaType``.
    """
    if content_type == JSON_PATCH:
        return _json_patched(thing, patch)
    if content_type not in {MERGE_PATCH, STRATEGIC_PATCH}:
        allowed = f"accepted media types include: {JSON_PATCH}, {MERGE_PATCH}, {STRATEGIC_PATCH}"
        detail = f"the body of the request was in an unknown format - {allowed}"
        raise UnsupportedMediaType(detail)
    if not isinstance(patch, dict):
        raise BadRequest("a merge patch must be an object")
    merged = _merged(thing, patch) if content_type == MERGE_PATCH else _strategically(thing, patch)
    assert isinstance(merged, dict)
    return merged


def _merged(old: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return copy_of(patch)
    new = dict(old) if isinstance(old, dict) else {}
    for key, value in patch.items():
        if value is None:
            new.pop(key, None)
        else:
            new[key] = _merged(new.get(key), value)
    return new


def _strategically(old: Any, patch: Json) -> Any:
    """Return *old*, if it is an object, after a strategic merge patch of it; ``$patch: delete`` gives ``None``."""
    directive = patch.get("$patch")
    if directive == "delete":
        return None
    if directive == "replace":
        return {key: copy_of(value) for key, value in patch.items() if key != "$patch"}
    new = dict(old) if isinstance(old, dict) else {}
    if "$retainKeys" in patch:
        new = {key: value for key, value in new.items() if key in patch["$retainKeys"]}
    for key, value in patch.items():
        if key.startswith("$deleteFromPrimitiveList/"):
            name = key.partition("/")[2]
            new[name] = [each for each in new.get(name) or [] if each not in value]
        elif not key.startswith("$"):
            after = _member(key, new.get(key), value)
            if after is None:
                new.pop(key, None)
            else:
                new[key] = after
    return new


def _member(key: str, old: Any, value: Any) -> Any:
    if isinstance(value, dict):
        return _strategically(old, value)
    if isinstance(value, list):
        if key in _PRIMITIVE_SETS:
            return [*(old or []), *(each for each in value if each not in (old or []))]
        merge_key = _MERGE_KEYS.get(key, "")
        if merge_key and all(isinstance(each, dict) for each in value):
            # Those of a Service have another key than those of a container.
            of_service = key == "ports" and not any("containerPort" in each for each in value)
            return _list_merged(old or [], value, "port" if of_service else merge_key)
    return copy_of(value)


def _list_merged(old: list[Json], patch: list[Json], key: str) -> list[Json]:
    if any(each.get("$patch") == "replace" and key not in each for each in patch):
        return [copy_of(each) for each in patch if "$patch" not in each]
    new = {each.get(key): each for each in old}
    for each in patch:
        after = _strategically(new.get(each.get(key)), each)
        if after is None:
            new.pop(each.get(key), None)
        else:
            new[each.get(key)] = after
    return list(new.values())


def _json_patched(thing: Json, operations: Any) -> Json:
    """RFC 6902."""
    if not isinstance(operations, list) or not all(isinstance(each, dict) for each in operations):
        raise BadRequest("a JSON patch must be a list of operations")
    document: Any = copy_of(thing)
    for operation in operations:
        try:
            document = _operated(document, operation)
        except (KeyError, IndexError, ValueError, TypeError, AttributeError) as error:
            raise Invalid(_REJECTED) from error
    if not isinstance(document, dict):
        raise Invalid(_REJECTED)
    return document


def _operated(document: Any, operation: Json) -> Any:
    path = _pointer(operation["path"])
    match operation["op"]:
        case "test":
            if not _same(_found(document, path), operation.get("value")):
                raise ValueError("a test does not hold")
        case "add":
            document = _put(document, path, copy_of(operation["value"]), insert=True)
        case "replace":
            # As with the library of the API server, what is absent of an object is added.
            document = _put(document, path, copy_of(operation["value"]), insert=False)
        case "remove":
            _taken(document, path)
        case "move":
            document = _put(document, path, _taken(document, _pointer(operation["from"])), insert=True)
        case "copy":
            value = copy_of(_found(document, _pointer(operation["from"])))
            document = _put(document, path, value, insert=True)
        case other:
            raise ValueError(f"unknown operation {other!r}")
    return document


def _same(one: Any, other: Any) -> bool:
    """Whether two JSON values are equal; 1 is not true."""
    return bool(one == other) and isinstance(one, bool) == isinstance(other, bool)


def _pointer(text: str) -> list[str]:
    if text and not text.startswith("/"):
        raise ValueError(f"{text!r} is no JSON pointer")
    return [part.replace("~1", "/").replace("~0", "~") for part in text.split("/")[1:]]


def _found(document: Any, path: list[str]) -> Any:
    for part in path:
        document = document[_index(document, part)] if isinstance(document, list) else document[part]
    return document


def _index(items: list[Any], part: str) -> int:
    if not part.isdigit() or int(part) >= len(items):
        raise IndexError(part)
    return int(part)


def _put(document: Any, path: list[str], value: Any, *, insert: bool) -> Any:
    if not path:
        return value
    parent, last = _found(document, path[:-1]), path[-1]
    if isinstance(parent, dict):
        parent[last] = value
    elif not isinstance(parent, list):
        raise TypeError("neither an object nor a list")
    elif not insert:
        parent[_index(parent, last)] = value
    else:
        parent.insert(len(parent) if last == "-" else _index([*parent, None], last), value)
    return document


def _taken(document: Any, path: list[str]) -> Any:
    parent, last = _found(document, path[:-1]), path[-1]
    return parent.pop(_index(parent, last) if isinstance(parent, list) else last)
