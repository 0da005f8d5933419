"""Advice plans only what a change can touch again, and comes to what a whole plan does."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from node_refiner.advice import RefinerChanges
from node_refiner.settings import RefinerSettings
from tightship.advice.adviser import Standing
from tightship.advice.catalogue import Catalogue
from tightship.cli.snapshot_file import read_file
from tightship.planning.changes import Scenario
from tightship.planning.evaluate import evaluate
from tightship_simulator.generate import off_peak_cluster
from tightship_simulator.random_clusters import random_cluster

NOW = 1_795_143_600.0


@pytest.mark.takes(15)
def test_a_try_comes_to_what_a_whole_plan_does(tmp_path: Path) -> None:
    tries = 0
    for objects in (off_peak_cluster(7, 40), *map(random_cluster, range(30))):
        path = tmp_path / "cluster.json"
        path.write_bytes(msgspec.json.encode(objects))
        changes, snapshot = RefinerChanges(RefinerSettings()), read_file(path)
        judge = changes.judge(changes.settings)
        base = evaluate(snapshot, judge, NOW)
        catalogue, standing = Catalogue(snapshot, base, changes), Standing(base, judge, None)
        for each in {catalogue.all_of(name, refusals) for name, refusals in base.plan.refusals.items()}:
            made = tuple(sorted(each or (), key=lambda one: (one.reason, one.thing)))
            plan = standing.planned(made) if made else None
            if plan is not None:
                after = Scenario(snapshot, changes.settings).after(made)
                whole = evaluate(after.snapshot, changes.judge(after.settings), NOW).plan
                assert [one.node for one in plan.removals] == [one.node for one in whole.removals], made
                tries += 1
    assert tries > 10
