"""The process that owns servers of tests: `python -m tightship_testkit.supervise`.

Its parent talks to it by lines of JSON on stdin and reads one line of JSON per request
from stdout. When stdin ends, because the parent closed it or died in whatever way, every
child is killed and the data directory is removed. So not even SIGKILL of a test run
leaves servers behind. Requests (the field `op` names them):

* `start` `name argv env cwd` - start a child, its output appended to `logs/<name>.log`;
  answers `pid`
* `signal` `name number` - send it a signal; after SIGSTOP it has stopped when that is answered
* `kill` `name` - SIGKILL it and wait for its end
* `exits` - answers `exits`: name to exit code of every child that has ended

The first line, sent unasked, is `data_dir`. An answer with `error` says what went wrong.
Only the standard library is imported: a server should not wait for its supervisor.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

PR_SET_PDEATHSIG = 1


class Supervisor:
    """Children by name, and the directory that ends with them."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir
        self.children: dict[str, subprocess.Popen[bytes]] = {}
        (data_dir / "logs").mkdir()

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Carry out one request."""
        name = request.get("name", "")
        match request["op"]:
            case "start":
                return {"pid": self.start(name, request["argv"], request["env"], request["cwd"])}
            case "signal":
                self.send(self.children[name], request["number"])
            case "kill":
                self.children[name].kill()
                self.children[name].wait()
            case "exits":
                codes = {name: child.poll() for name, child in self.children.items()}
                return {"exits": {name: code for name, code in codes.items() if code is not None}}
            case unknown:
                raise ValueError(f"unknown request: {unknown}")
        return {}

    def start(self, name: str, argv: list[str], env: dict[str, str], cwd: str | None) -> int:
        """Start a child that outlives neither its name's successor nor this process."""
        before = self.children.get(name)
        if before and before.poll() is None:
            raise ValueError(f"{name} is running already")
        with (self.data_dir / "logs" / f"{name}.log").open("ab") as log:
            self.children[name] = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=os.environ | env,
                cwd=cwd or self.data_dir,
                preexec_fn=_die_with_parent,  # noqa: PLW1509 - this process has one thread
            )
        return self.children[name].pid

    def send(self, child: subprocess.Popen[bytes], number: int) -> None:
        """Send a child a signal, and wait until it has stopped if that is what the signal is for.

        It stops once each of its threads had its turn, and until then the others go on: on a busy machine for so long
        that a server can do what it should have been too late for.
        """
        child.send_signal(number)
        if number == signal.SIGSTOP and child.poll() is None:
            os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def end(self) -> None:
        """Kill all children, stopped ones too, then remove the data directory."""
        for child in self.children.values():
            child.kill()
        for child in self.children.values():
            child.wait()
        if not os.environ.get("TIGHTSHIP_E2E_KEEP"):
            shutil.rmtree(self.data_dir, ignore_errors=True)


def _die_with_parent() -> None:
    """Have the kernel kill this child when the supervisor itself is killed (Linux only)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _say(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def _terminated(number: int, _frame: object) -> None:
    raise SystemExit(128 + number)


def main() -> int:
    """Own processes until the pipe from the parent closes."""
    signal.signal(signal.SIGTERM, _terminated)
    supervisor = Supervisor(Path(tempfile.mkdtemp(prefix="tightship-e2e-")))
    # A parent that died leaves a broken pipe; the end is the same as when it closes stdin.
    with contextlib.suppress(BrokenPipeError):
        try:
            _say({"data_dir": str(supervisor.data_dir)})
            for line in sys.stdin:
                try:
                    reply = supervisor.answer(json.loads(line))
                except (KeyError, ValueError, OSError) as error:
                    reply = {"error": f"{type(error).__name__}: {error}"}
                _say(reply)
        finally:
            supervisor.end()
    return 0


if __name__ == "__main__":
    sys.exit(main())
