"""Passes that keep what did not change decide as passes that begin from nothing."""

import pytest

from node_refiner.judge import RefinerJudge
from node_refiner.settings import RefinerSettings
from tightship.planning.evaluate import Evaluator, evaluate
from tightship_testkit.changing import AT, histories

SEEDS = (0, 1, 2, 8, 9)
CASES = [
    RefinerSettings(excess_nodes_threshold=0, minimum_nodes=0, minimum_non_tainted_nodes=0, placement="possible"),
    RefinerSettings(excess_nodes_threshold=0, max_nodes=1, candidate_order="pods-priority"),
    RefinerSettings(excess_nodes_threshold=2, candidate_order="fewest-evictions", placement="likely"),
]


@pytest.mark.parametrize("settings", CASES)
def test_an_evaluator_that_is_kept_decides_as_a_new_one(settings: RefinerSettings) -> None:
    judge = RefinerJudge(settings)
    for history in histories(SEEDS):
        kept = Evaluator()
        for snapshot in history:
            mine, other = kept(snapshot, judge, AT), evaluate(snapshot, judge, AT)
            assert mine.plan == other.plan
            assert mine.facts == other.facts
            assert mine.gates.outlook == other.gates.outlook
            assert mine.held == other.held
            assert [mine.checks(name) for name in mine.facts] == [other.checks(name) for name in mine.facts]
