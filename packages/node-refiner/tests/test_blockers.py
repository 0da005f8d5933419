"""What each blocker costs, threshold and minimums too: followed, every piece of advice gains what it says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tightship_simulator import random_cluster
from tightship_simulator.generate import off_peak_cluster
from tightship_testkit.advice import Followed, planned_by
from tightship_testkit.builders import NOW, node, pod, when, workload

Json = dict[str, Any]

GOLDEN = Path(__file__).parent / "golden"
FLEET_TIME = "2026-11-20T03:00:00Z"


@pytest.mark.parametrize("seed", range(10))
def test_every_piece_of_advice_gains_what_it_says(cli: Any, tmp_path: Path, seed: int) -> None:
    report = Followed()
    flags = ("--threshold", "1", "--min-nodes", "1", "--min-non-tainted-nodes", "1")
    report.follow(random_cluster(seed)["items"], None, planned_by(cli, tmp_path, FLEET_TIME), {}, flags)
    assert report.broken == []


@pytest.mark.parametrize("flags", [(), ("--until-stable",)])
def test_every_piece_of_advice_about_the_golden_cluster_gains_what_it_says(
    cli: Any, tmp_path: Path, flags: tuple[str, ...]
) -> None:
    objects, settings = (json.loads((GOLDEN / name).read_text()) for name in ("cluster.json", "config.json"))
    report = Followed()
    report.follow(objects["items"], settings, planned_by(cli, tmp_path, "2026-10-01T12:00:00Z"), {}, flags)
    assert report.pieces > 1
    assert report.broken == []


@pytest.mark.slow
@pytest.mark.takes(4)
@pytest.mark.parametrize("seeds", [range(at, at + 5) for at in range(10, 30, 5)], ids=str)
def test_every_piece_of_advice_gains_what_it_says_on_twenty_fleets(cli: Any, tmp_path: Path, seeds: range) -> None:
    report, plan = Followed(), planned_by(cli, tmp_path, FLEET_TIME)
    for seed in seeds:
        report.follow(off_peak_cluster(seed, nodes=12)["items"], None, plan, {})
    assert report.pieces > 2
    assert report.broken == []


def explained(cli: Any, tmp_path: Path, objects: list[Json], name: str, *flags: str) -> tuple[Json, str]:
    (tmp_path / "one.json").write_text(json.dumps({"kind": "List", "items": objects}))
    given = ("explain", name, "-f", tmp_path / "one.json", "--now", when(NOW), *flags)
    [reported] = json.loads(cli(*given, "-o", "json").out)["nodes"]
    return reported["bundle"], cli(*given).out.partition("Smallest change")[2]


FOUR = [node(name) for name in ("n1", "n2", "n3", "n4")]


def test_no_taint_is_to_be_removed_while_other_blockers_remain(cli: Any, tmp_path: Path) -> None:
    system = node("system", taints=[{"key": "CriticalAddonsOnly", "effect": "NoSchedule"}])
    waits = pod("import", on="system", nodeSelector={"disk": "fast"})
    found, reported = explained(cli, tmp_path, [*FOUR, system, waits, workload()], "system")
    assert found["advice"] is None
    assert [each.partition(":")[0] for each in found["remains"]] == ["NoPlace shop/import"]
    assert "kubectl" not in reported


def test_the_threshold_is_lowered_only_as_far_as_the_node_needs(cli: Any, tmp_path: Path) -> None:
    found, reported = explained(cli, tmp_path, FOUR[:3], "n1", "--threshold", "5")
    assert found["advice"]["flags"] == ["--threshold 3"]
    assert 'config: {"excessNodesThreshold":3}' in reported


def test_the_minimums_are_lowered_only_as_far_as_a_plan_needs(cli: Any, tmp_path: Path) -> None:
    plan = planned_by(cli, tmp_path, when(NOW))
    found = plan(FOUR, None, ("--threshold", "3", "--min-nodes", "4"))["advice"]["changes"]
    alone = [each for each in found if [change["reason"] for change in each["changes"]] == ["MinNodes"]]
    assert [(each["gain"]["nodes"], each["flags"]) for each in alone] == [(2, ["--min-nodes 2"])]
    assert [each["values"] for each in alone] == [
        'config: {"minimumNodeCount":2}  # only without --min-nodes: the flag wins'
    ]
