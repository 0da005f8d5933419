"""What a test may take for granted of the processes it owns."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tightship_testkit.processes import Processes, ServerError

DEADLINE = 60.0
THREADS = 8
BUSY = f"""
import hashlib, threading
data = bytes(1 << 20)
def work():
    while True:
        hashlib.sha256(data)
for _ in range({THREADS}):
    threading.Thread(target=work).start()
"""


@pytest.fixture
def processes() -> Iterator[Processes]:
    made = Processes("the test's")
    made.open()
    yield made
    made.close()


def states(pid: int) -> list[str]:
    """The state of each thread, as the kernel calls it."""
    found = Path(f"/proc/{pid}/task").glob("*/stat")
    return [each.read_text().rpartition(")")[2].split()[0] for each in found]


def test_what_is_paused_does_nothing_any_more(processes: Processes) -> None:
    """More threads than there are processors: each stops only when it has its turn."""
    pid = processes.spawn("busy", [sys.executable, "-c", BUSY])
    until = time.monotonic() + DEADLINE
    processes.wait_until(lambda: len(states(pid)) == THREADS + 1, until, "all threads", watched=["busy"], shown="busy")
    for _ in range(5):
        with processes.paused("busy"):
            assert set(states(pid)) == {"T"}


def test_what_is_paused_twice_is_paused_and_what_has_ended_is_not_waited_for(processes: Processes) -> None:
    pid = processes.spawn("busy", [sys.executable, "-c", BUSY])
    with processes.paused("busy", "busy"):
        assert set(states(pid)) == {"T"}
    processes.kill("busy")
    with processes.paused("busy"):
        assert processes.exits() == {"busy": -signal.SIGKILL}
    with pytest.raises(ServerError, match="KeyError: 'nobody'"):
        processes.signal("nobody", signal.SIGSTOP)
