"""The command ``tightship``: the commands of all controllers under one name, with all that they can print."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from tightship_cli.cli import command
from tightship_testkit import commands
from tightship_testkit.commands import Outcome

PACKAGES = Path(__file__).resolve().parents[2]
NODES = PACKAGES / "node-compactor" / "tests" / "data" / "cluster.yaml"
FLOORS = PACKAGES / "hpa-scaler" / "tests" / "data"
QUICK = ("-f", str(NODES), "--advice-time", "0")

Cli = Callable[..., Outcome]


@pytest.fixture
def cli(capfdbinary: pytest.CaptureFixture[bytes]) -> Cli:
    return lambda *given: commands.call("tightship", command, capfdbinary.readouterr, given)


def floors(*given: str) -> tuple[str, ...]:
    files = ("-f", str(FLOORS / "shop.yaml"), "--outcomes", str(FLOORS / "outcomes.json"))
    return ("floors", "plan", *files, "--now", commands.NOW, *given)


def test_each_controller_answers_under_its_word(cli: Cli) -> None:
    assert "web-1" in cli("plan", *QUICK).out
    assert cli("explain", *QUICK, "web-1").out.count("Node web-1")
    refined = cli("refine", "plan", *QUICK, "--now", commands.NOW)
    assert "Excess" in refined.out
    assert "ControlledByOther" in cli(*floors()).out


def test_nothing_here_runs_a_controller(cli: Cli) -> None:
    for words in (("run",), ("refine", "run"), ("floors", "run"), ("floors", "release")):
        assert cli(*words).code == 64


@pytest.mark.parametrize("word", ["refine", "floors"])
def test_a_word_without_a_command_prints_its_own_help(cli: Cli, word: str) -> None:
    outcome = cli(word)
    assert outcome.code == 64
    assert outcome.err.startswith(f"usage: tightship {word} ")


def test_names_are_those_of_what_would_change_in_its_order(cli: Cli) -> None:
    plan = msgspec.json.decode(cli("plan", *QUICK, "-o", "json").out)
    removed = sorted((node["order"], node["name"]) for node in plan["nodes"] if node["decision"] == "remove")
    assert cli("plan", *QUICK, "-o", "name").out.split() == [f"node/{name}" for _, name in removed]
    plan = msgspec.json.decode(cli(*floors("-o", "json")).out)
    moved = [f"{hpa['namespace']}/{hpa['name']}" for hpa in plan["hpas"] if hpa["action"] in ("raise", "lower")]
    assert moved
    assert cli(*floors("-o", "name")).out.split() == moved


def test_csv_has_a_row_for_each_node_and_hpa_with_the_values_of_the_json(cli: Cli) -> None:
    plan = msgspec.json.decode(cli("plan", *QUICK, "-o", "json").out)
    rows = list(csv.DictReader(io.StringIO(cli("plan", *QUICK, "-o", "csv").out)))
    assert [row["name"] for row in rows] == [node["name"] for node in plan["nodes"]]
    for row, node in zip(rows, plan["nodes"], strict=True):
        assert row["cpuMilli.requested"] == str(node["cpuMilli"]["requested"])
        assert row["reasons"] == " ".join(node["reasons"])
        assert row["moves"] == (str(len(node["moves"])) if node["moves"] else "")
        assert row["ready"] == str(node["ready"]).lower()
    assert len(list(csv.DictReader(io.StringIO(cli(*floors("-o", "csv")).out)))) > 1
    assert len(cli("plan", *QUICK, "-o", "csv", "--no-headers").out.splitlines()) == len(rows)


def test_formats_of_rows_leave_warnings_to_stderr(cli: Cli) -> None:
    for form in ("csv", "name"):
        assert "minimum size" in cli("plan", *QUICK, "-o", form).err


def test_markdown_is_a_table_whose_cells_are_text(cli: Cli) -> None:
    out = cli("plan", *QUICK, "-o", "markdown").out
    rows = [line for line in out.splitlines() if line.startswith("|")]
    assert rows[0].startswith("| NODE | POOL |")
    assert {row.replace("\\|", "").count("|") for row in rows} == {rows[0].count("|")}
    assert "remove \\#1" in out
    assert out.count("```") % 2 == 0
    assert out.index("Nodes  ") < out.index("<details>") < out.index("| NODE |")
    reported = cli("explain", *QUICK, "web-1", "-o", "markdown").out
    assert reported.count("### ") > 3
    assert reported.count("```") % 2 == 0


def test_diff_tells_which_nodes_two_plans_decide_differently(cli: Cli, tmp_path: Path) -> None:
    before, after = tmp_path / "before.json", tmp_path / "after.json"
    before.write_text(cli("plan", *QUICK, "-o", "json").out)
    after.write_text(cli("plan", *QUICK, "-o", "json", "--disable-rule", "NotReplicated").out)
    found = msgspec.json.decode(cli("diff", before, after, "-o", "json").out)
    changed = [(node["name"], node["before"], node["after"]) for node in found["nodes"]]
    assert changed == [("batch-2", "keep", "remove")]
    assert found["before"]["nodes"]["removed"] + 1 == found["after"]["nodes"]["removed"]
    assert cli("diff", before, after, "--exit-code").code == 2
    assert cli("diff", before, before, "--exit-code").code == 0
    assert "no node is decided otherwise" in cli("diff", after, after).out
    assert "| batch-2 | batch | keep | remove |" in cli("diff", before, after, "-o", "markdown").out


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "is empty"),
        (b"[" * 100_000, "Expected `object`, got `array`"),
        (b'{"kind": "Pod"}', "Invalid value 'Pod'"),
        (b'{"kind": "NodePlan", "apiVersion": "v1"}', "Invalid enum value 'v1'"),
        (b"\x1f\x8b\x00", "damaged gzip data"),
    ],
)
def test_a_file_that_is_no_plan_is_one_line(cli: Cli, tmp_path: Path, content: bytes, complaint: str) -> None:
    (tmp_path / "bad").write_bytes(content)
    outcome = cli("diff", tmp_path / "bad", tmp_path / "bad")
    assert (outcome.code, outcome.out) == (1, "")
    assert complaint in outcome.err
    assert len(outcome.err.splitlines()) == 1
    assert "allowed is what `plan -o json` writes" in outcome.err
