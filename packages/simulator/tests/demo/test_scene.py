"""What the screen shows, gathered from what was seen."""

from __future__ import annotations

from tightship_simulator.demo.observations import EventSeen, Gone, Moment, NodeSeen, Observation, PodSeen, TrafficSeen
from tightship_simulator.demo.scene import Scene
from tightship_simulator.demo.story import BEGIN


def _scene(*observations: tuple[float, Observation]) -> Scene:
    """Return a scene in which a second is an hour."""
    scene = Scene(seconds=10, price=0.5)
    for at, observation in observations:
        scene.take(Moment(at, BEGIN + at, observation))
    return scene


def _node(name: str, **more: object) -> NodeSeen:
    return NodeSeen(name, "general", 4000, 8000, **more)  # type: ignore[arg-type]


def _raised(name: str, low: int, high: int) -> EventSeen:
    note = f"minReplicas {low} -> {high}: FollowsQuery: ceil(1) = {high}"
    return EventSeen("hpa-scaler", "HorizontalPodAutoscaler", f"shop/{name}", "FollowsQuery", note)


def test_nodes_that_are_gone_save_node_hours_from_then_on() -> None:
    scene = _scene(
        (0, _node("a")), (0, _node("b")), (1, Gone("node", "b")), (3, TrafficSeen("x", 1.0)), (4, _node("c")),
        (9, TrafficSeen("x", 1.0)),
    )  # fmt: skip
    assert (scene.began, scene.nodes, scene.fewest) == (2, 2, 1)
    assert scene.saved == 3.0
    assert scene.money == 1.5
    assert (scene.removed, scene.added) == (1, 1)


def test_a_new_node_takes_the_place_of_one_that_is_gone() -> None:
    scene = _scene((0, _node("a")), (0, _node("b")), (1, Gone("node", "a")), (2, _node("c")))
    assert [(slot.name, slot.new) for slot in scene.pools["general"].slots] == [("c", True), ("b", False)]


def test_pods_fill_their_node_and_leave_it_empty() -> None:
    here = PodSeen("shop/p", "shop/web", 1000, 4000, node="a", ready=True)
    scene = _scene((0, _node("a")), (0, here))
    assert scene.fullness(_node("a")) == 0.5
    scene.take(Moment(1, BEGIN, PodSeen("shop/p", "shop/web", 2000, 4000, node="a")))
    assert scene.used("a").cpu == 2000
    scene.take(Moment(2, BEGIN, Gone("pod", "shop/p")))
    assert (scene.used("a").cpu, scene.used("a").pods, scene.pods) == (0, 0, {})


def test_drains_count_for_who_made_them_once() -> None:
    drained = _node("a", drain="Drained", by="node-refiner", cordoned=True)
    scene = _scene((0, _node("a")), (1, _node("a", drain="Evicting", by="node-refiner")), (2, drained), (3, drained))
    assert scene.drained == {"node-refiner": 1}
    assert scene.restored == 0
    given_back = _scene((0, _node("a")), (1, _node("a", drain="Evicting", by="node-refiner")), (2, _node("a")))
    assert given_back.restored == 1


def test_floors_that_move_together_are_one_line() -> None:
    scene = _scene((0, _node("a")), (1, _raised("web", 2, 4)), (1.1, _raised("api", 3, 5)), (3, _raised("web", 4, 6)))
    assert [line.what for line in scene.lines] == ["web 2→4, api 3→5", "web 4→6"]
    assert scene.said == 2


def test_floors_that_are_held_for_one_reason_are_one_line() -> None:
    held = [
        EventSeen("hpa-scaler", "HorizontalPodAutoscaler", f"shop/{each}", "TimedOut", "late", True) for each in "ab"
    ]
    scene = _scene((0, _node("a")), (1, held[0]), (1.2, held[1]))
    assert [(line.what, line.text, line.tone) for line in scene.lines] == [("a, b", "TimedOut: late", "warn")]
