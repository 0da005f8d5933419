"""Cool-downs after what has happened."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from node_compactor.judge import cooling
from node_compactor.settings import load_settings
from tightship.cluster import Snapshot
from tightship.objects.drain_record import Finished
from tightship.objects.reasons import Reason
from tightship.planning.facts import FactRules, gather
from tightship.rules.waiting import Pause
from tightship_testkit.builders import DAY, NOW, node, snapshot

Json = dict[str, Any]

LABEL = "nodepool"
NO_PAUSES: Json = {
    "coolDownAfterNodeAdded": 0,
    "coolDownAfterFailure": 0,
    "clusterCoolDownAfterFailure": 0,
}


def two_pools(**ages: float) -> Snapshot:
    """Nodes a1, a2 of pool a and b1 of pool b, a day old unless *ages* says otherwise."""
    return snapshot(
        *(node(name, labels={LABEL: name[0]}, age=ages.get(name, DAY)) for name in ("a1", "a2", "b1")),
    )


def drained(pool: str, ending: str, ago: float, reason: str = "", by: str = "node-compactor") -> Finished:
    return Finished(node=f"{pool}9", pool=pool, controller=by, ending=ending, at=NOW - ago, reason=reason)


Pauses = Callable[[str], Pause | None]


def pauses(cluster: Snapshot, *finished: Finished, pools: Json | None = None, **settings: object) -> Pauses:
    loaded = load_settings({"nodePools": pools or {"*": {"enabled": True}}, **NO_PAUSES, **settings})
    facts = gather(cluster, FactRules(), NOW)
    return cooling(facts, finished, loaded, NOW)


def paused(found: Pauses) -> list[str]:
    return [pool for pool in ("a", "b") if found(pool) is not None]


@pytest.mark.parametrize(
    ("settings", "which"),
    [
        ({"coolDownAfterNodeAdded": "10m"}, ["a"]),
        ({"coolDownAfterNodeAdded": "5m"}, []),
        ({"clusterCoolDownAfterNodeAdded": "10m"}, ["a", "b"]),
        ({"clusterCoolDownAfterNodeAdded": "5m"}, []),
        ({}, []),
    ],
)
def test_the_newest_node_of_a_pool_is_evidence_of_a_scale_up(settings: Json, which: list[str]) -> None:
    assert paused(pauses(two_pools(a2=300.0), **settings)) == which


@pytest.mark.parametrize("ending", ["handed_over", "node_gone"])
def test_a_pause_after_a_drain_has_removed_a_node(ending: str) -> None:
    removed = drained("a", ending, 60)
    assert paused(pauses(two_pools(), removed, coolDownAfterNodeDeleted="61s")) == ["a"]
    assert paused(pauses(two_pools(), removed, coolDownAfterNodeDeleted="60s")) == []
    assert paused(pauses(two_pools(), removed, clusterCoolDownAfterNodeDeleted="61s")) == ["a", "b"]
    assert paused(pauses(two_pools(), removed, coolDownAfterFailure="61s")) == []


def test_a_pause_after_a_drain_was_given_up() -> None:
    gave_up = drained("a", "restored", 60, "PodStuck shop/web-1: late")
    assert paused(pauses(two_pools(), gave_up, coolDownAfterFailure="61s")) == ["a"]
    assert paused(pauses(two_pools(), gave_up, clusterCoolDownAfterFailure="61s")) == ["a", "b"]
    assert paused(pauses(two_pools(), gave_up, coolDownAfterNodeDeleted="61s")) == []


def test_a_siblings_drain_counts_like_ours() -> None:
    gave_up = drained("a", "restored", 60, by="node-refiner")
    assert paused(pauses(two_pools(), gave_up, coolDownAfterFailure="61s")) == ["a"]


@pytest.mark.parametrize(
    "ended",
    [
        drained("a", "restored", 60, "Released a9: the controller is stopping"),
        drained("a", "parked", 60),
        drained("a", "not_ours", 60),
    ],
    ids=["released when the controller stopped", "parked", "not ours any more"],
)
def test_what_is_neither_a_removal_nor_a_failure_pauses_nothing(ended: Finished) -> None:
    lengths = {"coolDownAfterFailure": "1h", "coolDownAfterNodeDeleted": "1h", "clusterCoolDownAfterFailure": "1h"}
    assert paused(pauses(two_pools(), ended, **lengths)) == []


def test_a_pools_own_length_takes_the_place_of_the_common_one() -> None:
    cluster = two_pools(a2=300.0, b1=300.0)
    pools = {"*": {"enabled": True}, "a": {"enabled": True, "coolDownAfterNodeAdded": 0}}
    assert paused(pauses(cluster, pools=pools, coolDownAfterNodeAdded="10m")) == ["b"]


def test_the_defaults_are_those_of_the_documentation() -> None:
    settings = load_settings({"nodePools": {"*": {"enabled": True}}})
    cluster = two_pools(a2=300.0)
    facts = gather(cluster, FactRules(), NOW)
    assert paused(cooling(facts, [], settings, NOW)) == ["a"]
    gone, failed = drained("b", "handed_over", 1), drained("b", "restored", 100)
    old = two_pools()
    facts = gather(old, FactRules(), NOW)
    assert paused(cooling(facts, [gone], settings, NOW)) == []
    assert paused(cooling(facts, [failed], settings, NOW)) == ["a", "b"]
    assert paused(cooling(facts, [drained("b", "restored", 300)], settings, NOW)) == ["b"]


def test_the_detail_says_what_happened_when_and_how_long_is_left() -> None:
    found = pauses(two_pools(a2=180.0), coolDownAfterNodeAdded="10m")("a")
    assert found is not None
    assert (found.refusal.reason, found.subject) == (Reason.COOL_DOWN, "a")
    assert found.detail == "node a2 was added to pool a 3m ago: pool a pauses for 10m, 7m left"
    everywhere = pauses(
        two_pools(), drained("a", "restored", 60, "PodStuck x: late"), clusterCoolDownAfterFailure="3m"
    )("b")
    assert everywhere is not None
    assert everywhere.detail == (
        "the drain of node a9 in pool a was given up (PodStuck x: late) 60s ago: every pool pauses for 3m, 2m left"
    )


def test_of_several_pauses_the_one_that_lasts_longest_is_told() -> None:
    gave_up = drained("a", "restored", 60)
    found = pauses(two_pools(a2=300.0), gave_up, coolDownAfterNodeAdded="10m", clusterCoolDownAfterFailure="1h")
    for pool, what in (("a", "every pool pauses for 1h"), ("b", "every pool pauses for 1h")):
        refusal = found(pool)
        assert refusal is not None
        assert what in refusal.detail


def test_a_node_from_the_future_pauses_from_now_on_and_no_longer() -> None:
    found = pauses(two_pools(a2=-500.0), coolDownAfterNodeAdded="10m")("a")
    assert found is not None
    assert found.detail.endswith("10m left")
