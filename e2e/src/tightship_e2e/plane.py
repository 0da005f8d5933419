"""A control plane: etcd, API server, controller-manager, scheduler and kwok as processes."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import secrets
import ssl
import time
import urllib.parse
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from tightship_e2e import binaries, components
from tightship_e2e.components import COMPONENTS, Layout
from tightship_testkit import audit, credentials
from tightship_testkit.client import Client
from tightship_testkit.ports import free_ports
from tightship_testkit.processes import Processes, ServerError

T = TypeVar("T")

START_DEADLINE = 240.0  # seconds for all servers together, on a busy machine
SPARING = {"GOGC": "400"}
"""Environment of the servers: by default, a seventh of their time goes into collecting garbage."""


class PlaneError(ServerError):
    """A server of a plane did not come up or died; the message ends with the tail of its log."""


class ControlPlane(Processes):
    """A control plane of its own: own ports on 127.0.0.1, own data directory, own token.

    `components` leaves servers out (etcd and kube-apiserver always run), `audit` writes
    the audit log that `audit_events` reads, `flags` adds command line flags by component.
    `start` raises NotBuiltError when the programs are not built, PlaneError when a server
    does not come up within `deadline` seconds.
    """

    def __init__(
        self,
        *,
        components: Sequence[str] = COMPONENTS,
        audit: bool = False,
        flags: Mapping[str, Sequence[str]] | None = None,
        deadline: float = START_DEADLINE,
    ) -> None:
        super().__init__("the control plane", PlaneError)
        unknown = set(components) - set(COMPONENTS)
        if unknown:
            raise ValueError(f"unknown components {sorted(unknown)}; there are {COMPONENTS}")
        wanted = {*components, "etcd", "kube-apiserver"}
        self.components = tuple(name for name in COMPONENTS if name in wanted)
        self._audit = audit
        self._flags = flags or {}
        self._deadline = deadline
        self._layout: Layout | None = None
        self._audit_offset = 0
        self.binaries: dict[str, Path] = {}

    # What the plane is made of; all of it is known from `start` on.

    @property
    def layout(self) -> Layout:
        if self._layout is None:
            raise PlaneError("the control plane is not started")
        return self._layout

    @property
    def server(self) -> str:
        """The API server's URL."""
        return self.layout.server

    @property
    def token(self) -> str:
        """The bearer token of an administrator (group system:masters)."""
        return self.layout.token

    @property
    def ca_file(self) -> Path:
        return self.layout.ca_file

    @property
    def kubeconfig(self) -> Path:
        """An administrator's kubeconfig."""
        return self.layout.kubeconfig

    # Start and end.

    def start(self) -> Self:
        """Start the servers and wait until all of them answer."""
        self.binaries = {**binaries.find(), **binaries.find(*self.components)}
        attempts = 3
        for attempt in range(1, attempts + 1):
            try:
                self._start_once()
            except PlaneError as error:
                self.stop()
                # Somebody else took a port between our choice and our use of it.
                if "address already in use" not in str(error) or attempt == attempts:
                    raise
            except BaseException:
                self.stop()
                raise
            else:
                break
        return self

    def stop(self) -> None:
        """Kill every process of the plane and remove its data directory."""
        self.close()
        self._layout = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _start_once(self) -> None:
        self.open()
        ports = free_ports("etcd-peer", *self.components)
        self._audit_offset = 0
        self._layout = Layout(self.data_dir, secrets.token_hex(16), ports, self._audit)
        components.write_files(self._layout)
        until = time.monotonic() + self._deadline
        self._launch("etcd")
        self._launch("kube-apiserver")
        self._await_health("kube-apiserver", until)
        rest = [name for name in self.components if name not in self.pids]
        for name in rest:
            self._launch(name)
        for name in rest:
            self._await_health(name, until)
        if "kube-controller-manager" in rest:
            # Its health says only that it listens; this account shows that it works.
            path = "/api/v1/namespaces/default/serviceaccounts/default"
            self._await("the default ServiceAccount", until, lambda: self._status(path) == 200)

    def _launch(self, name: str) -> None:
        argv = [*components.FLAGS[name](self.layout), *self._flags.get(name, ())]
        self.spawn(name, [str(self.binaries[name]), *argv], env=SPARING)

    def restart(self, name: str) -> None:
        """Kill a component, start it again with the same data, wait until it answers."""
        self.kill(name)
        self._launch(name)
        self._await_health(name, time.monotonic() + self._deadline)

    # What tests ask of a running plane.

    def client(self, *, token: str | None = None, concurrency: int = 32) -> Client:
        """An API client, as administrator or with another token; use it in `async with`."""
        return Client.by_token(self.server, token or self.token, self.ca_file, concurrency=concurrency)

    def run(self, work: Callable[[Client], Awaitable[T]]) -> T:
        """Run a coroutine function with a client, for tests that are not asynchronous."""

        async def main() -> T:
            async with self.client() as client:
                return await work(client)

        return asyncio.run(main())

    def service_account_kubeconfig(self, namespace: str, name: str, *, lifetime: int = 3600) -> Path:
        """Write a kubeconfig with just a token of this ServiceAccount, `lifetime` in seconds.

        Raises PlaneError when the TokenRequest API refuses, as for an unknown account.
        """
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": lifetime},
        }
        status, answer = self._request("POST", path, body)
        if status != 201:
            raise PlaneError(f"no token for {namespace}/{name}: {status} {answer.get('message')}")
        token = answer["status"]["token"]
        target = self.data_dir / f"kubeconfig-{namespace}-{name}"
        return credentials.write_kubeconfig(target, server=self.server, ca_file=self.ca_file, token=token)

    def audit_events(self) -> list[audit.AuditEvent]:
        """Events since the last call; an event is there soon after its request's answer."""
        if not self._audit:
            raise PlaneError("the plane writes no audit log: ControlPlane(audit=True)")
        events, self._audit_offset = audit.read(self.layout.audit_log, self._audit_offset)
        return events

    # Waiting.

    def _await_health(self, name: str, until: float) -> None:
        scheme, path = components.HEALTH[name]
        port = self.layout.ports[name]
        self._await(name, until, lambda: self._status(path, scheme=scheme, port=port) == 200)

    def _await(self, what: str, until: float, condition: Callable[[], bool]) -> None:
        shown = what if what in self.pids else "kube-controller-manager"
        self.wait_until(condition, until, what, watched=self.components, shown=shown)

    def _status(self, path: str, *, scheme: str = "https", port: int | None = None) -> int:
        """The HTTP status of a GET, 0 when nobody answers."""
        try:
            return self._request("GET", path, scheme=scheme, port=port)[0]
        except (OSError, http.client.HTTPException):
            return 0

    def _request(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        scheme: str = "https",
        port: int | None = None,
    ) -> tuple[int, dict[str, Any]]:
        port = port or urllib.parse.urlsplit(self.server).port
        connection: http.client.HTTPConnection
        if scheme == "https":
            trust = ssl.create_default_context(cafile=str(self.ca_file))
            connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=10, context=trust)
        else:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        with contextlib.closing(connection):
            connection.request(method, path, json.dumps(body) if body else None, headers)
            answer = connection.getresponse()
            data = answer.read()
        is_json = answer.headers.get_content_type() == "application/json"
        return answer.status, json.loads(data) if is_json else {}
