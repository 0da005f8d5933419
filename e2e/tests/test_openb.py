"""Plans on a published cluster of 1,523 nodes, held against the independent checker."""

from __future__ import annotations

import gzip
import json
import os
import random
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from node_refiner.judge import RefinerJudge
from node_refiner.settings import RefinerSettings
from tightship.planning.evaluate import evaluate
from tightship.planning.plan import STRATEGIES, Placement, Plan, make_plan
from tightship_simulator import check
from tightship_testkit.client import Json
from tightship_testkit.planning import NOW, judge, plain, snapshot_of

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("openb"), pytest.mark.takes(3)]

FILE = "openb_cluster.json.gz"


@cache
def found() -> Path | None:
    root = Path(__file__).resolve().parents[2]
    places = [Path(os.environ.get("TIGHTSHIP_DATA", root / ".." / "shared" / "data"))]
    return next((place / FILE for place in places if (place / FILE).exists()), None)


@pytest.fixture(scope="module")
def openb() -> Json:
    path = found()
    if path is None:
        pytest.skip(f"{FILE} is absent: let TIGHTSHIP_DATA name the folder that holds it")
    cluster: Json = json.loads(gzip.decompress(path.read_bytes()))
    for item in cluster["items"]:
        if item["kind"] == "Pod":
            # The published pods have no controllers; vouched for, they may move all the same.
            item["metadata"]["annotations"] = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"}
    return cluster


@pytest.fixture(scope="module")
def planned(openb: Json) -> Callable[[str, Placement], Plan]:
    """Plan once with each strategy and placement."""
    snapshot = snapshot_of(openb)
    return cache(lambda strategy, placement: make_plan(snapshot, judge, STRATEGIES[strategy], placement))


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("placement", ["possible", "likely"])
def test_a_plan_of_a_large_cluster_passes_the_independent_checker(
    openb: Json, planned: Callable[[str, Placement], Plan], strategy: str, placement: Placement
) -> None:
    plan = planned(strategy, placement)
    assert plan.evictions > 100
    findings = check(openb, plain(plan), straight=placement == "possible")
    assert findings.wrong == []
    assert (findings.removals, findings.moves) == (len(plan.removals), plan.evictions)


# Each order once and each placement once: all of both on small clusters in node-refiner's test_invariants.py.
@pytest.mark.parametrize(
    ("order", "placement"), [("score", "possible"), ("fewest-evictions", "likely"), ("pods-priority", "likely")]
)
def test_the_refiners_plan_passes_the_independent_checker(openb: Json, order: Any, placement: Placement) -> None:
    settings = RefinerSettings(candidate_order=order, placement=placement, excess_nodes_threshold=500.0)
    found = evaluate(snapshot_of(openb), RefinerJudge(settings), NOW)
    planned = [each.node for each in found.plan.removals]
    assert len(planned) > 100
    assert planned == list(found.gates.outlook.turns)[: len(planned)]
    findings = check(openb, plain(found.plan), straight=placement == "possible")
    assert findings.wrong == []


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_plan_of_a_large_cluster_does_not_depend_on_the_order_of_the_input(
    openb: Json, planned: Callable[[str, Placement], Plan], strategy: str
) -> None:
    items = list(openb["items"])
    random.Random(strategy).shuffle(items)
    first = planned(strategy, "possible")
    plan = make_plan(snapshot_of({**openb, "items": items}), judge, STRATEGIES[strategy], "possible")
    assert (plain(plan), plan.refusals) == (plain(first), first.refusals)
