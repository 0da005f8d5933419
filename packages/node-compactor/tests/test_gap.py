"""How far a plan is from the best: the figures hold together, and each rule's cost is that of a plan without it."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
import yaml

from node_compactor.alternatives import alternatives
from node_compactor.judge import CompactorJudge
from node_compactor.settings import CompactorSettings, load_settings
from tightship.planning.cluster import Snapshot
from tightship.planning.evaluate import Horizon, evaluate
from tightship.planning.gap import Gap, measure
from tightship.planning.search.linear import solver_installed
from tightship.planning.search.strategy import SearchRules
from tightship_simulator import random_cluster
from tightship_testkit.builders import NOW as BUILT
from tightship_testkit.builders import budget, node, pod, snapshot, workload
from tightship_testkit.planning import NOW, snapshot_of

needs_solver = pytest.mark.skipif(not solver_installed(), reason="no HiGHS: pip install 'tightship[gap]'")

POOL = "cloud.google.com/gke-nodepool"
PRICE = "tightship.dev/hourly-price"


def settings_of(**more: Any) -> CompactorSettings:
    pool = {"enabled": True, "scaleDownCPURequestRatioLimit": 1.5, **more.pop("pool", {})}
    off = {"minimumNodeAge": 0, "neededMarkedTimeForRemoval": 0}
    return load_settings({"nodePools": {"*": pool}, **off, **more})


def gap_of(cluster: Snapshot, settings: CompactorSettings, now: float = BUILT, iterations: int = 60) -> Gap:
    judge = CompactorJudge(settings)
    evaluation = evaluate(cluster, judge, now)
    return measure(cluster, judge, evaluation, alternatives(settings), SearchRules(iterations=iterations))


@pytest.mark.slow
@pytest.mark.takes(25)
def test_no_plan_is_below_the_bound_whatever_the_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tightship.planning.search.bound.STEPS", 200)
    for seed in range(80):
        rng = random.Random(seed)
        cluster = random_cluster(seed)
        for each in cluster["items"]:
            if each["kind"] == "Node" and rng.random() < 0.8:
                each["metadata"].setdefault("annotations", {})[PRICE] = str(rng.choice([0, 0.1, 0.25, 1]))
        pool = {
            "scaleDownCPURequestRatioLimit": rng.choice([0.4, 0.75, 1.5]),
            "minimumNodeCount": rng.choice([0, 0, 1]),
            "scaleDownRequiredUnderutilizedNodeCount": rng.choice([0, 1, 3]),
        }
        strategy = rng.choice(["least-utilized", "fewest-nodes", "lowest-cost"])
        placement = rng.choice(["possible", "likely", "certain"])
        most = rng.choice([{}, {}, {"maximumNodesInPlan": 2}])
        gap = gap_of(snapshot_of(cluster), settings_of(pool=pool, strategy=strategy, placement=placement, **most), NOW)
        assert gap.nodes.proven <= gap.nodes.reachable <= gap.nodes.planned, f"seed {seed}"
        if gap.micros is not None:
            assert gap.micros.proven <= gap.micros.reachable <= gap.micros.planned, f"seed {seed}"
        assert all(cost.fewer >= 0 for cost in gap.costs)


@pytest.fixture
def guarded() -> Snapshot:
    """Ten half-empty nodes of which a budget keeps four, and two too full for the limit."""
    things: list[Any] = [workload(), budget("shop", allowed=0)]
    for number in range(12):
        things.append(node(f"n{number:02}", allocatable={"cpu": "4", "memory": "16Gi", "pods": "20"}))
        labels = {"labels": {"app": "shop"}} if number < 4 else {}
        things.append(pod(f"p{number:02}", on=f"n{number:02}", cpu="3500m" if number > 9 else "400m", **labels))
    return snapshot(*things)


def test_each_rule_costs_what_a_plan_without_it_keeps_less(guarded: Snapshot) -> None:
    settings = settings_of(pool={"scaleDownCPURequestRatioLimit": 0.5})
    gap = gap_of(guarded, settings)
    strict = len(evaluate(guarded, CompactorJudge(settings), BUILT).plan.removals)
    assert gap.nodes.planned == 12 - strict
    judges = {each.rule: each.judge for each in alternatives(settings).without}
    assert {each.rule for each in gap.costs} == {"budgets", "limit", "strategy", "placement likely"}
    for cost in gap.costs:
        removed = len(evaluate(guarded, judges[cost.rule], BUILT).plan.removals)
        assert cost.fewer == max(0, removed - strict), cost.rule
    assert next(each for each in gap.costs if each.rule == "budgets").fewer > 0


@needs_solver
def test_a_budget_in_force_is_in_the_bound(guarded: Snapshot) -> None:
    nodes = gap_of(guarded, settings_of(pool={"scaleDownCPURequestRatioLimit": 0.5})).nodes
    assert nodes.proven == nodes.reachable == nodes.planned


def test_a_rule_that_refuses_nothing_is_not_tried(guarded: Snapshot) -> None:
    gap = gap_of(guarded, settings_of(placement="possible", strategy="fewest-nodes"))
    assert [each.rule for each in gap.costs] == ["budgets"]


def test_a_searched_plan_is_compared_by_what_its_strategy_planned_alone(guarded: Snapshot) -> None:
    settings = settings_of(placement="possible", strategy="fewest-nodes")
    judge = CompactorJudge(settings)
    searched = evaluate(guarded, judge, BUILT, Horizon(search=SearchRules(iterations=100)))
    gap = measure(guarded, judge, searched, alternatives(settings), SearchRules(iterations=100))
    assert gap.costs == gap_of(guarded, settings).costs


def _summary(cli: Any, data: Path, *flags: Any) -> Any:
    return json.loads(cli("plan", "-f", data / "cluster.yaml", "-o", "json", *flags).out)["summary"]


def test_every_output_has_the_gap(cli: Any, data: Path, tmp_path: Path) -> None:
    prices = tmp_path / "prices.yaml"
    prices.write_text(yaml.safe_dump({"prices": [{"selector": f"{POOL} in (web,gpu)", "price": 0.2}]}))
    flags = ("--gap", "100ms", "--prices", prices)
    summary = _summary(cli, data, *flags)
    gap, nodes = summary["gap"], summary["gap"]["nodes"]
    assert nodes["proven"] <= nodes["reachable"] <= nodes["planned"] == summary["nodes"]["after"]
    assert gap["microsPerMonth"]["planned"] == summary["money"]["microsPerMonth"]["after"]
    assert gap["seconds"] == 0.1
    line = f"{nodes['planned']} planned · {nodes['reachable']} reachable · {nodes['proven']} proven"
    for form in ("table", "wide", "html"):
        text = cli("plan", "-f", data / "cluster.yaml", *flags, "-o", form).out
        assert line in text
        assert " proven a month" in text
    assert yaml.safe_load(cli("plan", "-f", data / "cluster.yaml", *flags, "-o", "yaml").out)["summary"]["gap"] == gap
    assert "gap" not in _summary(cli, data)


def test_without_a_duration_the_search_takes_ten_seconds(cli: Any, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter(range(10**9))
    monkeypatch.setattr("tightship.app.cli.commands.monotonic", lambda: float(next(ticks)))
    assert _summary(cli, data, "--gap")["gap"]["seconds"] == 10.0


def test_without_the_solver_the_line_says_how_to_install_it(
    cli: Any, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tightship.planning.search.linear.find_spec", lambda _: None)
    text = cli("plan", "-f", data / "cluster.yaml", "--gap", "100ms").out
    assert " proven" in text
    assert "pip install 'tightship[gap]'" in text
    gap = _summary(cli, data, "--gap", "100ms")["gap"]
    assert (gap["solver"], gap["installed"]) == ("ascent", False)


@needs_solver
def test_where_the_solver_finds_no_optimum_in_time_the_line_says_so(
    cli: Any, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tightship.planning.gap.solved", lambda *_: None)
    text = cli("plan", "-f", data / "cluster.yaml", "--gap", "100ms").out
    assert "the bound may be lower than need be: the cluster is too large for its solver" in text
    assert "tightship[gap]" not in text


@needs_solver
def test_with_the_solver_the_line_says_nothing_of_it(cli: Any, data: Path) -> None:
    outcome = cli("plan", "-f", data / "cluster.yaml", "--gap", "100ms")
    assert "tightship[gap]" not in outcome.out
    assert "HiGHS" not in outcome.out + outcome.err
    assert _summary(cli, data, "--gap", "100ms")["gap"]["solver"] == "highs"


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (("--gap", "soon"), "'soon' is not a duration; allowed is a duration such as 90s"),
        (("--gap", "0"), "'0' is no time to search; allowed is a duration such as 90s, 10m, 1h30m or 1d, more than 0"),
        (("--gap", "2h"), "'2h' is no time to search"),
        (("--gap", "1s", "--until-stable"), "--gap goes without --until-stable"),
    ],
)
def test_a_gap_that_can_not_be_measured_is_wrong_usage(cli: Any, data: Path, flags: Any, says: str) -> None:
    outcome = cli("plan", "-f", data / "cluster.yaml", *flags)
    assert (outcome.code, outcome.out) == (64, "")
    assert says in outcome.err
