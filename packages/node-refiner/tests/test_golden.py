"""One cluster on which every reason of the refiner's is the answer for some node; ``golden_cluster.py`` says which."""

from __future__ import annotations

from pathlib import Path

from node_refiner.controller import load_settings
from node_refiner.judge import RefinerJudge
from tightship.cluster import Snapshot
from tightship.objects.reasons import Reason
from tightship.planning.evaluate import Evaluation, Horizon, evaluate
from tightship_testkit.golden import COMPACTORS
from tightship_testkit.golden_suite import GoldenSuite

HERE = Path(__file__).parent


class TestGoldenCluster(GoldenSuite):
    here = HERE
    others = COMPACTORS

    def evaluated(self, snapshot: Snapshot, horizon: Horizon = Horizon()) -> Evaluation:
        judge = RefinerJudge(load_settings(self.golden.read("config.json")))
        return evaluate(snapshot, judge, self.golden.now, horizon)


def test_the_gates_that_explain_shows_are_those_the_plan_obeys() -> None:
    """Of a node that could go, just those gates are closed whose reasons refuse it, but for a budget that is spent."""
    suite = TestGoldenCluster()
    found = suite.evaluated(suite.cluster)
    facts, gates, refusals = found.facts, found.gates, found.plan.refusals
    ahead = gates.outlook
    assert len(ahead.turns) == 8
    for name in ahead.turns:
        closed = {check.reason for check in gates.checks(name) if not check.open}
        assert closed == {each.reason for each in refusals.get(name, ())} - {Reason.PDB_SPENT_BY_PLAN}, name
    for name, fact in facts.items():
        reported = [check.gate for check in gates.checks(name)]
        assert reported[:5] == ["order", "excess", "minimums", "plan size", "pauses"]
        assert [check.detail for check in gates.checks(name) if not check.detail] == []
        assert (reported[5:] == ["mark", "steering"]) == (name == "marked"), fact
