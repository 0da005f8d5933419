"""A command that is interrupted while Python still imports it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from tightship_testkit import commands

SLOW = """
import sys
print("loading", flush=True)
sys.stdin.readline()
def main():
    print("never")
"""


def test_an_interrupt_while_the_command_still_loads_ends_it_quietly(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(SLOW)
    program = "from tightship.process.starting import start; start('slow')"
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *(each for each in sys.path if each)])},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509 - no threads here
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"loading\n"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, b"", b"")


def test_what_a_command_imports_is_not_looked_through_for_garbage(tmp_path: Path) -> None:
    (tmp_path / "kept.py").write_text("import gc\ndef main(): print(gc.isenabled(), gc.get_freeze_count() > 1000)\n")
    program = "from tightship.process.starting import start; start('kept')"
    path = os.pathsep.join([str(tmp_path), *(each for each in sys.path if each)])
    done = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": path}, capture_output=True, check=True
    )
    assert done.stdout == b"True True\n"


def test_a_closed_output_is_named_and_a_full_disk_too(tmp_path: Path) -> None:
    for redirection, says in ((">&-", "standard output is closed"), (">/dev/full", "No space left on device")):
        line = f'exec "$0" -m node_compactor version {redirection}'
        done = subprocess.run(
            ["sh", "-c", line, sys.executable], capture_output=True, env=commands._environment(), check=False
        )
        assert done.returncode == 1
        assert says in done.stderr.decode()
        assert len(done.stderr.splitlines()) == 1


def test_closed_errors_are_no_error(tmp_path: Path) -> None:
    line = 'exec "$0" -m node_compactor version 2>&-'
    done = subprocess.run(
        ["sh", "-c", line, sys.executable], capture_output=True, env=commands._environment(), check=False
    )
    assert done.returncode == 0
    assert done.stdout.startswith(b"node-compactor ")
