"""A plan keeps the room where drains under way want pods to land."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from cluster_builder import HOST, node, pod, snapshot

from tightship.core.objects.pod import LANDING_GATE
from tightship.planning.disruption import DisruptionLedger
from tightship.planning.plan import Planner

Json = dict[str, Any]

OURS = [{"name": LANDING_GATE}]
BOTH = [*OURS, {"name": "their.dev/later"}]


def held(things: list[Json], landings: dict[str, str] | None = None) -> dict[str, list[str]]:
    """Return the pods for which a planner of these things keeps room, by node."""
    seen = msgspec.structs.replace(snapshot(things), landings=landings or {})
    planner = Planner(seen, DisruptionLedger(seen), (), "likely")
    names = planner.space.names
    return {names[at]: [guest.pod.name for guest in guests] for at, guests in planner.waiting.items() if guests}


def nominated(name: str, on: str, gates: list[Json] = OURS, **more: Any) -> Json:
    made = pod(name, schedulingGates=gates, **more)
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
def test_a_pod_that_we_gated_holds_the_room_of_its_nomination(target: str) -> None:
    assert held([node("a"), node("b"), node("c"), nominated("web", target)]) == {target: ["web"]}


def test_a_pod_that_we_gated_holds_room_somewhere_before_its_nomination() -> None:
    assert sum(map(len, held([node("a"), node("b"), nominated("web", "")]).values())) == 1


def test_a_pod_that_others_gate_too_waits_for_them() -> None:
    assert held([node("a"), nominated("web", "a", BOTH)]) == {}


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
