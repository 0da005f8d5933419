"""The audit log of an embedded cluster, and plans of what happens at which request: both for replicas on virtual time.

Plans are those of :class:`~tightship_testkit.fault_proxy.FaultProxy`, of which hooks and :class:`Reset` are carried
out. No proxy stands in between: each request comes from the replica's own connection, by which it is known.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable
from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from tightship.kube.host import wall
from tightship_simulator.api.errors import UnknownPath
from tightship_simulator.api.requests import asked, target_of
from tightship_simulator.api.store import Store
from tightship_testkit.audit import AuditEvent, ObjectRef, ResponseStatus, User
from tightship_testkit.client import Json, break_off
from tightship_testkit.fault_proxy import WRITES
from tightship_testkit.faults import Call, Plan, Reset
from tightship_testkit.marks import MAY_WRITE

T = TypeVar("T")

_OF_THE_SERVER = frozenset({"metadata/resourceVersion", "metadata/generation", "metadata/managedFields"})
_BY_KEY = frozenset({"labels", "annotations"})


class EmbeddedAudit:
    """Notes the requests of *users*: the accounts of replicas by the names of their processes.

    *calls* are their requests as they came in, *events* as they were answered: a watch when it begins. *problems* tells
    of fields of nodes that they have written and may not. *plan* may be exchanged at any time.
    """

    def __init__(self) -> None:
        self.plan: Plan | None = None
        self.users: dict[str, str] = {}
        self.calls: list[Call] = []
        self.events: list[AuditEvent] = []
        self.problems: list[str] = []
        self.store: Store | None = None
        self._writes = 0
        self._failure: Exception | None = None

    @property
    def middleware(self) -> Middleware:
        """What stands in front of the API server."""

        @web.middleware
        async def noted(request: web.Request, handler: Handler) -> web.StreamResponse:
            peer = request.transport.get_extra_info("peername") if request.transport is not None else None
            user = self.users.get(str(peer[0])) if peer else None
            if user is None:
                return await handler(request)
            return await self._carry_out(request, handler, user)

        return noted

    def checked(self) -> None:
        """Raise what a plan or a hook has raised, and :class:`AssertionError` with all *problems*."""
        if self._failure is not None:
            raise self._failure
        assert not self.problems, "\n".join(self.problems)

    async def _carry_out(self, request: web.Request, handler: Handler, user: str) -> web.StreamResponse:
        received = _time()
        call = await self._call(request)
        self.calls.append(call)
        fault = await self._described(self.plan(call)) if self.plan is not None else None
        if fault is not None and fault.before:
            await self._described(fault.before())
        if isinstance(fault, Reset) and not fault.done:
            return _broken(request)
        note = self._event(request, user, received)
        if call.is_watch:
            # It is noted when it begins: it ends when it ends.
            self.events.append(msgspec.structs.replace(note, stage_timestamp=_time()))
            return await handler(request)
        before = self._node(note.object_ref)
        answer = await handler(request)
        assert isinstance(answer, web.Response)
        self._answered(note, answer, before)
        if fault is not None and fault.after:
            await self._described(fault.after())
        return _broken(request) if isinstance(fault, Reset) else answer

    async def _described(self, said: Awaitable[T]) -> T:
        """Await the test's own code; its errors end up in the test."""
        try:
            return await said
        except Exception as error:
            self._failure = self._failure or error
            raise

    async def _call(self, request: web.Request) -> Call:
        body, query = await request.read(), dict(request.query)
        number = 0
        if request.method in WRITES:
            self._writes += 1
            number = self._writes
        is_watch = request.method == "GET" and query.get("watch") in {"true", "1"}
        path = request.path
        return Call(len(self.calls) + 1, number, request.method, path, query, body, is_watch, request.headers)

    def _event(self, request: web.Request, user: str, received: str) -> AuditEvent:
        verb, about = request.method.lower(), ObjectRef()
        try:
            target = target_of(request.path)
        except UnknownPath:
            pass
        else:
            verb = asked(request.method, target, request.query, "", 0).verb
            kind = target.kind
            about = ObjectRef(kind.plural, target.namespace, target.name, target.subresource, kind.group)
        return AuditEvent(
            verb=verb,
            request_uri=request.path_qs,
            user=User(user),
            user_agent=request.headers.get("User-Agent", ""),
            object_ref=about,
            response_status=ResponseStatus(200),
            request_received_timestamp=received,
        )

    def _answered(self, note: AuditEvent, answer: web.Response, before: Json | None) -> None:
        reported, body = msgspec.Raw(b"null"), answer.body
        if note.verb in {"patch", "update"} and isinstance(body, bytes):
            reported = msgspec.Raw(body)
        event = msgspec.structs.replace(
            note, stage_timestamp=_time(), response_status=ResponseStatus(answer.status), response_object=reported
        )
        self.events.append(event)
        if before is not None and event.code == 200 and bytes(reported) != b"null":
            wrong = changed_fields(before, json.loads(bytes(reported))) - MAY_WRITE
            if wrong:
                self.problems.append(f"{event.user.username} wrote {sorted(wrong)} of node {event.object_ref.name}")

    def _node(self, about: ObjectRef) -> Json | None:
        return self.store.find("Node", about.name) if self.store is not None and about.resource == "nodes" else None


def changed_fields(before: Json, after: Json) -> set[str]:
    """Return the fields in which two versions of an object differ: ``spec/taints``, ``metadata/labels/KEY``."""
    found: set[str] = set()
    for part in before.keys() | after.keys():
        old, new = before.get(part) or {}, after.get(part) or {}
        if not (isinstance(old, dict) and isinstance(new, dict)):
            found |= {part} if old != new else set()
            continue
        for name in _differing(old, new):
            if part == "metadata" and name in _BY_KEY:
                found |= {f"{part}/{name}/{key}" for key in _differing(old.get(name) or {}, new.get(name) or {})}
            else:
                found.add(f"{part}/{name}")
    return found - _OF_THE_SERVER


def _differing(old: Json, new: Json) -> list[str]:
    return [key for key in old.keys() | new.keys() if old.get(key) != new.get(key)]


def _broken(request: web.Request) -> web.Response:
    """Break the connection off; what is returned nobody hears."""
    transport: Any = request.transport
    break_off(transport)
    return web.Response(status=502)


def _time() -> str:
    return datetime.fromtimestamp(wall(), UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


__all__ = ["EmbeddedAudit", "changed_fields"]
