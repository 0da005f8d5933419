"""Nights of the demo that have passed, and the demo as a process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tightship_simulator.demo.observations import Moment
from tightship_simulator.demo.recording import read
from tightship_simulator.demo.scene import Scene

COMMAND = [sys.executable, "-m", "tightship_simulator.demo"]
DEADLINE = 540
"""Seconds that any of it may take on a machine that is busy."""

WITHOUT_SOCKETS = [
    sys.executable,
    "-c",
    """
import os, sys
import urllib3  # it looks for IPv6 by making a socket when it is loaded
from tightship_simulator.demo.command import main

def look(event, _):
    if event.startswith("socket."):
        sys.stderr.write(f"{event}\\n")
        sys.stderr.flush()
        os._exit(99)

sys.addaudithook(look)
sys.exit(main())
""",
]
"""The same, but it ends with 99 as soon as it makes a socket."""


class Night:
    """A night that has passed: what the command printed, and the scene at the end of its record."""

    def __init__(self, record: Path, output: str) -> None:
        self.output = output
        self.record = record.read_bytes()
        options, moments = read(record)
        self.moments: list[Moment] = list(moments)
        self.scene = Scene(options.seconds, options.price)
        for moment in self.moments:
            self.scene.take(moment)

    def of(self, *kinds: type) -> list[Moment]:
        """Return the moments of observations of these kinds."""
        return [each for each in self.moments if isinstance(each.observation, kinds)]


def pass_night(record: Path, *arguments: str, command: list[str] = COMMAND, **environment: str) -> Night:
    """Run the demo to its end, which is to be a good one, and keep its *record*."""
    ended = subprocess.run(
        [*command, *arguments, "--record", str(record)],
        capture_output=True, text=True, timeout=DEADLINE, check=False, env={**os.environ, **environment},
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return Night(record, ended.stdout + ended.stderr)
