"""The Kubernetes API over HTTP, on a :class:`~tightship_simulator.api.store.Store`.

There is no RBAC: everybody may do everything, unless a test says otherwise (:attr:`ApiServer.allows`). What RBAC
withholds is tested on a real control plane.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from datetime import datetime
from email.utils import format_datetime
from functools import lru_cache, partial
from typing import Any

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from tightship_simulator.api import subresources
from tightship_simulator.api.answers import Form, encode, form_of
from tightship_simulator.api.bodies import body_of, check_about, deletion_of, is_dry, named
from tightship_simulator.api.discovery import discovered
from tightship_simulator.api.errors import (
    BadRequest,
    Expired,
    MethodNotAllowed,
    Refused,
    UnknownPath,
    details,
)
from tightship_simulator.api.events import as_kept, as_new
from tightship_simulator.api.kinds import NEW_EVENTS, Kind
from tightship_simulator.api.patches import patched
from tightship_simulator.api.requests import (
    Asked,
    Target,
    asked,
    flag,
    number,
    read_token,
    selection,
    target_of,
    token_of,
)
from tightship_simulator.api.rights import Allows, check
from tightship_simulator.api.store import AUTHOR, MANAGER, Part, Store
from tightship_simulator.api.versioned import key_of
from tightship_simulator.api.watching import BOOKMARKS, stream, watch_of

Json = dict[str, Any]
Reply = tuple[int, Json]
"""A status code and a body."""

_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_PROBES = frozenset({"/healthz", "/livez", "/readyz"})
_STATUS_AT_CREATION = frozenset({"Node"})
"""Kinds that are created with their status (``nodeStrategy``)."""

_LARGEST_BODY = 3 << 20
_REMEMBERED = 100_000
"""Requests that are kept in the log."""


class ApiServer:
    """Answers requests on *store*. *bookmarks* is the time between two bookmarks of a watch, in seconds.

    *middlewares* are aiohttp's, around every answer. *requests* holds the last 100,000 requests for objects, in the
    order of their answers: a watch when it begins. *allows* may be set at any time: who may do what.
    """

    def __init__(self, store: Store, *, bookmarks: float = BOOKMARKS, middlewares: Sequence[Middleware] = ()) -> None:
        self._store = store
        self._bookmarks = bookmarks
        self.requests: deque[Asked] = deque(maxlen=_REMEMBERED)
        self.allows: Allows | None = None
        self.app = web.Application(client_max_size=_LARGEST_BODY)
        handle: Handler = self._handle
        for each in reversed(middlewares):
            # Not by aiohttp: it remembers all applications that have middlewares.
            handle = partial(each, handler=handle)
        self.app.router.add_route("*", "/{path:.*}", handle)
        self.app.on_response_prepare.append(self._date)

    async def _date(self, _: web.Request, response: web.StreamResponse) -> None:
        """Date the answer by the cluster's clock; aiohttp goes by the machine's."""
        response.headers["Date"] = _http_date(self._store.now().replace(microsecond=0))

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        peer = request.transport.get_extra_info("peername") if request.transport is not None else None
        AUTHOR.set(str(peer[0]) if peer else "")
        # As endpoints/handlers/create.go has it: what the client says, or its name before the version.
        MANAGER.set(request.query.get("fieldManager") or request.headers.get("User-Agent", "").partition("/")[0])
        try:
            return await self._answer(request)
        except Refused as error:
            headers = {"Retry-After": str(error.retry_after)} if error.retry_after else {}
            return _sent(error.code, error.status, headers)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        path, method = request.path.rstrip("/") or "/", request.method
        if path in _PROBES:
            return web.Response(text="ok")
        if method == "GET" and (found := discovered(path)) is not None:
            return _sent(200, found)
        if method == "POST" and path == _REVIEWS:
            # Not read: kubectl asks in protobuf, and the answer is always the same.
            review = {"kind": "SelfSubjectAccessReview", "apiVersion": "authorization.k8s.io/v1", "spec": {}}
            return _sent(201, {**review, "status": {"allowed": True, "reason": "the embedded cluster has no RBAC"}})
        target = target_of(path)
        if target.kind.extension and not self._defined(target.kind):
            raise UnknownPath
        if self.allows is not None:
            about = asked(method, target, request.query, "", 0)
            check(self.allows, AUTHOR.get(), about, target, request.query)
        reads = method == "GET" and not target.subresource
        if reads and flag(request.query, "watch"):
            watch = watch_of(selection(target, request.query), self._form(target, request), request.query)
            self._note(target, request, 200)
            return await stream(self._store, watch, request, self._bookmarks)
        try:
            if reads and not target.name:
                code, answer = 200, self._list(target, self._form(target, request), request)
            else:
                code, answer = await self._one(target, request)
        except Refused as error:
            self._note(target, request, error.code)
            raise
        self._note(target, request, code)
        return _sent(code, answer)

    def _defined(self, kind: Kind) -> bool:
        found = self._store.find("CustomResourceDefinition", kind.qualified) or {"spec": {}}
        return any(each["name"] == kind.version and each["served"] for each in found["spec"].get("versions") or [])

    def _note(self, target: Target, request: web.Request, code: int) -> None:
        agent = request.headers.get("User-Agent", "")
        self.requests.append(asked(request.method, target, request.query, agent, code))

    def _form(self, target: Target, request: web.Request) -> Form:
        return form_of(target.kind, request.headers.get("Accept", ""), request.query, self._store.now())

    # Lists.

    def _list(self, target: Target, form: Form, request: web.Request) -> Json:
        query, store = request.query, self._store
        selected = selection(target, query)
        at, after = store.version, ("", "")
        token, wanted = query.get("continue", ""), number(query, "resourceVersion")
        if token:
            at, after = read_token(token)
        elif wanted:
            store.reached(wanted)
            if query.get("resourceVersionMatch") == "Exact":
                at = wanted
        try:
            things = store.list(target.kind.name, target.namespace, at=at)
        except Expired as error:
            if not token:
                raise
            detail = "The provided continue parameter is too old to display a consistent list result. You must start a "
            raise Expired(detail + "new list without the continue parameter.") from error
        things = [each for each in things if key_of(each) > after and selected.takes(each)]
        meta: Json = {"resourceVersion": str(at)}
        limit = number(query, "limit")
        if limit and len(things) > limit:
            meta["continue"] = token_of(at, key_of(things[limit - 1]))
            if selected.plain:
                meta["remainingItemCount"] = len(things) - limit
            things = things[:limit]
        return form.many(things, meta)

    # Single objects.

    async def _one(self, target: Target, request: web.Request) -> Reply:
        if target.subresource:
            return await self._subresource(target, request)
        match request.method, bool(target.name):
            case "GET", True:
                thing = self._store.get(target.kind.name, target.name, target.namespace)
                return 200, self._form(target, request).one(thing)
            case "POST", False:
                return 201, await self._create(target, request)
            case "PUT", True:
                return 200, await self._update(target, request, "main")
            case "PATCH", True:
                return 200, await self._patch(target, request, "main")
            case "DELETE", True:
                return 200, await self._delete(target, request)
            case "DELETE", False:
                return 200, await self._delete_all(target, request)
        raise MethodNotAllowed

    async def _create(self, target: Target, request: web.Request) -> Json:
        thing = named(target, await body_of(request))
        if target.kind.status and target.kind.name not in _STATUS_AT_CREATION:
            thing.pop("status", None)
        made = self._store.create(target.kind.name, thing, dry_run=is_dry(request))
        return self._form(target, request).one(made)

    async def _update(self, target: Target, request: web.Request, part: Part) -> Json:
        thing = named(target, await body_of(request))
        written = self._store.update(target.kind.name, thing, part=part, dry_run=is_dry(request))
        return self._form(target, request).one(written)

    async def _patch(self, target: Target, request: web.Request, part: Part) -> Json:
        patch, content_type = await body_of(request, any_form=True), request.content_type
        newer = target.kind is NEW_EVENTS

        def change(thing: Json) -> Json:
            after = patched(as_new(thing) if newer else thing, patch, content_type)
            return as_kept(after) if newer else after

        name, namespace = target.name, target.namespace
        written = self._store.modify(target.kind.name, name, namespace, change, part=part, dry_run=is_dry(request))
        return self._form(target, request).one(written)

    async def _delete(self, target: Target, request: web.Request) -> Json:
        options = await deletion_of(request)
        kind, name = target.kind, target.name
        wanted = options.get("preconditions") or {}
        last = self._store.delete(
            kind.name,
            name,
            target.namespace,
            grace=options.get("gracePeriodSeconds"),
            uid=wanted.get("uid"),
            version=wanted.get("resourceVersion"),
            dry_run=is_dry(request) or "All" in (options.get("dryRun") or []),
        )
        if self._store.find(kind.name, name, target.namespace) is not None:
            return self._form(target, request).one(last)
        about = details(kind, name, last["metadata"]["uid"])
        return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": about}

    async def _delete_all(self, target: Target, request: web.Request) -> Json:
        if target.kind.namespaced and not target.namespace:
            raise MethodNotAllowed
        options, selected = await deletion_of(request), selection(target, request.query)
        things = [each for each in self._store.list(target.kind.name, target.namespace) if selected.takes(each)]
        for each in things:
            meta, grace = each["metadata"], options.get("gracePeriodSeconds")
            name, namespace = meta["name"], meta.get("namespace", "")
            self._store.delete(target.kind.name, name, namespace, grace=grace, dry_run=is_dry(request))
        return self._form(target, request).many(things, {"resourceVersion": str(self._store.version)})

    # Subresources.

    async def _subresource(self, target: Target, request: web.Request) -> Reply:
        method, kind, name, namespace = request.method, target.kind, target.name, target.namespace
        match target.subresource, kind.name:
            case "status", _ if kind.status:
                return 200, await self._status(target, request)
            case "scale", _ if kind.scale:
                return 200, await self._scale(target, request)
            case "eviction", "Pod" if method == "POST":
                eviction = await body_of(request)
                check_about(eviction, "Eviction", name)
                subresources.evict(self._store, name, namespace, eviction.get("deleteOptions"), dry_run=is_dry(request))
                return 201, _success(201)
            case "binding", "Pod" if method == "POST":
                binding = await body_of(request)
                check_about(binding, "Binding", name)
                node = (binding.get("target") or {}).get("name")
                if not node:
                    raise BadRequest("target.name: Required value")
                subresources.bind(self._store, name, namespace, node, dry_run=is_dry(request))
                return 201, _success(201)
            case "token", "ServiceAccount" if method == "POST":
                return 201, subresources.token(self._store, name, namespace, await body_of(request))
            case "finalize", "Namespace" if method == "PUT":
                return 200, await self._update(target, request, "main")
        raise UnknownPath

    async def _status(self, target: Target, request: web.Request) -> Json:
        match request.method:
            case "GET":
                return self._store.get(target.kind.name, target.name, target.namespace)
            case "PUT":
                return await self._update(target, request, "status")
            case "PATCH":
                return await self._patch(target, request, "status")
        raise MethodNotAllowed

    async def _scale(self, target: Target, request: web.Request) -> Json:
        kind, name, namespace = target.kind.name, target.name, target.namespace
        if request.method == "GET":
            return subresources.scale_of(self._store.get(kind, name, namespace))
        if request.method not in {"PUT", "PATCH"}:
            raise MethodNotAllowed
        body = await body_of(request, any_form=True)

        def change(thing: Json) -> Json:
            given = body
            if request.method == "PATCH":
                given = patched(subresources.scale_of(thing), body, request.content_type)
            return subresources.rescaled(thing, given)

        written = self._store.modify(kind, name, namespace, change, part="main", dry_run=is_dry(request))
        return subresources.scale_of(written)


@lru_cache(maxsize=16)
def _http_date(second: datetime) -> str:
    return format_datetime(second, usegmt=True)


def _success(code: int) -> Json:
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": code}


def _sent(code: int, body: Json, headers: dict[str, str] | None = None) -> web.Response:
    return web.Response(body=encode(body), status=code, content_type="application/json", headers=headers)
