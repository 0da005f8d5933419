"""Servers as child processes that never outlive the tests that started them.

The processes belong to a supervisor (:mod:`tightship_testkit.supervise`), which ends with this process, however that
ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tightship_testkit.ports import free_ports

POLL = 0.05  # seconds between two looks at a condition
TAIL = 25  # lines of a log that an error shows


class ServerError(Exception):
    """A server did not come up or died; the message ends with the tail of its log."""


def gone(pid: int) -> bool:
    """Whether a process has ended; one that nobody has waited for yet counts as ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


async def fetch(port: int, path: str) -> tuple[int, str]:
    """Ask a process on *port* over HTTP: status and text; 0 when it does not answer."""

    def ask() -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except (OSError, http.client.HTTPException):  # the second where it ends in the middle of its answer
            return 0, ""

    return await asyncio.to_thread(ask)


class Processes:
    """Processes by name, their logs, and a directory; all of it ends with `close`.

    `whose` is what messages call them, `error` what is raised.
    """

    def __init__(self, whose: str, error: type[ServerError] = ServerError) -> None:
        self.pids: dict[str, int] = {}
        self._whose = whose
        self._error = error
        self._lock = threading.Lock()
        self._supervisor: subprocess.Popen[str] | None = None
        self._data_dir: Path | None = None

    @property
    def is_open(self) -> bool:
        return self._supervisor is not None

    @property
    def data_dir(self) -> Path:
        """The directory that is removed in the end."""
        if self._data_dir is None:
            raise self._not_started()
        return self._data_dir

    @property
    def logs(self) -> dict[str, Path]:
        """The log file of every process started so far."""
        return {name: self.data_dir / "logs" / f"{name}.log" for name in self.pids}

    @property
    def supervisor_pid(self) -> int:
        if self._supervisor is None:
            raise self._not_started()
        return self._supervisor.pid

    def open(self) -> None:
        """Start the supervisor."""
        self._supervisor = subprocess.Popen(
            [sys.executable, "-m", "tightship_testkit.supervise"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            # Out of reach of the terminal's Ctrl-C: the servers end when their owner ends them.
            start_new_session=True,
        )
        self._data_dir = Path(self._read_answer()["data_dir"])

    def close(self) -> None:
        """Kill every process and remove the directory."""
        supervisor, self._supervisor = self._supervisor, None
        if supervisor is None:
            return
        supervisor.communicate()  # closing its stdin is the request to end
        self._data_dir = None
        self.pids = {}

    def spawn(
        self, name: str, argv: Sequence[str], *, env: Mapping[str, str] | None = None, cwd: Path | None = None
    ) -> int:
        """Start a process whose output goes to `logs[name]`; `env` is added to this process's. Returns the pid."""
        reply = self._ask(op="start", name=name, argv=list(argv), env=dict(env or {}), cwd=cwd and str(cwd))
        self.pids[name] = reply["pid"]
        return self.pids[name]

    def signal(self, name: str, number: signal.Signals) -> None:
        """Send a process a signal."""
        self._ask(op="signal", name=name, number=int(number))

    def kill(self, name: str) -> None:
        """SIGKILL a process and wait for its end; a paused one too."""
        self._ask(op="kill", name=name)

    @contextlib.contextmanager
    def paused(self, *names: str) -> Iterator[None]:
        """Stop processes (SIGSTOP) for the body's time, then let them go on (SIGCONT)."""
        for name in names:
            self.signal(name, signal.SIGSTOP)
        try:
            yield
        finally:
            for name in names:
                self.signal(name, signal.SIGCONT)

    def free_port(self) -> int:
        """Return a port for a process that is started on it later."""
        return free_ports("")[""]

    async def fetch(self, name: str, port: int, path: str) -> tuple[int, str]:
        """Ask the process *name* over HTTP on *port*: status and text; 0 when it does not answer."""
        del name
        return await fetch(port, path)

    def exits(self) -> dict[str, int]:
        """Exit codes (negative: a signal) of the processes that have ended."""
        codes: dict[str, int] = self._ask(op="exits")["exits"]
        return codes

    def log_tail(self, name: str, lines: int = TAIL) -> str:
        """The last lines of a process's log."""
        text = self.logs[name].read_text(errors="replace")
        return "\n".join(text.splitlines()[-lines:])

    def wait_until(
        self, condition: Callable[[], bool], until: float, what: str, *, watched: Collection[str], shown: str
    ) -> None:
        """Wait for a condition till `until` on the monotonic clock.

        Raises this object's error when one of `watched` ends first, or when it is too late: then with the log of
        `shown`.
        """
        began = time.monotonic()
        while not condition():
            for name, code in self.exits().items():
                if name in watched:
                    raise self._error(f"{name} ended with code {code}; its log:\n{self.log_tail(name)}")
            if time.monotonic() > until:
                waited = time.monotonic() - began
                raise self._error(f"{what}: not within {waited:.0f} s; log of {shown}:\n{self.log_tail(shown)}")
            time.sleep(POLL)  # noqa: TID251 - between two looks at a condition with a deadline

    # The supervisor's protocol.

    def _ask(self, **request: object) -> dict[str, Any]:
        supervisor = self._supervisor
        if supervisor is None or supervisor.stdin is None:
            raise self._not_started()
        with self._lock:
            try:
                supervisor.stdin.write(json.dumps(request) + "\n")
                supervisor.stdin.flush()
            except BrokenPipeError as error:
                raise self._gone() from error
            return self._read_answer()

    def _read_answer(self) -> dict[str, Any]:
        pipe = self._supervisor and self._supervisor.stdout
        line = pipe.readline() if pipe else ""
        if not line:
            raise self._gone()
        reply: dict[str, Any] = json.loads(line)
        if "error" in reply:
            raise self._error(f"the supervisor refused: {reply['error']}")
        return reply

    def _not_started(self) -> ServerError:
        return self._error(f"{self._whose} is not started")

    def _gone(self) -> ServerError:
        return self._error(f"the supervisor of {self._whose} is gone")
