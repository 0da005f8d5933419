"""What counts as coming back to the node in drain."""

from __future__ import annotations

from typing import Any

from tightship.drain.assessment import Returning
from tightship.objects import Pod
from tightship.objects.reasons import Reason
from tightship_testkit import builders
from tightship_testkit.builders import NOW, controller, snapshot, workload

ONE = snapshot({**workload(), "spec": {"replicas": 1}})
THREE = snapshot({**workload(), "spec": {"replicas": 3}})


def pod(name: str, **more: Any) -> Pod:
    raw = builders.pod(name, **more)
    raw["metadata"]["uid"] = f"uid-{name}"
    return builders.decoded(raw)


def test_pods_that_were_there_before_the_first_eviction_go_one_after_the_other() -> None:
    drain, pods = Returning(), [pod("web-1"), pod("web-2"), pod("web-3")]
    for each in (0, 1, 2):
        assert drain.refuses(pods[each:], THREE) == []
        drain.evicted(pods[each])


def test_one_that_comes_after_the_eviction_of_another_has_come_back() -> None:
    drain = Returning()
    assert drain.refuses([pod("web-1")], THREE) == []
    drain.evicted(pod("web-1"))
    (found,) = drain.refuses([pod("web-2")], THREE)
    assert (found.reason, found.subject) == (Reason.RETURNS_TO_NODE, "shop/web-2")
    assert drain.refuses([pod("db-1", owner=controller("StatefulSet", "db"))], THREE) == []


def test_no_more_pods_go_than_their_controller_has_had_replicas() -> None:
    drain, both = Returning(), [pod("web-1"), pod("web-2")]
    assert drain.refuses(both, ONE) == []
    drain.evicted(both[0])
    drain.evicted(both[0])
    assert [each.reason for each in drain.refuses(both[1:], ONE)] == [Reason.RETURNS_TO_NODE]
    assert drain.refuses(both[1:], THREE) == []
    assert drain.refuses(both[1:], ONE) == [], "scaled down meanwhile: its controller deletes what is too much"


def test_in_a_drain_that_others_began_what_was_made_since_has_come_back() -> None:
    drain = Returning(NOW - 10)
    assert drain.refuses([pod("web-1", age=11)], THREE) == []
    assert [each.reason for each in drain.refuses([pod("web-2", age=9)], THREE)] == [Reason.RETURNS_TO_NODE]
