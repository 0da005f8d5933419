"""Expected landings: of which pods and where, what they tell the admission policy, and when an expectation ends."""

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
    """Return landings of which pods web-1, web-2... of n1 are about to be evicted at second 0."""
    landings = Landings()
    names = [f"web-{number}" for number in range(1, len(targets) + 1)]
    before = cluster(*(made(name, "n1") for name in names))
    landings.expect([(web(name), target) for name, target in zip(names, targets, strict=True)], before, 0.0)
    return landings


def test_the_policy_is_told_the_owners_and_their_nodes_in_order() -> None:
    landings = begun("n3", "n2", "n3")
    assert landings.data() == {WEB: "n2,n3"}
    assert landings.targets() == {"uid-web-1": "n3", "uid-web-2": "n2", "uid-web-3": "n3"}
    assert Landings().data() == {}


def test_each_replacement_ends_one_expectation_and_one_too_many_none() -> None:
    landings = begun("n2", "n3")
    for number in (1, 2):
        landings.answered(f"uid-web-{number}", going=True, now=0.1)
    new = [made(f"new-{number}", "n3", affinity=hinted("n2", "n3")) for number in (1, 2, 3)]
    assert landings.look(cluster(*new), 0.2) == [Landed.TARGET, Landed.TARGET]
    assert landings.data() == {}
    assert landings.look(cluster(*new), 0.3) == []


def test_a_refused_eviction_leaves_no_expectation() -> None:
    landings = begun("n2", "n3")
    landings.answered("uid-web-1", going=False, now=0.1)
    assert landings.data() == {WEB: "n3"}
    landings.answered("uid-web-2", going=False, now=0.1)
    assert landings.data() == {}
    assert not landings.open
    landings.answered("uid-web-2", going=True, now=0.2)
    assert not landings.open


@pytest.mark.parametrize(("answered", "seconds"), [(True, VALID), (False, UNANSWERED)])
def test_an_expectation_ends_by_itself(answered: bool, seconds: float) -> None:
    landings = begun("n2")
    if answered:
        landings.answered("uid-web-1", going=True, now=0.0)
    landings.expire(seconds - 0.1)
    assert landings.data() == {WEB: "n2"}
    landings.expire(seconds)
    assert landings.data() == {}
    assert landings.look(cluster(made("late", "n2")), seconds) == []


def test_a_stateful_pod_is_expected_by_name_and_for_its_grace_period() -> None:
    landings, kind = Landings(), "StatefulSet"
    old = [web(name, kind=kind, by="db", terminationGracePeriodSeconds=30) for name in ("db-0", "db-1")]
    landings.expect([(old[0], "n2"), (old[1], "n3")], cluster(), 0.0)
    for each in old:
        landings.answered(each.uid, going=True, now=0.0)
    landings.expire(30.0)
    either = hinted("n2", "n3")
    again = [made(each.name, "n2", kind=kind, by="db", uid=f"again-{each.name}", affinity=either) for each in old]
    assert landings.look(cluster(made("db-7", "n2", kind=kind, by="db")), 30.0) == []
    assert landings.look(cluster(*again), 30.0) == [Landed.TARGET, Landed.TARGET], "each prefers either target"
    assert not landings.data()


def test_pods_of_others_are_nobodys_landing() -> None:
    landings = begun("n2")
    assert landings.look(cluster(made("db-1", "n2", by="db")), 0.1) == []
    assert landings.look(cluster(made("new", "n2")), 0.1) == [Landed.TARGET]


def test_where_a_replacement_landed_is_counted_once() -> None:
    landings = begun("n2", "n3")
    first, second = (made(f"new-{number}", "") for number in (1, 2))
    assert landings.look(cluster(first, second), 1.1) == []
    assert landings.look(cluster(made("new-1", "n2"), made("new-2", "n1")), 1.2) == [Landed.TARGET, Landed.ELSEWHERE]
    assert landings.look(cluster(made("new-1", "n2"), made("new-2", "n1")), 1.3) == []
    assert not landings.open


