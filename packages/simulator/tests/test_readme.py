"""What pages show of a plan is what the command prints for the cluster that ``make plan-demo`` makes."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tightship_testkit.commands import printed

ROOT = Path(__file__).parents[3]
ELLIPSIS = "⋮"
COMMANDS = re.compile(r"```console\n\$ (?:tightship|node-compactor) (.+ -f demo/cluster\.json.*)\n([\s\S]*?)```")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("readme")
    (made / "demo").mkdir()
    printed(made, "tightship_simulator.generate", "--seed", "7", "--nodes", "40", "-o", "demo/cluster.json")
    return made


PAGES = {"README.md": ["plan", "explain"], "docs/README.md": ["plan"], "docs/money.md": ["plan", "explain"]}
"""Commands of which each page shows what they print."""


def examples(page: str) -> list[tuple[str, str]]:
    return COMMANDS.findall((ROOT / page).read_text(encoding="utf-8"))


@pytest.mark.parametrize("page", PAGES)
def test_a_page_shows_a_plan(page: str) -> None:
    assert [arguments.split()[0] for arguments, _ in examples(page)] == PAGES[page]


def test_the_readme_shows_the_plan_of_make_plan_demo() -> None:
    arguments, _ = examples("README.md")[0]
    assert f"@$(BIN)/tightship {arguments}\n" in (ROOT / "Makefile").read_text(encoding="utf-8")


@pytest.mark.takes(5)
@pytest.mark.parametrize(("page", "number"), [(page, number) for page in PAGES for number in range(len(PAGES[page]))])
def test_every_line_that_is_shown_is_printed_in_that_order(page: str, number: int, folder: Path) -> None:
    arguments, shown = examples(page)[number]
    rest = printed(folder, "node_compactor", *shlex.split(arguments)).splitlines()
    for line in shown.splitlines():
        if line != ELLIPSIS:
            assert line in rest, f"{page} shows something else; put in what the command prints now: {line}"
            rest = rest[rest.index(line) + 1 :]
