"""What happens to requests between a controller and the API server, by seed: an aiohttp middleware in front of it.

A fault's function is given the request :class:`Way`, and answers in the server's place, or lets it through. Steps that
forbid something (rights, an admission webhook) put a rule into the world, which holds here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler

from tightship_simulator.api.answers import encode
from tightship_simulator.api.errors import (
    Conflict,
    Expired,
    Forbidden,
    Refused,
    TooManyRequests,
    UnknownPath,
    WithoutReason,
)
from tightship_simulator.api.requests import asked, target_of
from tightship_simulator.api.store import AUTHOR
from tightship_testkit.disasters.drawing import one_of, share
from tightship_testkit.disasters.promises.base import Asked, ours
from tightship_testkit.disasters.registry import FAULTS, PERSON, WATCH, WRITES, Kind, fault
from tightship_testkit.disasters.scenario import Fault, Scenario
from tightship_testkit.disasters.world import SENT, writing_as

if TYPE_CHECKING:
    from tightship_testkit.disasters.observer import Observer
    from tightship_testkit.disasters.world import World


class Unavailable(Refused):
    """503: the server has no time, or no etcd."""

    code = 503
    reason = "ServiceUnavailable"


class Way:
    """A request on its way: :meth:`through` has the server answer it, :meth:`cut` breaks the connection."""

    def __init__(self, door: Door, request: web.Request, about: Asked, handler: Handler) -> None:
        self.about = about
        self.until = 0.0
        self._door = door
        self._request = request
        self._handler = handler
        self._transport = request.transport

    async def through(self) -> web.StreamResponse:
        """Return the server's answer. What it does is done to its end, also where the client goes meanwhile."""
        if self.about.verb == "watch":
            return await self._handler(self._request)
        return await asyncio.shield(asyncio.ensure_future(self._done()))

    async def _done(self) -> web.StreamResponse:
        answer = await self._handler(self._request)
        self._door.answered(self.about, answer.status)
        return answer

    def overtaken(self) -> None:
        """Have somebody else change a taint of theirs on the node of this request now."""
        self._door.taint(self.about.name)

    def cut(self) -> web.StreamResponse:
        """Break the connection off."""
        if self._transport is not None:
            self._transport.reset()  # type: ignore[attr-defined]  # the virtual network's
        return web.Response(status=502)

    def lag(self, seconds: Callable[[], float]) -> None:
        """Have what the server sends on this connection come later by so much."""
        if self._transport is not None:
            self._transport.lag = seconds  # type: ignore[attr-defined]

    @property
    def deserted(self) -> bool:
        """Whether the client waits no longer."""
        return self._transport is None or self._transport.is_closing()

    async def broken(self, answer: web.StreamResponse) -> web.StreamResponse:
        """Send half of *answer*, and break the connection off."""
        body = answer.body if isinstance(answer, web.Response) else b""
        assert isinstance(body, bytes)
        sent = web.StreamResponse(status=answer.status, headers={"Content-Type": "application/json"})
        sent.content_length = len(body)
        await sent.prepare(self._request)
        await sent.write(body[: len(body) // 2])
        # What was written is to arrive first.
        asyncio.get_running_loop().call_later(0.5, self.cut)
        await asyncio.sleep(1.0)
        return sent

    @property
    def now(self) -> float:
        """Seconds since the scenario began."""
        return self._door.now

    async def events(self, *events: dict[str, Any]) -> web.StreamResponse:
        """Answer a watch with these events, and end it."""
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(self._request)
        await response.write(b"".join(encode(each) + b"\n" for each in events))
        return response


class Door:
    """The way in to the API server: its :meth:`middleware` lets faults happen, and tells the observer of answers."""

    def __init__(self, scenario: Scenario) -> None:
        self.met = 0
        self._faults: list[tuple[Fault, Kind, Random]] = [
            (each, FAULTS[each.kind], Random(each.dice))  # noqa: S311 - a simulation
            for each in scenario.faults
        ]
        self._world: World | None = None
        self._observer: Observer | None = None
        self._end = scenario.story

    def opened(self, world: World, observer: Observer) -> None:
        """Let faults begin."""
        self._world, self._observer = world, observer

    @property
    def now(self) -> float:
        """Seconds since the scenario began."""
        return self._world.now if self._world is not None else 0.0

    def answered(self, about: Asked, code: int) -> None:
        """Tell the observer of a request that reached the server."""
        if self._observer is not None:
            self._observer.asked(_with(about, code=code, done=self.now))

    def taint(self, node: str) -> None:
        """Put a taint of a person's on *node*, or another value of it."""
        if self._world is None or self._world.store.find("Node", node) is None:
            return

        def change(thing: dict[str, Any]) -> None:
            others = [each for each in thing["spec"].get("taints") or [] if each["key"] != _OVERTAKES]
            value = {"key": _OVERTAKES, "value": str(self.met), "effect": "PreferNoSchedule"}
            thing["spec"]["taints"] = [*others, value]

        with writing_as(PERSON):
            self._world.store.modify("Node", node, change=change)

    def _world_blind(self, about: Asked, until: float) -> None:
        """Note how long this process may know less than there is: a watch until the fault is over."""
        if self._world is not None:
            self._world.blinded(about.by, until if about.verb == "watch" else self.now)

    @property
    def middleware(self) -> Callable[[web.Request, Handler], Any]:
        """What stands in front of the API server."""

        @web.middleware
        async def meddle(request: web.Request, handler: Handler) -> web.StreamResponse:
            about = await self._about(request)
            if about is None or not ours(about.by):
                if about is not None and self._world is not None and about.by in self._world.others:
                    AUTHOR.set(about.by)
                return await handler(request)
            AUTHOR.set(about.by)
            SENT.set(about.at)
            way = Way(self, request, about, handler)
            for rule in self._world.rules if self._world is not None else ():
                refused = rule(about)
                if refused is not None:
                    self.answered(about, refused.code)
                    return refusal(refused)
            for each, kind, dice in self._faults:
                if each.at <= self.now < min(each.until, self._end) and _meets(each, kind, about):
                    if dice.random() >= each.share:
                        continue
                    self.met += 1
                    way.until = min(each.until, self._end)
                    way.about = _with(about, met=True)
                    if kind.blinds:
                        self._world_blind(about, way.until)
                    answer: web.StreamResponse = await kind.act(way, **each.args)
                    return answer
            return await way.through()

        return meddle

    async def _about(self, request: web.Request) -> Asked | None:
        peer = request.transport.get_extra_info("peername") if request.transport is not None else None
        try:
            target = target_of(request.path.rstrip("/"))
        except UnknownPath:
            return None
        reported = asked(request.method, target, request.query, "", 0)
        body = await request.read() if request.can_read_body else b""
        return Asked(
            at=self.now,
            by=str(peer[0]) if peer else "",
            verb=reported.verb,
            resource=reported.resource,
            namespace=reported.namespace,
            name=reported.name,
            subresource=reported.subresource,
            code=0,
            dry_run=reported.dry_run,
            body=body,
        )


def _with(about: Asked, **changes: Any) -> Asked:
    return msgspec.structs.replace(about, **changes)


def _meets(each: Fault, kind: Kind, about: Asked) -> bool:
    if about.verb not in kind.verbs or (each.programs and ours(about.by) not in each.programs):
        return False
    full = f"{about.resource}/{about.subresource}" if about.subresource else about.resource
    return not each.resources or full in each.resources


def refusal(error: Refused) -> web.Response:
    """Return *error* as the API server answers it."""
    headers = {"Retry-After": str(error.retry_after)} if error.retry_after else {}
    return web.Response(body=encode(error.status), status=error.code, content_type="application/json", headers=headers)


# The kinds.


@fault()
async def cut_before(way: Way) -> web.StreamResponse:
    """The connection breaks before the server has the request."""
    return way.cut()


@fault(verbs=WRITES, weight=2)
async def cut_after(way: Way) -> web.StreamResponse:
    """The server carries the request out, and the connection breaks before the answer."""
    await way.through()
    return way.cut()


@fault()
async def cut_in_answer(way: Way) -> web.StreamResponse:
    """The connection breaks in the middle of the answer."""
    return await way.broken(await way.through())


@fault(seconds=one_of(0.3, 1.0, 3.0, 6.0, 12.0), after=share(0.5), weight=3)
async def delayed(way: Way, seconds: float, after: bool = False) -> web.StreamResponse:
    """The request, or its answer, takes its time: also longer than the client waits."""
    if after:
        answer = await way.through()
        await asyncio.sleep(seconds)
        return answer
    # A client that goes does not call its request back.
    return await asyncio.shield(asyncio.ensure_future(_later(way, seconds)))


@fault(seconds=one_of(10.0, 20.0, 28.0), verbs=frozenset({"update", "patch"}), weight=0, blinds=False)
async def slow_admission(way: Way, seconds: float) -> web.StreamResponse:
    """A webhook takes its time over writes; the server drops the request of a client that no longer waits."""
    await asyncio.sleep(seconds)
    return way.cut() if way.deserted else await way.through()


async def _later(way: Way, seconds: float) -> web.StreamResponse:
    await asyncio.sleep(seconds)
    return await way.through()


_CODES: dict[int, Callable[[int], Refused]] = {
    409: lambda _: Conflict("the object has been modified; please apply your changes to the latest version"),
    429: lambda wait: TooManyRequests("too many requests, please try again later", retry_after=wait),
    500: lambda _: WithoutReason("etcdserver: request timed out"),
    503: lambda wait: Unavailable("the server is currently unable to handle the request", retry_after=wait),
}


@fault(code=one_of(429, 500, 503), wait=one_of(0, 0, 1, 5), weight=3)
async def failing(_: Way, code: int, wait: int = 0) -> web.StreamResponse:
    """The server answers with an error, and does nothing."""
    return refusal(_CODES[code](wait))


@fault(verbs=frozenset({"update", "patch"}))
async def conflicting(_: Way) -> web.StreamResponse:
    """Another write came first, or so the server says."""
    return refusal(_CODES[409](0))


_OVERTAKES = "example.com/overtakes"


@fault(verbs=frozenset({"update", "patch"}), weight=0)
async def overtaken(way: Way) -> web.StreamResponse:
    """Somebody taints a node after it was read, and just before a write of it."""
    way.overtaken()
    return await way.through()


@fault(verbs=frozenset({"list"}))
async def list_forbidden(way: Way) -> web.StreamResponse:
    """A list is refused."""
    return refusal(Forbidden(f"{way.about.resource} is forbidden: User cannot list resource"))


@fault(seconds=one_of(0.0, 1.0, 5.0, 20.0), verbs=WATCH, weight=2)
async def watch_cut(way: Way, seconds: float) -> web.StreamResponse:
    """A watch breaks off after so many seconds."""
    asyncio.get_running_loop().call_later(seconds, way.cut)
    return await way.through()


@fault(seconds=one_of(1.0, 3.0, 8.0, 20.0), verbs=WATCH, weight=2)
async def watch_late(way: Way, seconds: float) -> web.StreamResponse:
    """The events of a watch come late, in their order."""
    until = way.until
    way.lag(lambda: seconds if way.now < until else 0.0)
    return await way.through()


@fault(verbs=WATCH)
async def watch_silent(way: Way) -> web.StreamResponse:
    """A watch says nothing any more, until the fault ends and the connection with it."""
    until = way.until
    way.lag(lambda: max(0.0, until - way.now) + 60)
    asyncio.get_running_loop().call_later(max(0.0, until - way.now), way.cut)
    return await way.through()


@fault(verbs=WATCH)
async def watch_expired(way: Way) -> web.StreamResponse:
    """A watch begins at a version that the server has forgotten: all must be listed again."""
    return await way.events({"type": "ERROR", "object": Expired("too old resource version").status})


__all__ = ["FAULTS", "Door", "Unavailable", "Way", "refusal"]
