"""One cluster on which every reason of the refiner's is the answer for some node; ``golden_cluster.py`` says which."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from node_refiner.configuration import parse_config_map
from node_refiner.gates import RefinerGates
from node_refiner.judge import RefinerJudge
from tightship.core.reasons import NODE_REASONS, Reason
from tightship.files.snapshot_file import read_file
from tightship.planning.cluster import Snapshot
from tightship.planning.evaluate import Evaluation, Horizon, evaluate
from tightship.planning.plan import Plan
from tightship_testkit.golden import COMPACTORS, ELSEWHERE, RUNNING_ONLY, Folder, refusals_of, removals_of

HERE = Path(__file__).parent
GOLDEN = Folder(HERE / "golden")
EXPECTED = GOLDEN.expected


def evaluated(snapshot: Snapshot, only: set[str] | None = None) -> Evaluation[RefinerGates]:
    judge = RefinerJudge(parse_config_map(GOLDEN.read("config.json"), {}))
    return evaluate(snapshot, judge, GOLDEN.now, Horizon(only=only))


def planned(snapshot: Snapshot, only: set[str] | None = None) -> Plan:
    return evaluated(snapshot, only).plan


def test_every_node_of_the_golden_cluster_has_the_expected_answer() -> None:
    plan = planned(read_file(GOLDEN.path / "cluster.json"))
    assert removals_of(plan) == EXPECTED["removals"]
    assert refusals_of(plan) == EXPECTED["refusals"]


def test_malformed_objects_block_just_what_depends_on_them() -> None:
    plan = planned(GOLDEN.with_malformed_objects())
    assert removals_of(plan) == EXPECTED["removals"]
    assert refusals_of(plan) == EXPECTED["refusals"] | EXPECTED["refusalsWithMalformedObjects"]


def test_every_reason_is_the_answer_for_some_node() -> None:
    expected = NODE_REASONS - RUNNING_ONLY - COMPACTORS
    assert GOLDEN.reasons == expected - ELSEWHERE


def test_a_node_left_out_by_the_command_says_so_beside_all_else() -> None:
    snapshot = read_file(GOLDEN.path / "cluster.json")
    removed = {each["node"] for each in EXPECTED["removals"]}
    plan = planned(snapshot, set(snapshot.nodes) - removed)
    assert {name for name in removed if Reason.NOT_SELECTED in {each.reason for each in plan.refusals[name]}} == removed


def test_every_refusal_says_what_it_is_about() -> None:
    for found in planned(GOLDEN.with_malformed_objects()).refusals.values():
        for refusal in found:
            assert refusal.detail, refusal
            assert "None" not in refusal.detail + refusal.fix


@pytest.mark.parametrize("name", ["cluster.json", "config.json", "malformed.json", "expected.json"])
def test_the_files_are_what_their_builder_writes(name: str) -> None:
    built = runpy.run_path(str(HERE / "golden_cluster.py"))["files"]()
    assert (GOLDEN.path / name).read_text() == built[name], "run golden_cluster.py"


def test_the_gates_that_explain_shows_are_those_the_plan_obeys() -> None:
    """Of a node that could go, just those gates are closed whose reasons refuse it, but for a budget that is spent."""
    found = evaluated(read_file(GOLDEN.path / "cluster.json"))
    facts, gates, refusals = found.facts, found.gates, found.plan.refusals
    ahead = gates.outlook
    assert len(ahead.turns) == 8
    for name in ahead.turns:
        closed = {check.reason for check in gates.checks(name) if not check.open}
        assert closed == {each.reason for each in refusals.get(name, ())} - {Reason.PDB_SPENT_BY_PLAN}, name
    for name, fact in facts.items():
        told = [check.gate for check in gates.checks(name)]
        assert told[:5] == ["order", "excess", "minimums", "plan size", "pauses"]
        assert [check.detail for check in gates.checks(name) if not check.detail] == []
        assert (told[5:] == ["mark", "steering"]) == (name == "marked"), fact
