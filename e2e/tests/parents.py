"""A process that starts servers, is killed, and must not leave them behind."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

from tightship_testkit.processes import gone

DEADLINE = 60.0


def leaves_nothing(program: str, *, processes: int) -> None:
    """Run a Python program that prints its servers' `pids` and `data` directory as JSON, and SIGKILL it.

    So many processes must run before, and none of them nor the directory be there after it.
    """
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as parent:
        assert parent.stdout
        started = json.loads(parent.stdout.readline())
        assert len(started["pids"]) == processes
        assert not any(gone(pid) for pid in started["pids"])
        parent.kill()
    until = time.monotonic() + DEADLINE
    while not all(gone(pid) for pid in started["pids"]) or Path(started["data"]).exists():
        assert time.monotonic() < until, started
        time.sleep(0.05)  # noqa: TID251 - between two looks at a condition with a deadline
