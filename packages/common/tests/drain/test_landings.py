"""The book of landings: whom it expects where, what it tells the admission policy, and when an expectation ends."""

from __future__ import annotations

from typing import Any

import pytest

from tightship.cluster import Snapshot
from tightship.draining.extensions import Landed
from tightship.landing.expected import UNANSWERED, UNSCHEDULED, VALID, Landings, led, room_for, wanted_targets
from tightship.objects import Pod
from tightship.objects.node import LEAVING
from tightship_testkit.builders import controller, decoded, node, pod, snapshot

Json = dict[str, Any]

WEB = "uid-web"


def made(
    name: str,
    on: str = "",
    *,
    kind: str = "ReplicaSet",
    by: str = "web",
    uid: str = "",
    **more: Any,
) -> Json:
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


def hinted(*names: str) -> Json:
    """Return the affinity of a pod that the policy leads to one of the nodes *names*."""
    fields = [{"key": "metadata.name", "operator": "In", "values": [name]} for name in names]
    terms = [{"weight": 100, "preference": {"matchFields": [field]}} for field in fields]
    return {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": terms}}


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


def test_each_replacement_ends_one_expectation_and_one_too_many_none() -> None:
    book = begun("n2", "n3")
    for number in (1, 2):
        book.answered(f"uid-web-{number}", going=True, now=0.1)
    new = [made(f"new-{number}", "n3", affinity=hinted("n2", "n3")) for number in (1, 2, 3)]
    assert book.look(cluster(*new), 0.2) == [Landed.TARGET, Landed.TARGET]
    assert book.data() == {}
    assert book.look(cluster(*new), 0.3) == []


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
    assert book.look(cluster(made("late", "n2")), seconds) == []


def test_a_stateful_pod_is_expected_by_name_and_for_its_grace_period() -> None:
    book, kind = Landings(), "StatefulSet"
    old = [web(name, kind=kind, by="db", terminationGracePeriodSeconds=30) for name in ("db-0", "db-1")]
    book.expect([(old[0], "n2"), (old[1], "n3")], cluster(), 0.0)
    for each in old:
        book.answered(each.uid, going=True, now=0.0)
    book.expire(30.0)
    either = hinted("n2", "n3")
    again = [made(each.name, "n2", kind=kind, by="db", uid=f"again-{each.name}", affinity=either) for each in old]
    assert book.look(cluster(made("db-7", "n2", kind=kind, by="db")), 30.0) == []
    assert book.look(cluster(*again), 30.0) == [Landed.TARGET, Landed.TARGET], "each prefers either target"
    assert not book.data()


def test_pods_of_others_are_nobodys_landing() -> None:
    book = begun("n2")
    assert book.look(cluster(made("db-1", "n2", by="db")), 0.1) == []
    assert book.look(cluster(made("new", "n2")), 0.1) == [Landed.TARGET]


def test_where_a_replacement_landed_is_counted_once() -> None:
    book = begun("n2", "n3")
    first, second = (made(f"new-{number}", "") for number in (1, 2))
    assert book.look(cluster(first, second), 1.1) == []
    assert book.look(cluster(made("new-1", "n2"), made("new-2", "n1")), 1.2) == [Landed.TARGET, Landed.ELSEWHERE]
    assert book.look(cluster(made("new-1", "n2"), made("new-2", "n1")), 1.3) == []
    assert not book.open


def test_a_replacement_is_on_its_target_only_where_its_own_hint_leads_it() -> None:
    book = begun("n2", "n3")
    first, second = (made(f"new-{at}", "", affinity=hinted(name)) for at, name in ((1, "n3"), (2, "n2")))
    assert book.look(cluster(first, second), 0.2) == []
    assert book.targets() == {"uid-new-1": "n3", "uid-new-2": "n2"}
    first["spec"]["nodeName"] = second["spec"]["nodeName"] = "n3"
    assert book.look(cluster(first, second), 0.3) == [Landed.TARGET, Landed.ELSEWHERE]


def test_a_replacement_without_a_node_counts_as_unscheduled_after_a_while() -> None:
    book = begun("n2", "n3")
    waiting = made("new-1")
    assert book.look(cluster(waiting, made("new-2")), 0.0) == []
    assert book.look(cluster(waiting), 5.0) == [Landed.UNSCHEDULED], "it was deleted"
    assert book.look(cluster(waiting), UNSCHEDULED - 1) == []
    assert book.look(cluster(waiting), UNSCHEDULED) == [Landed.UNSCHEDULED]


def test_a_replacement_ends_an_expectation_wherever_it_lands() -> None:
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
    assert book.data() == {WEB: "n3"}, "the first replacement is there"
    assert book.look(now, 0.6) == [Landed.TARGET]


def test_pods_of_one_controller_with_other_targets_come_one_after_the_other() -> None:
    book, here = begun("n2"), cluster(made("web-1", "n1"), made("web-2", "n1"), made("web-3", "n1"))
    db = web("db-1", by="db")
    wishes = [(web("web-2"), "n3"), (web("web-3"), "n2"), (db, "n3"), (web("db-2", by="db"), "n2")]
    assert book.later(wishes, here, 0.1) == {"uid-web-2", "uid-db-2"}, "both of web go to n2, and of db one comes first"
    book.answered("uid-web-1", going=True, now=0.2)
    assert book.later(wishes[:1], here, 0.3) == {"uid-web-2"}
    for on in ("n2", ""):
        again = begun("n2")
        assert again.later(wishes[:1], cluster(made("web-2", "n1"), made("new-1", on)), 0.3) == set(), "it has come"
    book.expire(0.2 + VALID)
    assert book.later(wishes[:1], here, 0.2 + VALID) == set(), "it comes no more"


def test_only_pods_that_can_be_led_to_nodes_that_take_pods_are_expected() -> None:
    going = node("going", labels={LEAVING: "node-toy"})
    there = snapshot(node("n1"), node("n2"), node("off", unschedulable=True), node("ill", ready="False"), going)
    alone = decoded(pod("alone", naked=True))
    other = web("other", schedulerName="mine")
    moves = [(web("a"), "n2"), (alone, "n2"), (other, "n2"), (web("b"), "off"), (web("c"), "ill"), (web("d"), "gone")]
    moves += [(web("e"), "going")]
    assert [(each.name, target) for each, target in wanted_targets(moves, there)] == [("a", "n2")]


def test_cleared_it_expects_nothing() -> None:
    book = begun("n2")
    book.clear()
    assert (book.data(), book.targets(), book.open) == ({}, {}, False)


AWAY = {"key": LEAVING, "operator": "DoesNotExist"}
ZONE = {"key": "zone", "operator": "Exists"}
FIELD = {"key": "metadata.name", "operator": "In", "values": ["n1"]}
HINT = [{"weight": 100, "preference": {"matchFields": [FIELD]}}]


def asking(*terms: Json, hint: object = HINT, **more: Any) -> Pod:
    required = {"nodeSelectorTerms": list(terms)} if terms else None
    nodes = {
        "requiredDuringSchedulingIgnoredDuringExecution": required,
        "preferredDuringSchedulingIgnoredDuringExecution": hint,
    }
    affinity = {"nodeAffinity": {key: value for key, value in nodes.items() if value}}
    return web("new", "", affinity=affinity, **more)


@pytest.mark.parametrize(
    ("pod", "is_led"),
    [
        (asking({"matchExpressions": [AWAY]}), True),
        (asking({"matchExpressions": [ZONE, AWAY]}, {"matchFields": [FIELD], "matchExpressions": [AWAY]}), True),
        (asking({"matchExpressions": [AWAY]}, {}), True),
        (asking({"matchExpressions": [AWAY]}, {"matchExpressions": [ZONE]}), False),
        (asking({"matchExpressions": [AWAY]}, hint=None), False),
        (asking({}), False),
        (asking(), False),
    ],
    ids=["no terms of its own", "several", "an empty one", "one without", "no preference", "empty alone", "none"],
)
def test_a_led_pod_is_known_by_its_terms(pod: Pod, is_led: bool) -> None:
    assert led(pod) is is_led


def test_room_is_made_on_the_last_nodes_that_leave_and_for_each_pod_anew() -> None:
    there = snapshot(
        *(node(name, cpu="4", labels={LEAVING: "node-toy"}) for name in ("n1", "n2", "n3")),
        made("full", "n3", cpu="3500m"),
    )
    small = [asking({"matchExpressions": [AWAY]}, cpu="1", uid=f"u{number}") for number in range(3)]
    assert room_for(there, small[:1], ["n1", "n2", "n3"]) == ["n2"]
    assert room_for(there, [asking(cpu="3", uid=f"u{number}") for number in range(2)], ["n1", "n2", "n3"]) == [
        "n2",
        "n1",
    ]
    assert room_for(there, small, ["n3"]) is None
    assert room_for(there, [asking({"matchExpressions": [ZONE, AWAY]})], ["n1", "n2", "n3"]) is None
