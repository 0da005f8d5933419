"""The book of landings: whom it expects where, what it tells the admission policy, and when an expectation ends."""

from __future__ import annotations

from typing import Any

import pytest

from tightship.core.objects import Pod
from tightship.core.objects.pod import LANDING_GATE
from tightship.drain.landings import NAMED, UNANSWERED, UNSCHEDULED, VALID, Landed, Landings, wished
from tightship.planning.cluster import Snapshot
from tightship_testkit.builders import controller, decoded, node, pod, snapshot

Json = dict[str, Any]

WEB, DB = "uid-web", "uid-db"
GATES = [{"name": LANDING_GATE}]


def made(
    name: str,
    on: str = "",
    *,
    gates: bool = False,
    kind: str = "ReplicaSet",
    by: str = "web",
    uid: str = "",
    **more: Any,
) -> Json:
    more |= {"schedulingGates": GATES} if gates else {}
    owner = controller(kind, by) | {"uid": f"uid-{by}"}
    thing = pod(name, on=on, owner=owner, **more)
    thing["metadata"]["uid"] = uid or f"uid-{name}"
    return thing


def cluster(*pods: Json) -> Snapshot:
    return snapshot(node("n1"), node("n2"), node("n3"), *pods)


def web(name: str, on: str = "n1", **more: Any) -> Pod:
    found = decoded(made(name, on, **more))
    assert isinstance(found, Pod)
    return found


def begun(*targets: str) -> Landings:
    """Return a book in which pods web-1, web-2... of n1 are about to be evicted at second 0."""
    book = Landings()
    names = [f"web-{number}" for number in range(1, len(targets) + 1)]
    before = cluster(*(made(name, "n1") for name in names))
    book.expect([(web(name), target) for name, target in zip(names, targets, strict=True)], before, 0.0)
    return book


def test_the_policy_is_told_the_owners_and_their_nodes_in_order() -> None:
    book = begun("n3", "n2", "n3")
    assert book.data() == {WEB: "n2,n3"}
    assert book.targets() == {"uid-web-1": "n3", "uid-web-2": "n2", "uid-web-3": "n3"}
    assert Landings().data() == {}


def test_each_replacement_gets_one_target_and_one_too_many_gets_none() -> None:
    book = begun("n2", "n3")
    for number in (1, 2):
        book.answered(f"uid-web-{number}", going=True, now=0.1)
    new = [web(f"new-{number}", "", gates=True) for number in (1, 2, 3)]
    assert [book.target_of(each, 0.2) for each in new] == ["n2", "n3", None]
    assert [book.target_of(each, 0.3) for each in new] == ["n2", "n3", None], "asked again it says the same"
    assert book.data() == {}
    assert book.names(WEB, 0.3), "the gate of the third comes from our entry all the same"


def test_a_refused_eviction_leaves_no_expectation() -> None:
    book = begun("n2", "n3")
    book.answered("uid-web-1", going=False, now=0.1)
    assert book.data() == {WEB: "n3"}
    book.answered("uid-web-2", going=False, now=0.1)
    assert book.data() == {}
    assert not book.open
    book.answered("uid-web-2", going=True, now=0.2)
    assert not book.open


@pytest.mark.parametrize(("answered", "seconds"), [(True, VALID), (False, UNANSWERED)])
def test_an_expectation_ends_by_itself(answered: bool, seconds: float) -> None:
    book = begun("n2")
    if answered:
        book.answered("uid-web-1", going=True, now=0.0)
    book.expire(seconds - 0.1)
    assert book.data() == {WEB: "n2"}
    book.expire(seconds)
    assert book.data() == {}
    assert book.target_of(web("late", "", gates=True), seconds) is None
    assert book.names(WEB, seconds)
    assert not book.names(WEB, seconds + NAMED)


