"""``docs/how-it-decides.md`` lists every strategy, and its examples are what the command prints."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tightship.planning.plan import STRATEGIES
from tightship_testkit.commands import printed

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "how-it-decides.md"
BLOCKS = re.findall(r"```console\n\$ node-compactor (.+)\n([\s\S]*?)```", PAGE.read_text())


def test_the_page_has_its_examples() -> None:
    assert len(BLOCKS) == 1


def test_the_page_lists_the_strategies_in_their_order() -> None:
    _, _, section = PAGE.read_text().partition("\n## Strategies\n")
    assert re.findall(r"^\* `(.+?)`", section.partition("\n## ")[0], flags=re.MULTILINE) == list(STRATEGIES)


@pytest.mark.parametrize(("arguments", "shown"), BLOCKS, ids=["one round"])
def test_an_example_is_what_the_command_prints(arguments: str, shown: str) -> None:
    found = printed(ROOT, "node_compactor", *shlex.split(arguments))
    assert found == shown, f"{PAGE.name} shows something else; put in what the command prints now"