def test_a_replacement_is_on_its_target_only_where_its_own_hint_leads_it() -> None:
    landings = begun("n2", "n3")
    first, second = (made(f"new-{at}", "", affinity=hinted(name)) for at, name in ((1, "n3"), (2, "n2")))
    assert landings.look(cluster(first, second), 0.2) == []
    assert landings.targets() == {"uid-new-1": "n3", "uid-new-2": "n2"}
    first["spec"]["nodeName"] = second["spec"]["nodeName"] = "n3"
    assert landings.look(cluster(first, second), 0.3) == [Landed.TARGET, Landed.ELSEWHERE]


def test_a_replacement_without_a_node_counts_as_unscheduled_after_a_while() -> None:
    landings = begun("n2", "n3")
    waiting = made("new-1")
    assert landings.look(cluster(waiting, made("new-2")), 0.0) == []
    assert landings.look(cluster(waiting), 5.0) == [Landed.UNSCHEDULED], "it was deleted"
    assert landings.look(cluster(waiting), UNSCHEDULED - 1) == []
    assert landings.look(cluster(waiting), UNSCHEDULED) == [Landed.UNSCHEDULED]


def test_a_replacement_ends_an_expectation_wherever_it_lands() -> None:
    landings = begun("n2", "n3")
    here = [made("web-1", "n1"), made("web-2", "n1"), made("new-1", "n3")]
    assert landings.look(cluster(*here), 0.5) == [Landed.TARGET]
    assert landings.data() == {WEB: "n2"}
    assert landings.look(cluster(*here, made("new-2", "n1")), 0.6) == [Landed.ELSEWHERE]
    assert landings.data() == {}


def test_pods_from_before_the_eviction_are_no_replacements() -> None:
    landings = Landings()
    before = [made("web-1", "n1"), made("old", "n2")]
    landings.expect([(web("web-1"), "n3")], cluster(*before), 0.0)
    assert landings.look(cluster(*before), 0.5) == []
    assert landings.data() == {WEB: "n3"}


def test_a_second_round_finds_the_replacements_of_the_first() -> None:
    landings = begun("n2", "n3")
    landings.withdraw(["uid-web-2"])
    now = cluster(made("web-1", "n1"), made("web-2", "n1"), made("new-1", "n2"))
    landings.expect([(web("web-2"), "n3")], now, 0.5)
    assert landings.data() == {WEB: "n3"}, "the first replacement is there"
    assert landings.look(now, 0.6) == [Landed.TARGET]


def test_pods_of_one_controller_with_other_targets_come_one_after_the_other() -> None:
    landings, here = begun("n2"), cluster(made("web-1", "n1"), made("web-2", "n1"), made("web-3", "n1"))
    db = web("db-1", by="db")
    wishes = [(web("web-2"), "n3"), (web("web-3"), "n2"), (db, "n3"), (web("db-2", by="db"), "n2")]
    assert landings.later(wishes, here, 0.1) == {"uid-web-2", "uid-db-2"}, (
        "both of web go to n2, and of db one comes first"
    )
    landings.answered("uid-web-1", going=True, now=0.2)
    assert landings.later(wishes[:1], here, 0.3) == {"uid-web-2"}
    for on in ("n2", ""):
        again = begun("n2")
        assert again.later(wishes[:1], cluster(made("web-2", "n1"), made("new-1", on)), 0.3) == set(), "it has come"
    landings.expire(0.2 + VALID)
    assert landings.later(wishes[:1], here, 0.2 + VALID) == set(), "it comes no more"


def test_only_pods_that_can_be_led_to_nodes_that_take_pods_are_expected() -> None:
    going = node("going", labels={LEAVING: "node-toy"})
    there = snapshot(node("n1"), node("n2"), node("off", unschedulable=True), node("ill", ready="False"), going)
    alone = decoded(pod("alone", naked=True))
    other = web("other", schedulerName="mine")
    moves = [(web("a"), "n2"), (alone, "n2"), (other, "n2"), (web("b"), "off"), (web("c"), "ill"), (web("d"), "gone")]
    moves += [(web("e"), "going")]
    assert [(each.name, target) for each, target in wanted_targets(moves, there)] == [("a", "n2")]


def test_cleared_it_expects_nothing() -> None:
    landings = begun("n2")
    landings.clear()
    assert (landings.data(), landings.targets(), landings.open) == ({}, {}, False)


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
