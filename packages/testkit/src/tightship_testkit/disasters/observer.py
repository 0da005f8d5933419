"""Shows every change, every request and every second to all promises, and writes the transcript of the run."""

from __future__ import annotations

import asyncio
import hashlib
import logging

import msgspec

from tightship_simulator.api.store import Change
from tightship_simulator.virtual.process import PROCESS
from tightship_testkit.disasters import promises
from tightship_testkit.disasters.promises.base import Asked, Eviction, Promise, Violation, ours
from tightship_testkit.disasters.promises.reading import leaving, owned
from tightship_testkit.disasters.promises.running import NoCrash
from tightship_testkit.disasters.registry import PROMISES
from tightship_testkit.disasters.world import World

_encode = msgspec.json.Encoder(order="deterministic").encode
SECOND = 1.0

assert promises


class Observer:
    """Holds a world against the promises. :attr:`digest` is that of all changes and requests, in their order."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.promises: list[Promise] = [kind(world) for kind in PROMISES.values()]
        self._hash = hashlib.sha256()
        self._on_change = [each for each in self.promises if type(each).changed is not Promise.changed]
        self._on_eviction = [each for each in self.promises if type(each).evicted is not Promise.evicted]
        self._on_request = [each for each in self.promises if type(each).asked is not Promise.asked]
        self._on_second = [each for each in self.promises if type(each).passed is not Promise.passed]
        world.store.listeners.append(self.changed)

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()

    @property
    def violations(self) -> list[Violation]:
        """What was broken, in its order."""
        found = [violation for each in self.promises for violation in each.violations]
        return sorted(found, key=lambda each: (each.at, each.promise, each.subject))

    def changed(self, change: Change, author: str) -> None:
        """Take note of a change of the store."""
        self._hash.update(f"{self.world.now:.6f} {change.type} {author} ".encode() + _encode(change.object) + b"\n")
        self.world.changed(change)
        for each in self._on_change:
            each.changed(change, author)
        if ours(author) and (eviction := self._eviction(change, author)) is not None:
            for each in self._on_eviction:
                each.evicted(eviction)

    def _eviction(self, change: Change, author: str) -> Eviction | None:
        before = change.previous
        if change.object["kind"] != "Pod" or before is None or leaving(before):
            return None
        if change.type != "DELETED" and not leaving(change.object):
            return None
        node = self.world.store.find("Node", before["spec"].get("nodeName", ""))
        op = str(owned(node).get("op") or "") if node is not None else ""
        return Eviction(before, node, author, self.world.sent, op)

    def asked(self, request: Asked) -> None:
        """Take note of a request that was answered."""
        detail = f"{request.at:.6f} {request.by} {request.verb} {request.resource} {request.name} {request.code}\n"
        self._hash.update(detail.encode())
        for each in self._on_request:
            each.asked(request)

    async def watch(self) -> None:
        """Look at the world once a second, for ever."""
        while True:
            await asyncio.sleep(SECOND)
            for each in self._on_second:
                each.passed()

    def ended(self) -> None:
        """The scenario is over."""
        for each in self.promises:
            each.ended()

    def stopped(self) -> None:
        """All replicas have ended."""
        for each in self.promises:
            each.stopped()


class Tracebacks(logging.Handler):
    """Gives log records with a traceback, and those of the event loop, to the promise that there are none."""

    def __init__(self, observer: Observer) -> None:
        super().__init__(logging.ERROR)
        self._promise = next(each for each in observer.promises if isinstance(each, NoCrash))

    def emit(self, record: logging.LogRecord) -> None:
        if record.name.startswith("aiohttp"):
            # The embedded server's: its clients go as they like.
            return
        if record.exc_info and record.exc_info[0] is not None:
            process = PROCESS.get()
            error = f"{record.exc_info[0].__name__}: {record.exc_info[1]}"
            self._promise.logged(process.name if process is not None else "", f"{record.getMessage()} ({error})")


__all__ = ["Observer", "Tracebacks"]
