"""One cluster on which every reason of the refiner's is the answer for some node; ``golden_cluster.py`` says which."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from node_refiner.configuration import parse_config_map
from node_refiner.gates import GateChecks
from node_refiner.policy import Policy, demand_ahead
from tightship.core.reasons import NODE_REASONS, RUNNING_ONLY, Reason
from tightship.kube.files import read_file
from tightship.planning.cluster import Snapshot
from tightship.planning.demand import with_demand
from tightship.planning.plan import Plan, make_plan
from tightship_testkit.golden import COMPACTORS, ELSEWHERE, Folder, refusals_of, removals_of

HERE = Path(__file__).parent
GOLDEN = Folder(HERE / "golden")
EXPECTED = GOLDEN.expected


def policy_of(only: set[str] | None = None) -> Policy:
    return Policy(parse_config_map(GOLDEN.read("config.json"), {}), GOLDEN.now, only)


def planned(snapshot: Snapshot, only: set[str] | None = None) -> Plan:
    policy = policy_of(only)
    snapshot = with_demand(snapshot, demand_ahead(policy.settings))
    return make_plan(snapshot, policy.judge, policy.strategy, policy.settings.placement)


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
    policy = policy_of()
    snapshot = with_demand(read_file(GOLDEN.path / "cluster.json"), demand_ahead(policy.settings))
    facts = policy.facts(snapshot)
    ahead = policy.outlook(snapshot, facts)
    checks = GateChecks(policy.settings, snapshot, facts, ahead, GOLDEN.now)
    refusals = planned(snapshot).refusals
    assert len(ahead.turns) == 8
    for name in ahead.turns:
        closed = {check.reason for check in checks.of(name) if not check.passed}
        assert closed == {each.reason for each in refusals.get(name, ())} - {Reason.PDB_SPENT_BY_PLAN}, name
    for name, fact in facts.items():
        told = [check.name for check in checks.of(name)]
        assert told[:5] == ["order", "excess", "minimums", "plan size", "pauses"]
        assert [check.detail for check in checks.of(name) if not check.detail] == []
        assert (told[5:] == ["mark", "steering"]) == (name == "marked"), fact
