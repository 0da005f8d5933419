"""The examples of the pages are what the command prints."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tightship_testkit.commands import printed

ROOT = Path(__file__).parents[3]
PAGES = ("docs/migration-node-refiner.md",)
EXAMPLE = re.compile(r"```console\n\$ (?:\.venv/bin/)?node-refiner (.+)\n([\s\S]*?)```")


@pytest.mark.parametrize("page", PAGES)
def test_an_example_is_what_the_command_prints(page: str) -> None:
    [(arguments, shown)] = EXAMPLE.findall((ROOT / page).read_text())
    found = printed(ROOT, "node_refiner", *shlex.split(arguments))
    assert found == shown, f"{page} shows something else; put in what the command prints now"
