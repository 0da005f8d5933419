"""A control plane: etcd, API server, controller-manager, scheduler and kwok as processes."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import secrets
import signal
import ssl
import subprocess
import sys
import threading
import time
import urllib.parse
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from tightship_e2e import audit, binaries, components, credentials
from tightship_e2e.client import Client
from tightship_e2e.components import COMPONENTS, Layout

T = TypeVar("T")

START_DEADLINE = 90.0  # seconds for all servers together, on a busy machine
POLL = 0.05  # seconds between two looks at a condition
TAIL = 25  # lines of a log that an error shows


class PlaneError(Exception):
    """A server did not come up or died; the message ends with the tail of its log."""


class ControlPlane:
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
        unknown = set(components) - set(COMPONENTS)
        if unknown:
            raise ValueError(f"unknown components {sorted(unknown)}; there are {COMPONENTS}")
        wanted = {*components, "etcd", "kube-apiserver"}
        self.components = tuple(name for name in COMPONENTS if name in wanted)
        self._audit = audit
        self._flags = flags or {}
        self._deadline = deadline
        self._lock = threading.Lock()
        self._supervisor: subprocess.Popen[str] | None = None
        self._layout: Layout | None = None
        self._audit_offset = 0
        self.binaries: dict[str, Path] = {}
        self.pids: dict[str, int] = {}

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

    @property
    def data_dir(self) -> Path:
        return self.layout.data_dir

    @property
    def logs(self) -> dict[str, Path]:
        """The log file of every process started so far."""
        return {name: self.data_dir / "logs" / f"{name}.log" for name in self.pids}

    @property
    def supervisor_pid(self) -> int:
        if self._supervisor is None:
            raise PlaneError("the control plane is not started")
        return self._supervisor.pid

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
        supervisor, self._supervisor = self._supervisor, None
        if supervisor is None:
            return
        supervisor.communicate()  # closing its stdin is the request to end
        self._layout = None
        self.pids = {}

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
        self._supervisor = subprocess.Popen(
            [sys.executable, "-m", "tightship_e2e.supervise"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            # Out of reach of the terminal's Ctrl-C: the plane ends when its owner ends it.
            start_new_session=True,
        )
        data_dir = Path(self._read_answer()["data_dir"])
        ports = components.free_ports("etcd-peer", *self.components)
        self._audit_offset = 0
        self._layout = Layout(data_dir, secrets.token_hex(16), ports, self._audit)
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
        self.spawn(name, [str(self.binaries[name]), *argv])

    # Processes.

    def spawn(
        self,
        name: str,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> int:
        """Start another process that ends with the plane; its output goes to `logs[name]`.

        `env` is added to this process's environment. Returns the pid.
        """
        reply = self._ask(op="start", name=name, argv=list(argv), env=dict(env or {}), cwd=cwd and str(cwd))
        self.pids[name] = reply["pid"]
        return self.pids[name]

    def kill(self, name: str) -> None:
        """SIGKILL a process and wait for its end; a paused one too."""
        self._ask(op="kill", name=name)

    def restart(self, name: str) -> None:
        """Kill a component, start it again with the same data, wait until it answers."""
        self.kill(name)
        self._launch(name)
        self._await_health(name, time.monotonic() + self._deadline)

    @contextlib.contextmanager
    def paused(self, *names: str) -> Iterator[None]:
        """Stop components (SIGSTOP) for the body's time, then let them go on (SIGCONT)."""
        for name in names:
            self._ask(op="signal", name=name, number=int(signal.SIGSTOP))
        try:
            yield
        finally:
            for name in names:
                self._ask(op="signal", name=name, number=int(signal.SIGCONT))

    def exits(self) -> dict[str, int]:
        """Exit codes (negative: a signal) of the processes that have ended."""
        codes: dict[str, int] = self._ask(op="exits")["exits"]
        return codes

    def log_tail(self, name: str, lines: int = TAIL) -> str:
        """The last lines of a process's log."""
        text = self.logs[name].read_text(errors="replace")
        return "\n".join(text.splitlines()[-lines:])

    # What tests ask of a running plane.

    def client(self, *, token: str | None = None, concurrency: int = 32) -> Client:
        """An API client, as administrator or with another token; use it in `async with`."""
        return Client(self.server, token or self.token, self.ca_file, concurrency=concurrency)

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
        while not condition():
            ended = {name: code for name, code in self.exits().items() if name in self.components}
            for name, code in ended.items():
                raise PlaneError(f"{name} ended with code {code}; its log:\n{self.log_tail(name)}")
            if time.monotonic() > until:
                shown = what if what in self.pids else "kube-controller-manager"
                log = self.log_tail(shown)
                raise PlaneError(f"{what} is not there after {self._deadline:.0f} s; log:\n{log}")
            time.sleep(POLL)  # noqa: TID251 - between two looks at a condition with a deadline

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

    # The supervisor's protocol.

    def _ask(self, **request: object) -> dict[str, Any]:
        supervisor = self._supervisor
        if supervisor is None or supervisor.stdin is None:
            raise PlaneError("the control plane is not started")
        with self._lock:
            try:
                supervisor.stdin.write(json.dumps(request) + "\n")
                supervisor.stdin.flush()
            except BrokenPipeError as error:
                raise PlaneError("the control plane's supervisor is gone") from error
            return self._read_answer()

    def _read_answer(self) -> dict[str, Any]:
        pipe = self._supervisor and self._supervisor.stdout
        line = pipe.readline() if pipe else ""
        if not line:
            raise PlaneError("the control plane's supervisor is gone")
        reply: dict[str, Any] = json.loads(line)
        if "error" in reply:
            raise PlaneError(f"the supervisor refused: {reply['error']}")
        return reply
