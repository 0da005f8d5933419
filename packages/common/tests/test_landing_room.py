"""A plan keeps the room where drains under way want pods to land."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from cluster_builder import HOST, node, pod, snapshot

from tightship.drain.assessment import Assessment, all_land
from tightship.drain.machine import DrainRules
from tightship.objects.reasons import Reason
from tightship.planning.plan import Planner
from tightship.rules.disruption import DisruptionLedger
from tightship.rules.evictability import EvictionRules
from tightship.scheduler.space import Space

Json = dict[str, Any]

GATES = [{"name": "their.dev/later"}]


def held(things: list[Json], landings: dict[str, str] | None = None) -> dict[str, list[str]]:
    """Return the pods for which a planner of these things keeps room, by node."""
    seen = msgspec.structs.replace(snapshot(things), landings=landings or {})
    planner = Planner(seen, DisruptionLedger(seen), (), "likely")
    names = planner.space.names
    return {names[at]: [guest.pod.name for guest in guests] for at, guests in planner.waiting.items() if guests}


def nominated(name: str, on: str, gates: Sequence[Json] = (), **more: Any) -> Json:
    made = pod(name, schedulingGates=list(gates), **more)
    made["status"] = {"phase": "Pending", "nominatedNodeName": on}
    return made


def in_drain(name: str) -> Json:
    made = node(name)
    made["spec"] = {
        "unschedulable": True,
        "taints": [{"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}],
    }
    return made


def uid(thing: Json) -> str:
    return str(thing["metadata"]["uid"])


@pytest.mark.parametrize("target", ["a", "b", "c"])
def test_a_pod_that_waits_holds_the_room_of_its_nomination(target: str) -> None:
    assert held([node("a"), node("b"), node("c"), nominated("web", target)]) == {target: ["web"]}


def test_a_gated_pod_holds_no_room() -> None:
    assert held([node("a"), nominated("web", "a", GATES)]) == {}


def test_a_nomination_that_does_not_fit_holds_room_elsewhere() -> None:
    only_b = nominated("web", "a", nodeSelector={HOST: "b"})
    assert held([node("a"), node("b"), only_b]) == {"b": ["web"]}
    assert held([node("a"), nominated("web", "gone")]) == {"a": ["web"]}


@pytest.mark.parametrize("target", ["a", "b", "c"])
def test_a_pod_still_to_be_evicted_holds_the_room_where_it_should_land(target: str) -> None:
    leaving = pod("web", "old")
    things = [node("a"), node("b"), node("c"), in_drain("old"), leaving]
    assert held(things, {uid(leaving): target}) == {target: ["web"]}


def test_a_landing_that_does_not_fit_any_more_holds_room_elsewhere() -> None:
    leaving = pod("web", "old", "3")
    things = [node("a"), node("b"), in_drain("old"), leaving, pod("big", "a", "3")]
    assert held(things, {uid(leaving): "a"}) == {"b": ["web"]}
    assert held(things, {uid(leaving): "gone"}) == {"b": ["web"]}


def rest(things: list[Json], landings: dict[str, str]) -> list[Reason]:
    """Return why node old, in drain, can't be emptied when its pods should land there."""
    seen = msgspec.structs.replace(snapshot(things), landings=landings)
    eviction = EvictionRules(disabled=frozenset({Reason.NOT_REPLICATED}))
    sight = Assessment(seen, "old", 1767225700.0, DrainRules(), eviction)
    return [each.reason for each in sight.rest("likely")]


def test_a_drain_whose_pods_still_fit_where_they_should_land_goes_on() -> None:
    """The scheduler's model would put the largest pods onto the emptiest nodes, and have no place for the last."""
    wanted = {"p4": "a", "p3": "a", "p2": "b", "q2": "b"}
    leaving = [pod(name, "old", name[1:]) for name in wanted]
    things = [node("a", "7"), node("b", "4"), in_drain("old"), *leaving]
    plan = {f"uid-{name}": target for name, target in wanted.items()}
    assert rest(things, {}) == [Reason.NO_PLACE_TOGETHER]
    assert rest(things, plan) == []
    assert rest([*things, pod("new", "b", "1")], plan) == [Reason.NO_PLACE_TOGETHER]


@pytest.mark.parametrize("landings", [{}, {"three": "b"}, {"three": "gone"}, {"three": "a"}])
def test_places_chosen_earlier_hold_only_while_each_pod_has_one_that_takes_it(landings: dict[str, str]) -> None:
    leaving = pod("three", "old", "3")
    seen = snapshot([node("a"), node("b"), in_drain("old"), leaving, pod("new", "b", "3")])
    seen = msgspec.structs.replace(seen, landings={uid(leaving): to for to in landings.values()})
    space = Space(seen)
    before = space.free.copy()
    assert all_land(space, "old", seen.nodes["old"].pods) is (list(landings.values()) == ["a"])
    assert (space.free == before).all()
