"""Admission between controllers and an embedded API server: webhooks that hang, and policies that change objects."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from tightship_testkit.client import Json


def cleaning(*keys: str) -> Callable[[Json], None]:
    """Return a mutating policy that removes these annotations from nodes."""

    def mutate(thing: Json) -> None:
        if thing["kind"] == "Node":
            notes = thing["metadata"].get("annotations") or {}
            thing["metadata"]["annotations"] = {key: value for key, value in notes.items() if key not in keys}

    return mutate


class SlowWebhook:
    """A webhook with ``failurePolicy: Ignore`` on UPDATE of what *matches*; while *hangs*, each call takes *seconds*.

    The API server drops a call whose client has gone, and gives up any write after 34 s.
    """

    def __init__(self, matches: Callable[[str], bool], seconds: float = 30.0) -> None:
        self.hangs = False
        self.dropped = 0
        self._matches = matches
        self._seconds = seconds

    @property
    def middleware(self) -> Middleware:
        """The webhook's place before the API."""

        @web.middleware
        async def meets(request: web.Request, handler: Handler) -> web.StreamResponse:
            return await self._meets(request, handler)

        return meets

    async def _meets(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if self.hangs and request.method in ("PATCH", "PUT") and self._matches(request.path):
            await asyncio.sleep(min(self._seconds, 34.0))
            if request.transport is None or request.transport.is_closing():
                self.dropped += 1
                raise ConnectionResetError
            if self._seconds > 34.0:
                return web.json_response({"kind": "Status", "code": 504, "reason": "Timeout"}, status=504)
        return await handler(request)


__all__ = ["SlowWebhook", "cleaning"]
