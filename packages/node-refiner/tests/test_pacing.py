"""Pauses: after a node was added, while a drain is under way, after one has ended."""

from __future__ import annotations

import json
from typing import Any

import pytest

from node_refiner.judge import cooling
from node_refiner.settings import RefinerSettings
from tightship.objects.drain_record import Finished
from tightship.objects.reasons import Reason
from tightship.planning.facts import FactRules, gather
from tightship.rules.waiting import Pause
from tightship_testkit.builders import DAY, NOW, node, snapshot, when

Json = dict[str, Any]

SETTINGS = RefinerSettings(time_gap=600.0, time_since_last_addition=3600.0)


def held(*nodes: Json, finished: tuple[Finished, ...] = (), settings: RefinerSettings = SETTINGS) -> Pause | None:
    facts = gather(snapshot(*(nodes or (node(),))), FactRules(), NOW)
    return cooling(facts, settings, NOW, finished)


def ended(ago: float, ending: str = "handed_over", controller: str = "node-refiner", reason: str = "") -> Finished:
    return Finished(node="gone", pool="", controller=controller, ending=ending, at=NOW - ago, reason=reason)


def drain(phase: str, ago: float, controller: str = "node-refiner") -> Json:
    record = {"v": 1, "op": "a", "controller": controller, "phase": phase, "since": {"Claimed": when(NOW - ago)}}
    return {"tightship.dev/drain": json.dumps(record)}


@pytest.mark.parametrize(("age", "pauses"), [(3599, True), (3600, False), (DAY, False)])
def test_the_newest_node_of_the_cluster_is_waited_for(age: float, pauses: bool) -> None:
    found = held(node("n1"), node("new", age=age), node("n2", age=2 * DAY))
    assert (found is not None) == pauses


def test_a_tainted_or_broken_node_was_added_all_the_same() -> None:
    assert held(node("n1"), node("new", age=60, ready="False", unschedulable=True)) is not None


def test_a_node_from_the_future_pauses_from_now_on_and_no_longer() -> None:
    found = held(node("new", age=-500.0))
    assert found is not None
    assert (
        found.detail == "node new was added 0s ago: no node is drained for 1h (clusterCoolDownAfterNodeAdded), 1h left"
    )


@pytest.mark.parametrize("controller", ["node-refiner", "node-compactor"])
@pytest.mark.parametrize(
    ("ending", "reason"),
    [
        ("handed_over", ""),
        ("node_gone", ""),
        ("not_ours", ""),
        ("restored", "PdbExhausted shop/web-1: no"),
        ("restored", "Released n1: the controller is stopping"),
    ],
)
def test_the_gap_counts_from_the_end_of_every_drain(ending: str, reason: str, controller: str) -> None:
    assert held(finished=(ended(599, ending, controller, reason),)) is not None
    assert held(finished=(ended(600, ending, controller, reason),)) is None


@pytest.mark.parametrize("phase", ["Claimed", "Evicting", "Drained", "Restoring", "Yielded"])
@pytest.mark.parametrize("controller", ["node-refiner", "node-compactor"])
def test_the_gap_counts_from_the_claim_of_a_drain_under_way(phase: str, controller: str) -> None:
    assert held(node(notes=drain(phase, 599, controller))) is not None
    assert held(node(notes=drain(phase, 600, controller))) is None


@pytest.mark.parametrize("phase", ["Marked", "Backoff"])
def test_a_note_on_a_node_is_no_drain(phase: str) -> None:
    assert held(node(notes=drain(phase, 60))) is None


def test_the_last_of_several_drains_counts() -> None:
    found = held(finished=(ended(700), ended(60), ended(500)))
    assert found is not None
    assert (found.refusal.reason, found.subject) == (Reason.COOL_DOWN, "cluster")
    assert (
        found.detail
        == "the drain of node gone ended 60s ago: no node is drained for 10m (clusterCoolDownAfterDrain), 9m left"
    )


def test_of_several_pauses_the_one_that_lasts_longest_is_told() -> None:
    found = held(node("new", age=120.0), finished=(ended(60),))
    assert found is not None
    assert found.detail.startswith("node new was added 2m ago")


def test_pauses_of_no_length_pause_nothing() -> None:
    none = RefinerSettings(time_gap=0.0, time_since_last_addition=0.0)
    assert held(node(age=0, notes=drain("Evicting", 0)), finished=(ended(0),), settings=none) is None


def test_an_empty_cluster_pauses_nothing() -> None:
    assert cooling({}, SETTINGS, NOW) is None
