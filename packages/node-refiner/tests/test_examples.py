"""The examples of the pages are what the command prints."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGES = ("docs/migration-node-refiner.md",)
EXAMPLE = re.compile(r"```console\n\$ (?:\.venv/bin/)?node-refiner (.+)\n([\s\S]*?)```")


@pytest.mark.parametrize("page", PAGES)
def test_an_example_is_what_the_command_prints(page: str) -> None:
    [(arguments, shown)] = EXAMPLE.findall((ROOT / page).read_text())
    done = subprocess.run(
        [sys.executable, "-m", "node_refiner.cli", *shlex.split(arguments)],
        cwd=ROOT,
        env={**os.environ, "COLUMNS": "120", "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == shown, f"{page} shows something else; put in what the command prints now"
