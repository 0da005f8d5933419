"""What the pages tell people to type exists: commands with their flags, targets of make, charts with their values."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

import hpa_scaler.cli
import node_compactor.controller
import node_refiner.controller
import tightship_cli.cli

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "e2e" / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "charts").glob("*/README.md")),
]
PARSERS: Mapping[str, Any] = {
    "node-compactor": node_compactor.controller.COMMANDS.parser,
    "node-refiner": node_refiner.controller.COMMANDS.parser,
    "hpa-scaler": hpa_scaler.cli.build_parser,
    "tightship": tightship_cli.cli.build_parser,
}
OTHERS = frozenset(
    {"kubectl", "cosign", "docker", "git", "SOURCE_DATE_EPOCH=$(git", "aws", "az", "gcloud", "cd", "pipx"}
)
"""Programs of others, which this test does not judge."""
RELEASED = "oci://ghcr.io/tightship/charts/"


def commands(page: Path) -> Iterator[str]:
    """Every command of the page's consoles, its continued lines joined, without what is said beside it."""
    for block in re.findall(r"^```console\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
        for line in re.findall(r"^\$ (.*)$", block.replace("\\\n", ""), re.MULTILINE):
            yield line.partition(" # ")[0].strip()


TYPED = [(page, line) for page in PAGES for line in commands(page)]
IDS = [f"{page.parent.name}/{page.name}: {line}" for page, line in TYPED]


def words_of(line: str) -> list[str]:
    """The words of a command, up to a redirection or a pipe, the program without its folder."""
    words = shlex.split(line)
    end = next((place for place, word in enumerate(words) if word in {">", "|", "&&"}), len(words))
    return [words[0].removeprefix(".venv/bin/"), *words[1:end]]


def check_own(program: str, arguments: list[str]) -> None:
    refused: object = None
    try:
        PARSERS[program]().parse_args(arguments)
    except SystemExit as end:
        refused = end.code
    assert not refused


def check_make(arguments: list[str]) -> None:
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    assert {each for each in arguments if "=" not in each} <= targets


def check_helm(arguments: list[str]) -> None:
    known = {"install", "upgrade", "uninstall", "template", "test", "history", "rollback"}
    assert arguments[0] in known or arguments[:2] == ["dependency", "build"]
    charts = [each for each in arguments if each.startswith(("charts/", RELEASED))]
    assert len(charts) == (arguments[0] in {"install", "upgrade", "template", "dependency"})
    for chart in charts:
        file = ROOT / "charts" / Path(chart).name / "Chart.yaml"
        assert file.exists()
        if chart.startswith(RELEASED):
            version = yaml.safe_load(file.read_text(encoding="utf-8"))["version"]
            assert ("--version", version) in pairwise(arguments), "name the version that the charts have"
        for flag, value in pairwise(arguments):
            if flag == "--set":
                check_value(Path(chart).name, value.partition("=")[0])


def check_value(chart: str, key: str) -> None:
    """Walk the values of *chart* along *key*: what is below a free map is not judged here, the schema does that."""
    path = key.split(".")
    if (ROOT / "charts" / path[0]).is_dir():
        chart, path = path[0], path[1:]
    values: Any = yaml.safe_load((ROOT / "charts" / chart / "values.yaml").read_text(encoding="utf-8"))
    for step in path:
        if values == {} or (path[0] == "config" and isinstance(values, dict) and step not in values):
            return
        assert step in values, f"{chart} has no value {key}"
        values = values[step]


@pytest.mark.parametrize(("page", "line"), TYPED, ids=IDS)
def test_what_a_page_tells_to_type_exists(
    page: Path, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A price list is read with the arguments.
    monkeypatch.chdir(tmp_path)
    (tmp_path / "prices.yaml").write_text("instanceTypes: {m5.large: 0.1}\n", encoding="utf-8")
    program, *arguments = words_of(line.removeprefix("kubectl ") if line.startswith("kubectl tightship ") else line)
    if program in PARSERS:
        check_own(program, arguments)
    elif program == "make":
        check_make(arguments)
    elif program == "helm":
        check_helm(arguments)
    else:
        assert program in OTHERS, page


@pytest.mark.parametrize("wrong", ["make nonsense", "node-compactor plan --nonsense", "helm install x charts/nonsense"])
def test_what_does_not_exist_is_noticed(wrong: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program, *arguments = words_of(wrong)
    with pytest.raises(AssertionError):
        test_what_a_page_tells_to_type_exists(ROOT, wrong, tmp_path, monkeypatch)
    assert program
    assert arguments


PROMISES = (ROOT / "e2e" / "PROMISES.md").read_text(encoding="utf-8")


def test_every_test_of_a_promise_exists() -> None:
    named = re.findall(r"`([\w/.-]+\.py)(?:::(\w+))?`", PROMISES)
    assert len(named) > 30
    for path, name in named:
        found = ROOT / path
        assert found.exists(), path
        assert not name or f"def {name}(" in found.read_text(encoding="utf-8"), f"{path}::{name}"


def test_every_promise_of_safety_names_a_test() -> None:
    promises = (ROOT / "docs" / "safety.md").read_text(encoding="utf-8")
    numbers = re.findall(r"^\* \*\*(\d+)\. ", promises, flags=re.MULTILINE)
    assert len(numbers) > 30
    assert re.findall(r"^\| (\d+) \| .*\.py.* \|$", PROMISES, flags=re.MULTILINE) == numbers
