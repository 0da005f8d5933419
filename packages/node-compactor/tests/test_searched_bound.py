"""What a searched plan says of the best one: a bound that no plan goes below, and the setting that costs most."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
import yaml

from node_compactor.judge import CompactorJudge
from node_compactor.settings import CompactorSettings, load_settings
from tightship.documents.build import search_summary
from tightship.planning.evaluate import Horizon, evaluate
from tightship.planning.plan import SearchRules
from tightship.planning.plan.model import Searched
from tightship.planning.solver import solver_installed
from tightship.search import search
from tightship_simulator import random_cluster
from tightship_testkit.builders import NOW as BUILT
from tightship_testkit.builders import budget, node, pod, snapshot, when, workload
from tightship_testkit.planning import NOW, snapshot_of

needs_solver = pytest.mark.skipif(not solver_installed(), reason="no HiGHS: pip install 'tightship[solver]'")

POOL = "cloud.google.com/gke-nodepool"
SOLVER = "pip install 'tightship[solver]'"


def settings_of(**more: Any) -> CompactorSettings:
    pool = {"enabled": True, "scaleDownCPURequestRatioLimit": 1.5, **more.pop("pool", {})}
    off = {"minimumNodeAge": 0, "neededMarkedTimeForRemoval": 0, "placement": "possible"}
    return load_settings({"nodePools": {"*": pool}, **off, **more})


@pytest.mark.slow
@pytest.mark.takes(20)
def test_no_searched_plan_is_below_the_bound_whatever_the_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tightship.search.bound.STEPS", 200)
    solved = 0
    for seed in range(80):
        rng = random.Random(seed)
        pool = {
            "scaleDownCPURequestRatioLimit": rng.choice([0.4, 0.75, 1.5]),
            "minimumNodeCount": rng.choice([0, 0, 1]),
            "scaleDownRequiredUnderutilizedNodeCount": rng.choice([0, 1, 3]),
        }
        most = rng.choice([{}, {}, {"maximumNodesInPlan": 2}])
        settings = settings_of(pool=pool, strategy=rng.choice(["least-utilized", "fewest-nodes"]), **most)
        cluster = snapshot_of(random_cluster(seed))
        horizon = Horizon(search=SearchRules(iterations=60, solving=60.0))
        plan = evaluate(cluster, CompactorJudge(settings), NOW, horizon, improve=search).plan
        assert plan.searched is not None
        assert plan.searched.bound <= len(cluster.nodes) - len(plan.removals), f"seed {seed}"
        solved += plan.searched.solved
    assert solved > 0 or not solver_installed()


ITEMS = [workload(), budget("shop", allowed=0)]
"""Ten half-empty nodes of which a budget keeps four, and two too full for a limit of a half."""
for number in range(12):
    ITEMS.append(node(f"n{number:02}", allocatable={"cpu": "4", "memory": "16Gi", "pods": "20"}))
    guarded = {"labels": {"app": "shop"}} if number < 4 else {}
    ITEMS.append(pod(f"p{number:02}", on=f"n{number:02}", cpu="3500m" if number > 9 else "400m", **guarded))


def searched(**settings: Any) -> Searched:
    horizon = Horizon(search=SearchRules(iterations=60, **settings))
    found = evaluate(snapshot(*ITEMS), CompactorJudge(settings_of()), BUILT, horizon, improve=search).plan.searched
    assert found is not None
    return found


@needs_solver
def test_the_solver_proves_what_the_search_alone_does_not() -> None:
    alone, solved = searched(), searched(solving=60.0)
    assert not alone.solved
    assert solved.solved
    assert alone.bound < solved.bound == len(ITEMS[2::2]) - solved.removed
    assert (alone.removed, alone.iterations) == (solved.removed, solved.iterations)


def written(items: list[Any], folder: Path) -> Path:
    path = folder / "cluster.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    return path


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    return written(ITEMS, tmp_path)


def of_search(cli: Any, cluster: Path, *flags: Any) -> Any:
    flags = ("--search", "100ms", "-o", "json", *flags)
    return json.loads(cli("plan", "-f", cluster, "--now", when(BUILT), *flags).out)["summary"]["search"]


def test_the_setting_that_costs_most_costs_what_a_plan_without_it_keeps_less(cli: Any, cluster: Path) -> None:
    limit = ("--limit", "0.05", "--placement", "possible")
    found = of_search(cli, cluster, *limit)["costliest"]
    assert [each["reason"] for each in found["changes"]] == ["NotUnderutilized"]
    removed = [
        json.loads(cli("plan", "-f", cluster, "--now", when(BUILT), "-o", "json", "--advice-time", "0", *flags).out)[
            "summary"
        ]["nodes"]
        for flags in (limit, ("--placement", "possible", *found["flags"][0].split()))
    ]
    assert found["gain"]["nodes"] == removed[1]["removed"] - removed[0]["removed"] > 0


@pytest.mark.parametrize(("limited", "floored", "named"), [(4, 2, "NotUnderutilized"), (2, 4, "PoolMinSize")])
def test_of_several_settings_the_one_that_frees_most_is_named(
    cli: Any, tmp_path: Path, limited: int, floored: int, named: str
) -> None:
    items = [workload(), node("big", allocatable={"cpu": "64", "memory": "256Gi", "pods": "110"})]
    for pool, many in (("limited", limited), ("floored", floored)):
        for number in range(many):
            name = f"{pool}-{number}"
            items += [node(name, labels={POOL: pool}), pod(name, on=name, cpu="400m")]
    pools = {
        "limited": {"enabled": True, "scaleDownCPURequestRatioLimit": 0.05},
        "floored": {"enabled": True, "scaleDownCPURequestRatioLimit": 0.5, "minimumNodeCount": floored},
    }
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"nodePools": pools}))
    found = of_search(cli, written(items, tmp_path), "--config", config)["costliest"]
    assert {each["reason"] for each in found["changes"]} == {named}
    assert found["gain"]["nodes"] == max(limited, floored)


def test_the_strategy_may_be_the_setting_that_costs_most(cli: Any, tmp_path: Path) -> None:
    def sized(name: str, cpu: int) -> Any:
        return node(name, allocatable={"cpu": f"{cpu}", "memory": "64Gi", "pods": "110"})

    # By ratio the large node goes first, and its pods fill four small ones that could have gone instead.
    items = [workload(), sized("large", 16), *(pod(f"large-{each}", on="large", cpu="800m") for each in range(8))]
    for name in ("a", "b", "c", "d"):
        items += [sized(name, 4), pod(name, on=name, cpu="2")]
    found = of_search(cli, written(items, tmp_path), "--limit", "1.5", "--workload-pause", "0")
    assert found["greedy"]["nodesAfter"] == 4
    assert found["costliest"]["flags"] == ["--strategy fewest-nodes"]
    assert found["costliest"]["gain"]["nodes"] == 3


@pytest.mark.parametrize("flags", [("--advice-time", "0"), ("--limit", "1.5")], ids=["no time", "nothing to loosen"])
def test_without_time_or_a_setting_that_costs_a_node_none_is_named(cli: Any, cluster: Path, flags: Any) -> None:
    assert of_search(cli, cluster, *flags)["costliest"] is None
    assert "costs most" not in cli("plan", "-f", cluster, "--now", when(BUILT), "--search", "100ms", *flags).out


def test_every_output_has_the_bound_and_the_setting(cli: Any, cluster: Path) -> None:
    flags = ("plan", "-f", cluster, "--now", when(BUILT), "--search", "100ms", "--limit", "0.05")
    reported = json.loads(cli(*flags, "-o", "json").out)["summary"]["search"]
    for form in ("table", "wide", "html", "markdown"):
        text = cli(*flags, "-o", form).out
        assert f"no plan of one round keeps fewer than {reported['bound']}" in text
        assert "the setting behind NotUnderutilized costs most" in text
    assert yaml.safe_load(cli(*flags, "-o", "yaml").out)["summary"]["search"]["bound"] == reported["bound"]


@pytest.mark.parametrize(
    "broken",
    [("tightship.planning.solver.find_spec", None), ("tightship.search.strategy.solved_bound", None)],
    ids=["not installed", "out of time"],
)
def test_without_an_answer_of_the_solver_the_line_says_how_to_get_one(
    cli: Any, cluster: Path, monkeypatch: pytest.MonkeyPatch, broken: tuple[str, None]
) -> None:
    monkeypatch.setattr(broken[0], lambda *_: broken[1])
    assert SOLVER in cli("plan", "-f", cluster, "--now", when(BUILT), "--search", "100ms", "--limit", "1.5").out
    assert of_search(cli, cluster, "--limit", "1.5")["solver"] == "ascent"


@needs_solver
def test_with_the_solver_the_line_says_nothing_of_it(cli: Any, cluster: Path) -> None:
    outcome = cli("plan", "-f", cluster, "--now", when(BUILT), "--search", "100ms", "--limit", "1.5")
    assert SOLVER not in outcome.out
    assert "HiGHS" not in outcome.out + outcome.err
    assert of_search(cli, cluster, "--limit", "1.5")["solver"] == "highs"


def test_where_the_plan_reaches_the_bound_nothing_is_said_of_a_solver(
    cli: Any, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tightship.search.strategy.solved_bound", None)
    reported = of_search(cli, data / "cluster.yaml")
    assert reported["bound"] == reported["searched"]["nodesAfter"]
    assert SOLVER not in cli("plan", "-f", data / "cluster.yaml", "--search", "100ms").out


@pytest.mark.parametrize(("virtual", "unreadable", "bound"), [(0, 0, 6), (1, 0, 5), (0, 1, 7), (1, 1, 6)], ids=str)
def test_nodes_that_can_not_be_read_stay_and_virtual_ones_are_none(virtual: int, unreadable: int, bound: int) -> None:
    reported = Searched(1.0, 5, greedy_removed=1, greedy_evictions=1, removed=2, evictions=2, bound=6)
    nodes = 10 + unreadable
    found = search_summary(reported, nodes, known=10 + virtual)
    assert found is not None
    assert (found.bound, found.searched.nodes_after) == (bound, nodes - 2)
