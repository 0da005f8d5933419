"""Leases in memory with the API server's rules, a network to them that fails on demand, and virtual time."""

from __future__ import annotations

import asyncio
import contextlib
import json
import selectors
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from tightship.kube.errors import ApiError, ConnectionFailed, api_error

T = TypeVar("T")
Json = dict[str, Any]


class _Skipping(selectors.SelectSelector):
    now = 1000.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready:
            assert timeout is not None, "everybody waits for something that will never happen"
            self.now += max(timeout, 0)
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop on which waiting takes no time, but the clock shows that it did."""

    def __init__(self) -> None:
        self._skipping = _Skipping()
        super().__init__(self._skipping)

    def time(self) -> float:
        return self._skipping.now


def virtually(work: Callable[[], Awaitable[T]], hours: float = 1) -> T:
    """Run *work* in virtual time, for at most so many *hours* of it."""

    async def bounded() -> T:
        async with asyncio.timeout(hours * 3600):
            return await work()

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(bounded())


def now() -> float:
    return asyncio.get_running_loop().time()


@dataclass
class LeaseServer:
    """``objects`` by path; ``seen`` is every request carried out or refused, in order."""

    objects: dict[str, Json] = field(default_factory=dict)
    seen: list[tuple[str, int]] = field(default_factory=list)
    version: int = 100

    def handle(self, verb: str, path: str, body: bytes | None = None) -> bytes:
        code, answer = getattr(self, f"_{verb.lower()}")(path, json.loads(body) if body else {})
        self.seen.append((verb, code))
        if code >= 300:
            raise api_error(code, json.dumps({"message": answer}).encode(), verb=verb, path=path, server="memory")
        return json.dumps(answer).encode()

    def edit(self, path: str, change: Callable[[Json], None]) -> None:
        """Change an object as somebody else would."""
        changed = json.loads(json.dumps(self.objects[path]))
        change(changed)
        self.version += 1
        changed["metadata"]["resourceVersion"] = str(self.version)
        self.objects[path] = changed

    def _get(self, path: str, _: Json) -> tuple[int, Any]:
        return (200, self.objects[path]) if path in self.objects else (404, "not found")

    def _post(self, path: str, thing: Json) -> tuple[int, Any]:
        path = f"{path}/{thing['metadata']['name']}"
        if path in self.objects:
            return 409, "already exists"
        self.version += 1
        meta = {**thing["metadata"], "uid": f"uid-{self.version}", "resourceVersion": str(self.version)}
        self.objects[path] = {**thing, "metadata": meta}
        return 201, self.objects[path]

    def _put(self, path: str, thing: Json) -> tuple[int, Any]:
        present = self.objects.get(path)
        meta = thing["metadata"]
        if present is None or any(meta.get(key) != present["metadata"][key] for key in ("uid", "resourceVersion")):
            return 409, "the object has been modified"
        if thing != present:
            self.version += 1
            self.objects[path] = {**thing, "metadata": {**meta, "resourceVersion": str(self.version)}}
        return 200, self.objects[path]


@dataclass
class MemoryConnection:
    """Stands in for a ``Connection``. ``mode`` is what happens to requests; ``once`` goes first, one for each write.

    "up"; "refused" (at once); "hang"; "lost answer" (carried out, then hang); "late" (refused, yet carried out
    ``lateness`` seconds later); "twice" (as a transport that repeats a PUT); or an HTTP status.
    """

    api: LeaseServer
    mode: str | int = "up"
    once: deque[str | int] = field(default_factory=deque)
    delay: Callable[[], float] = lambda: 0.01
    lateness: float = 1.0
    server: str = "memory"
    sent: list[str] = field(default_factory=list)

    async def request(
        self,
        verb: str,
        path: str,
        *,
        body: bytes | None = None,
        timeout: float | None = None,  # noqa: ASYNC109
        retry: bool | None = None,
    ) -> bytes:
        assert timeout is not None
        assert timeout < 11
        assert retry is False
        self.sent.append(verb)
        mode = self.once.popleft() if self.once and verb != "GET" else self.mode
        await asyncio.sleep(self.delay() / 2)
        match mode:
            case int():
                raise api_error(mode, b'{"message": "as told"}', verb=verb, path=path, server=self.server)
            case "refused":
                raise ConnectionFailed(verb, path, self.server, "refused")
            case "hang":
                await asyncio.Event().wait()
            case "late":
                asyncio.get_running_loop().call_later(self.lateness, self._ignoring, verb, path, body)
                raise ConnectionFailed(verb, path, self.server, "reset")
            case "lost answer":
                self._ignoring(verb, path, body)
                await asyncio.Event().wait()
            case "twice":
                self._ignoring(verb, path, body)
        answer = self.api.handle(verb, path, body)
        await asyncio.sleep(self.delay() / 2)
        return answer

    def _ignoring(self, verb: str, path: str, body: bytes | None) -> None:
        with contextlib.suppress(ApiError):  # whatever the answer is, nobody hears it
            self.api.handle(verb, path, body)
