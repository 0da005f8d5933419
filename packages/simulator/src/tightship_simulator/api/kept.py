"""Objects that are kept, with one version for all and a bounded memory of what happened to each kind.

What is returned is shared: never change it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterable
from contextvars import ContextVar
from typing import Any

from tightship_simulator.api.errors import TooLarge, not_found
from tightship_simulator.api.kinds import BY_NAME, KINDS, Kind
from tightship_simulator.api.versioned import Change, Happening, VersionedObjects

Json = dict[str, Any]
Items = list[Json]
Changes = list[Change]
Listener = Callable[[Change, str], None]
"""Is told of a change right after it was made, and of its author."""
AUTHOR: ContextVar[str] = ContextVar("author", default="")
"""Who writes: the name that the API server knows a client by; empty for what lives in the cluster's own process."""
HISTORY = 10_000
"""Changes of each kind that are remembered for watches and pages."""

_EVERY = tuple(kind.name for kind in KINDS)
_BUMP = 1_000
"""By how much the version jumps when an earlier state is restored."""


class Kept:
    """The objects, and who waits for them to change. *history* changes of each kind are remembered."""

    def __init__(self, history: int) -> None:
        self.version = 1
        self.listeners: list[Listener] = []
        self._by_kind = {kind.name: VersionedObjects(history) for kind in KINDS}
        self._waiting: dict[str, dict[asyncio.Future[None], None]] = {name: {} for name in self._by_kind}

    # Reading.

    def find(self, kind: str, name: str, namespace: str = "") -> Json | None:
        """Return an object, ``None`` where there is none."""
        return self._by_kind[kind].objects.get((namespace, name))

    def get(self, kind: str, name: str, namespace: str = "") -> Json:
        """Return an object. Raises :class:`~tightship_simulator.api.errors.NotFound`."""
        found = self.find(kind, name, namespace)
        if found is None:
            raise not_found(BY_NAME[kind], name)
        return found

    def list(self, kind: str, namespace: str = "", *, at: int | None = None) -> Items:
        """Return the objects of a kind, of all namespaces or of one, by namespace and name.

        With *at* those there were at that version. Raises :class:`~tightship_simulator.api.errors.Expired` where that
        is forgotten.
        """
        versioned = self._by_kind[kind]
        if at is None or at >= versioned.version:
            return versioned.sorted(namespace)
        objects = versioned.at(at)
        return [objects[key] for key in sorted(objects) if not namespace or key[0] == namespace]

    def changed(self, kinds: Iterable[str]) -> int:
        """Return the version of the last change of any of *kinds*, 0 where there was none."""
        return max(self._by_kind[kind].version for kind in kinds)

    # Watching.

    def changes(self, kind: str, since: int) -> Changes:
        """Return what happened to a kind after version *since*.

        Raises :class:`~tightship_simulator.api.errors.Expired` where that is forgotten.
        """
        return self._by_kind[kind].since(since)

    async def watch(self, kind: str, since: int | None = None) -> AsyncIterator[Change]:
        """Yield what happens to a kind after version *since* (from now on unless given), for ever.

        Raises :class:`~tightship_simulator.api.errors.Expired` where the reader is so late that changes are forgotten.
        """
        at = self.version if since is None else since
        while True:
            # What happens while the reader is busy has a version above this one.
            known, found = max(at, self.version), self.changes(kind, at)
            for change in found:
                yield change
            at = known
            await self.wait(at, (kind,))

    async def wait(self, since: int, kinds: Collection[str] = ()) -> int:
        """Wait until the version is above *since*, that of the last change of *kinds* if they are named, and return it.

        Who names kinds sleeps through the changes of all others.
        """
        names = tuple(kinds) or _EVERY
        while (version := self.changed(names)) <= since:
            touched = asyncio.get_running_loop().create_future()
            for name in names:
                self._waiting[name][touched] = None
            try:
                await touched
            finally:
                for name in names:
                    self._waiting[name].pop(touched, None)
        return version

    def reached(self, version: int) -> None:
        """Raise :class:`~tightship_simulator.api.errors.TooLarge` for a version that lies in the future."""
        if version > self.version:
            raise TooLarge(f"Too large resource version: {version}, current: {self.version}", retry_after=1)

    def restore(self, version: int) -> None:
        """Go back to what there was at *version*, as etcd does from a backup.

        As with ``etcdutl snapshot restore --bump-revision --mark-compacted``: objects have the versions that they had
        then, new ones have greater ones than were ever given, and whoever watches or pages must list anew. Listeners
        are told what differs, by the author ``etcd``. Raises :class:`~tightship_simulator.api.errors.Expired` where
        that is forgotten.
        """
        found = {name: dict(versioned.at(version)) for name, versioned in self._by_kind.items()}
        self.version += _BUMP
        reported: Changes = []
        for name, objects in found.items():
            versioned = self._by_kind[name]
            before = versioned.objects
            for key in sorted(before.keys() | objects.keys()):
                old, new = before.get(key), objects.get(key)
                if new is None and old is not None:
                    reported.append(Change("DELETED", self.version, old, old))
                elif new is not None and new is not old:
                    reported.append(Change("MODIFIED" if old is not None else "ADDED", self.version, new, old))
            versioned.reset(objects, self.version)
        for change in reported:
            self._tell(change, "etcd")
        for waiting in self._waiting.values():
            _wake(waiting)

    def _commit(self, kind: Kind, type_: Happening, new: Json, old: Json | None) -> None:
        self.version += 1
        new["metadata"]["resourceVersion"] = str(self.version)
        change = Change(type_, self.version, new, old)
        self._by_kind[kind.name].put(change)
        _wake(self._waiting[kind.name])
        self._tell(change, AUTHOR.get())

    def _tell(self, change: Change, author: str) -> None:
        for listener in self.listeners:
            listener(change, author)


def _wake(waiting: Iterable[asyncio.Future[None]]) -> None:
    for touched in waiting:
        if not touched.done():
            touched.set_result(None)
