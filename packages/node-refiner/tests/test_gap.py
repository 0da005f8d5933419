"""How far a refiner's plan is from the best, beside its threshold."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from node_refiner.alternatives import alternatives
from node_refiner.judge import RefinerJudge
from node_refiner.settings import RefinerSettings
from tightship.planning.evaluate import evaluate
from tightship.planning.gap import measure
from tightship.planning.search.strategy import SearchRules
from tightship_simulator import random_cluster
from tightship_testkit.planning import NOW, snapshot_of


@pytest.mark.takes(10)
def test_no_plan_is_below_the_bound_which_the_threshold_does_not_raise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tightship.planning.search.bound.STEPS", 200)
    for seed in range(40):
        cluster = snapshot_of(random_cluster(seed))
        bounds = set()
        for threshold in (0.0, 2.0):
            settings = RefinerSettings(excess_nodes_threshold=threshold, minimum_nodes=1, minimum_non_tainted_nodes=0)
            judge = RefinerJudge(settings)
            evaluation = evaluate(cluster, judge, NOW)
            gap = measure(cluster, judge, evaluation, alternatives(settings), SearchRules(iterations=40))
            assert gap.nodes.proven <= gap.nodes.reachable <= gap.nodes.planned, f"seed {seed}"
            bounds.add(gap.nodes.proven)
        assert len(bounds) == 1, f"seed {seed}"


def test_the_threshold_is_one_of_the_rules_whose_cost_is_measured(cli: Any, cluster: Path) -> None:
    summary = json.loads(cli("plan", "-f", cluster, "--threshold", "99", "--gap", "100ms", "-o", "json").out)["summary"]
    nodes, costs = summary["gap"]["nodes"], {each["rule"]: each["fewer"] for each in summary["gap"]["rules"]}
    assert nodes["planned"] == summary["nodes"]["before"]
    assert 0 < costs["threshold"] <= nodes["planned"] - nodes["proven"]
    assert "your threshold" in cli("plan", "-f", cluster, "--threshold", "99", "--gap", "100ms").out


def test_minimum_and_plan_size_raise_the_bound(cli: Any, cluster: Path) -> None:
    def nodes(*flags: str) -> tuple[int, int, int]:
        told = cli("plan", "-f", cluster, "--threshold", "0", "--gap", "100ms", "-o", "json", *flags).out
        summary = json.loads(told)["summary"]
        found = summary["gap"]["nodes"]
        return summary["nodes"]["before"], found["planned"], found["proven"]

    before, planned, proven = nodes("--max-nodes", "1")
    assert proven == planned == before - 1
    before, planned, proven = nodes("--min-nodes", str(before))
    assert proven == planned == before
