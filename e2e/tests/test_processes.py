"""What a test may take for granted of the processes it owns."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tightship_testkit.processes import Processes, ServerError, gone

DEADLINE = 120.0
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


def states(pid: int) -> list[str]:
    """The state of each thread, as the kernel calls it."""
    found = Path(f"/proc/{pid}/task").glob("*/stat")
    return [each.read_text().rpartition(")")[2].split()[0] for each in found]


def test_what_is_paused_does_nothing_any_more_and_what_has_ended_is_not_waited_for() -> None:
    """More threads than there are processors: each stops only when it has its turn."""
    processes = Processes("the test's")
    processes.open()
    try:
        pid = processes.spawn("busy", [sys.executable, "-c", BUSY])
        until = time.monotonic() + DEADLINE
        processes.wait_until(
            lambda: len(states(pid)) == THREADS + 1, until, "all threads", watched=["busy"], shown="busy"
        )
        for _ in range(3):
            with processes.paused("busy", "busy"):
                assert set(states(pid)) == {"T"}
        processes.kill("busy")
        with processes.paused("busy"):
            assert processes.exits() == {"busy": -signal.SIGKILL}
        with pytest.raises(ServerError, match="KeyError: 'nobody'"):
            processes.signal("nobody", signal.SIGSTOP)
    finally:
        processes.close()


WORKING = """
import json, os, sys, time
from pathlib import Path
import pytest
from tightship_testkit.processes import Processes

@pytest.mark.parametrize("number", [1, 2])
def test_of_a_worker(number):
    made = Processes("the test's")
    made.open()
    pid = made.spawn("server", [sys.executable, "-c", "import time; time.sleep(600)"])
    found = {"pids": [os.getpid(), made.supervisor_pid, pid], "data": str(made.data_dir)}
    Path(f"begun-{number}.part").write_text(json.dumps(found))
    Path(f"begun-{number}.part").rename(f"begun-{number}")
    try:
        time.sleep(600)
    finally:
        made.close()
"""


def test_an_interrupt_of_a_run_with_workers_leaves_nothing(tmp_path: Path) -> None:
    """As Ctrl-C sends it: to all processes of the terminal, but the supervisors are out of its reach."""
    (tmp_path / "test_working.py").write_text(WORKING)
    files = [tmp_path / f"begun-{number}" for number in (1, 2)]
    options = ["-n2", "-q", "-p", "no:cacheprovider", "-p", "tightship_testkit.order", f"--rootdir={tmp_path}"]
    # Where these tests run in the background SIGINT may be ignored, which a process would inherit.
    words = ["env", "--default-signal=INT", sys.executable, "-m", "pytest", *options, "-c", os.devnull]
    ours = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    out = tmp_path / "out"
    with out.open("w") as said:
        run = subprocess.Popen(
            words, cwd=tmp_path, env=ours, stdout=said, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        _until(lambda: all(each.exists() for each in files), out)
        begun = [json.loads(each.read_text()) for each in files]
        os.killpg(run.pid, signal.SIGINT)
        assert run.wait(DEADLINE) == pytest.ExitCode.INTERRUPTED, out.read_text()
    finally:
        with run:
            run.kill()
    pids = [pid for each in begun for pid in each["pids"]]
    assert len(set(pids)) == 6
    _until(lambda: all(gone(pid) for pid in pids), out)
    _until(lambda: not any(Path(each["data"]).exists() for each in begun), out)


def _until(condition: Callable[[], bool], out: Path) -> None:
    until = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < until, out.read_text()
        time.sleep(0.05)  # noqa: TID251 - between two looks at a condition with a deadline