def test_a_stateful_pod_is_expected_by_name_and_for_its_grace_period() -> None:
    book, kind = Landings(), "StatefulSet"
    old = [web(name, kind=kind, by="db", terminationGracePeriodSeconds=30) for name in ("db-0", "db-1")]
    book.expect([(old[0], "n2"), (old[1], "n3")], cluster(), 0.0)
    for each in old:
        book.answered(each.uid, going=True, now=0.0)
    book.expire(30.0)
    again = [web(each.name, "", gates=True, kind=kind, by="db", uid=f"again-{each.name}") for each in old]
    other = web("db-7", "", gates=True, kind=kind, by="db")
    assert book.target_of(other, 30.0) is None
    assert [book.target_of(each, 30.0) for each in reversed(again)] == ["n3", "n2"]
    assert not book.data()


def test_pods_of_others_are_nobodys_landing() -> None:
    book = begun("n2")
    assert book.target_of(web("db-1", "", gates=True, by="db"), 0.1) is None
    assert not book.names(DB, 0.1)
    assert book.target_of(web("new", "", gates=True), 0.1) == "n2"


def test_where_a_replacement_landed_is_counted_once() -> None:
    book = begun("n2", "n3")
    first, second = (made(f"new-{number}", "", gates=True) for number in (1, 2))
    for each in (first, second):
        book.target_of(decoded(each), 1.0)
    assert book.look(cluster(first, second), 1.1) == []
    assert book.look(cluster(made("new-1", "n2"), made("new-2", "n2")), 1.2) == [Landed.TARGET, Landed.ELSEWHERE]
    assert book.look(cluster(made("new-1", "n2"), made("new-2", "n2")), 1.3) == []
    assert not book.open


def test_a_replacement_without_a_node_counts_as_unscheduled_after_a_while() -> None:
    book = begun("n2", "n3")
    waiting, gone = made("new-1"), made("new-2", gates=True)
    book.target_of(web("new-1", "", gates=True), 0.0)
    book.target_of(decoded(gone), 0.0)
    assert book.look(cluster(waiting), 5.0) == [Landed.UNSCHEDULED], "it was deleted"
    assert book.look(cluster(waiting), UNSCHEDULED - 1) == []
    assert book.look(cluster(waiting), UNSCHEDULED) == [Landed.UNSCHEDULED]


def test_a_replacement_that_came_without_a_gate_ends_an_expectation_too() -> None:
    """So does every replacement in hints mode, and one for which the API server did not ask the policy."""
    book = begun("n2", "n3")
    here = [made("web-1", "n1"), made("web-2", "n1"), made("new-1", "n3")]
    assert book.look(cluster(*here), 0.5) == [Landed.TARGET]
    assert book.data() == {WEB: "n2"}
    assert book.look(cluster(*here, made("new-2", "n1")), 0.6) == [Landed.ELSEWHERE]
    assert book.data() == {}


def test_pods_from_before_the_eviction_are_no_replacements() -> None:
    book = Landings()
    before = [made("web-1", "n1"), made("old", "n2")]
    book.expect([(web("web-1"), "n3")], cluster(*before), 0.0)
    assert book.look(cluster(*before), 0.5) == []
    assert book.data() == {WEB: "n3"}


def test_a_second_round_finds_the_replacements_of_the_first() -> None:
    book = begun("n2", "n3")
    book.withdraw(["uid-web-2"])
    now = cluster(made("web-1", "n1"), made("web-2", "n1"), made("new-1", "n2"))
    book.expect([(web("web-2"), "n3")], now, 0.5)
    assert book.data() == {WEB: "n3"}, "the first replacement came without a gate"
    assert book.look(now, 0.6) == [Landed.TARGET]


def test_only_pods_that_can_be_led_to_nodes_that_take_pods_are_expected() -> None:
    there = snapshot(node("n1"), node("n2"), node("off", unschedulable=True), node("ill", ready="False"))
    alone = decoded(pod("alone", naked=True))
    other = web("other", schedulerName="mine")
    moves = [(web("a"), "n2"), (alone, "n2"), (other, "n2"), (web("b"), "off"), (web("c"), "ill"), (web("d"), "gone")]
    assert [(each.name, target) for each, target in wished(moves, there)] == [("a", "n2")]


def test_cleared_it_expects_nothing_and_still_knows_whom_it_named() -> None:
    book = begun("n2")
    book.clear()
    assert (book.data(), book.targets(), book.open) == ({}, {}, False)
    assert book.names(WEB, 1.0)
