"""One watch over HTTP: lines of JSON until its time is over, the client goes, or it has fallen too far behind."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

from aiohttp import web
from msgspec import Struct

from tightship_simulator.api.answers import Form, encode
from tightship_simulator.api.errors import BadRequest, Expired, WithoutReason
from tightship_simulator.api.requests import Selection, flag, number
from tightship_simulator.api.store import Store
from tightship_simulator.api.versioned import Change

Json = dict[str, Any]

BOOKMARKS = 60.0
"""Seconds between two bookmarks."""

_LONGEST = 1800
"""Seconds a watch lasts that asks for no time of its own."""


class Watch(Struct, frozen=True):
    """What a watch asks for. *since* is ``None`` for all there is now and what happens from then on."""

    selected: Selection
    form: Form
    since: int | None
    seconds: int
    bookmarks: bool
    initial: bool
    """Whether the end of what there was at the beginning is to be marked by a bookmark (``sendInitialEvents``)."""


def watch_of(selected: Selection, form: Form, query: Mapping[str, str]) -> Watch:
    """Return what the parameters ask for. Raises :class:`~tightship_simulator.api.errors.BadRequest`."""
    initial = flag(query, "sendInitialEvents")
    bookmarks = flag(query, "allowWatchBookmarks")
    if initial and not bookmarks:
        raise BadRequest("sendInitialEvents requires allowWatchBookmarks")
    version = query.get("resourceVersion", "") or "0"
    if not version.isdigit():
        raise WithoutReason(f'resourceVersion: Invalid value: "{version}": invalid syntax')
    since = int(version) or None
    seconds = number(query, "timeoutSeconds") or _LONGEST
    return Watch(selected, form, None if initial else since, seconds, bookmarks, initial)


async def stream(store: Store, watch: Watch, request: web.Request, every: float) -> web.StreamResponse:
    """Answer a request with what happens, and with a bookmark every so many seconds if they are wanted."""
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    # A client waits for the head before it says that it watches.
    await response.prepare(request)
    kind = watch.form.kind.name
    loop = asyncio.get_running_loop()
    end = loop.time() + watch.seconds
    mark = loop.time() + every if watch.bookmarks else end
    at = watch.since
    if at is None:
        at = store.version
        found = [Change("ADDED", at, each) for each in store.list(kind)]
        await _write(response, _described(watch, found))
        if watch.initial:
            await _write(response, [watch.form.bookmark(at, initial_end=True)])
    while True:
        try:
            changes = store.changes(kind, at)
        except Expired as error:
            await _write(response, [{"type": "ERROR", "object": error.status}])
            return response
        at = max(at, store.version)
        await _write(response, _described(watch, changes))
        now = loop.time()
        if watch.bookmarks and (now >= mark or now >= end):
            mark = now + every
            await _write(response, [watch.form.bookmark(at)])
        if now >= end:
            return response
        try:
            async with asyncio.timeout_at(min(mark, end) if watch.bookmarks else end):
                await store.wait(at, (kind,))
        except TimeoutError:
            pass


def _described(watch: Watch, changes: Iterable[Change]) -> list[Json]:
    return [reported for each in changes if (reported := watch.form.event(each, watch.selected)) is not None]


async def _write(response: web.StreamResponse, events: list[Json]) -> None:
    if events:
        await response.write(b"".join(encode(each) + b"\n" for each in events))
