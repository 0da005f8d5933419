"""All objects of one kind, and what lately happened to them: enough to watch from, and to read an earlier state."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from typing import Any, Literal

from msgspec import Struct

from tightship_simulator.api.errors import Expired

Json = dict[str, Any]
Key = tuple[str, str]
"""Namespace, empty for what has none, and name."""

Happening = Literal["ADDED", "MODIFIED", "DELETED"]


class Change(Struct, frozen=True):
    """What happened to one object. *object* is what it is from *version* on, of a deleted one the last that it was."""

    type: Happening
    version: int
    object: Json
    previous: Json | None = None


class VersionedObjects:
    """The objects of a kind by key, and the *version* of the last change. The last *size* changes are remembered."""

    def __init__(self, size: int) -> None:
        self.objects: dict[Key, Json] = {}
        self.version = 0
        self._keys: list[Key] = []
        self._size = size
        self._history: deque[Change] = deque()
        self._floor = 0  # the version of the last change that is forgotten

    def sorted(self, namespace: str = "") -> list[Json]:
        """Return the objects, of all namespaces or of one, by namespace and name."""
        objects, keys = self.objects, self._keys
        if namespace:
            keys = keys[bisect_left(keys, (namespace, "")) : bisect_left(keys, (f"{namespace}\0", ""))]
        return [objects[key] for key in keys]

    def at(self, version: int) -> dict[Key, Json]:
        """Return the objects there were at *version*. Raises :class:`~tightship_simulator.api.errors.Expired`."""
        if version >= self.version:
            return self.objects
        objects = dict(self.objects)
        for change in reversed(self.since(version)):
            if change.previous is None:
                objects.pop(key_of(change.object), None)
            else:
                objects[key_of(change.object)] = change.previous
        return objects

    def since(self, version: int) -> list[Change]:
        """Return what happened after *version*. Raises :class:`~tightship_simulator.api.errors.Expired`."""
        if version < self._floor:
            raise Expired(f"too old resource version: {version} ({self._floor})")
        found: list[Change] = []
        for change in reversed(self._history):
            if change.version <= version:
                break
            found.append(change)
        return found[::-1]

    def put(self, change: Change) -> None:
        """Carry out a change, and remember it."""
        key = key_of(change.object)
        if change.type == "DELETED":
            del self.objects[key]
            del self._keys[bisect_left(self._keys, key)]
        else:
            if key not in self.objects:
                insort(self._keys, key)
            self.objects[key] = change.object
        self.version = change.version
        self._history.append(change)
        while len(self._history) > self._size:
            self._floor = self._history.popleft().version

    def reset(self, objects: dict[Key, Json], version: int) -> None:
        """Hold just *objects* from *version* on; what happened before is forgotten."""
        self.objects, self._keys = objects, sorted(objects)
        self.version = self._floor = version
        self._history.clear()


def key_of(thing: Json) -> Key:
    """Return the key of an object."""
    meta = thing["metadata"]
    return meta.get("namespace", ""), meta["name"]
