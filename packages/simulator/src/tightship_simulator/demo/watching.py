"""Looks at the cluster as any client does: lists and watches over HTTP, queries to Prometheus, ``/status`` pages."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable, Mapping

import aiohttp
import msgspec

from tightship.kube.connection import Connection
from tightship.kube.connector import connector
from tightship.kube.reflector import Applied, Removed, WatchDriver, WatchEvent, watch_once
from tightship.kube.resources import BY_KIND, Resource
from tightship.objects.api_errors import KubeError
from tightship_simulator.demo.observations import TAGS, Gone, Observation, TrafficSeen, seen, status_line

PAUSE = 0.5
"""Seconds between two looks at what can't be watched, and before a watch that broke is begun anew."""

WATCHED = (
    *(BY_KIND[kind] for kind in ("Node", "PodDisruptionBudget", "HorizontalPodAutoscaler")),
    msgspec.structs.replace(BY_KIND["Pod"], field_selector=""),
    Resource("Event", "events.k8s.io", "v1", "events"),
)

Take = Callable[[Observation], None]


async def follow(connection: Connection, resource: Resource, take: Take) -> None:
    """Tell *take* of every object of a kind and whatever becomes of it, until cancelled."""
    known: set[tuple[str, str]] = set()
    while True:
        with contextlib.suppress(KubeError):
            await _follow_once(connection, resource, take, known)
        await asyncio.sleep(PAUSE)


async def _follow_once(connection: Connection, resource: Resource, take: Take, known: set[tuple[str, str]]) -> None:
    listing = json.loads(await connection.request("GET", resource.path))
    before = set(known)
    for item in listing["items"]:
        before.discard(_take(item, resource.kind, take, known))
    for key in before:
        _forget(key, resource.kind, take, known)
    driver = WatchDriver(resource, listing["metadata"]["resourceVersion"], server=connection.server)

    def heard(event: WatchEvent) -> None:
        match event:
            case Applied(raw):
                _take(json.loads(bytes(raw)), resource.kind, take, known)
            case Removed(namespace, name):
                _forget((namespace, name), resource.kind, take, known)
            case _:
                pass

    await watch_once(connection, driver, 120.0, heard, lambda: None)


def _take(item: dict[str, object], kind: str, take: Take, known: set[tuple[str, str]]) -> tuple[str, str]:
    found = seen({**item, "kind": kind})
    meta = item["metadata"]
    assert isinstance(meta, dict)
    key = str(meta.get("namespace") or ""), str(meta["name"])
    known.add(key)
    if found is not None:
        take(found)
    return key


def _forget(key: tuple[str, str], kind: str, take: Take, known: set[tuple[str, str]]) -> None:
    known.discard(key)
    if kind in TAGS:
        take(Gone(TAGS[kind], "/".join(filter(None, key))))


async def ask_prometheus(session: aiohttp.ClientSession, url: str, query: str) -> float | None:
    """Return the one number that *query* evaluates to, ``None`` where there is no answer."""
    try:
        async with session.get(f"{url}/api/v1/query", params={"query": query}) as answer:
            result = (await answer.json())["data"]["result"]
            return float(result[0]["value"][1]) if result else None
    except (aiohttp.ClientError, TimeoutError, OSError, KeyError, ValueError):
        return None


def session() -> aiohttp.ClientSession:
    """Return a client for Prometheus and the controllers' pages."""
    return aiohttp.ClientSession(connector=connector(), timeout=aiohttp.ClientTimeout(total=2))


async def watch_traffic(url: str, queries: Mapping[str, str], take: Take) -> None:
    """Tell the traffic of each HPA (by ``namespace/name``), until cancelled."""
    async with session() as client:
        while True:
            for key, query in queries.items():
                take(TrafficSeen(key, await ask_prometheus(client, url, query)))
            await asyncio.sleep(PAUSE)


async def watch_status(urls: Mapping[str, str], take: Take) -> None:
    """Tell what each controller's ``/status`` says, by the URL it serves it at, whenever that changes."""
    last: dict[str, Observation] = {}
    async with session() as client:
        while True:
            for name, url in urls.items():
                with contextlib.suppress(aiohttp.ClientError, TimeoutError, OSError):
                    async with client.get(f"{url}/status") as answer:
                        line = status_line(name, await answer.read())
                    if line is not None and last.get(name) != line:
                        last[name] = line
                        take(line)
            await asyncio.sleep(2 * PAUSE)


__all__ = ["WATCHED", "ask_prometheus", "follow", "session", "watch_status", "watch_traffic"]
