"""The table of the README is what the command prints for the cluster that ``make plan-demo`` makes."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tightship_testkit.commands import printed

ROOT = Path(__file__).parents[3]
ELLIPSIS = "⋮"
COMMANDS = re.compile(r"```console\n\$ node-compactor (.+ -f demo/cluster\.json.*)\n([\s\S]*?)```")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("readme")
    (made / "demo").mkdir()
    printed(made, "tightship_simulator.generate", "--seed", "7", "--nodes", "40", "-o", "demo/cluster.json")
    return made


def examples() -> list[tuple[str, str]]:
    return COMMANDS.findall((ROOT / "README.md").read_text(encoding="utf-8"))


def test_the_readme_shows_a_plan_and_names_a_node_to_explain() -> None:
    assert [arguments.split()[0] for arguments, _ in examples()] == ["plan", "explain"]


@pytest.mark.parametrize(("arguments", "shown"), examples(), ids=["plan", "explain"])
def test_every_line_that_is_shown_is_printed_in_that_order(arguments: str, shown: str, folder: Path) -> None:
    rest = printed(folder, "node_compactor.cli", *shlex.split(arguments)).splitlines()
    for line in shown.splitlines():
        if line != ELLIPSIS:
            assert line in rest, f"README.md shows something else; put in what the command prints now: {line}"
            rest = rest[rest.index(line) + 1 :]
