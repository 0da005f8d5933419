"""The night in words."""

from __future__ import annotations

import pytest

from tightship_simulator.demo import words
from tightship_simulator.demo.observations import EventSeen, FloorSeen, Gone, Moment, NodeSeen, Observation, PodSeen
from tightship_simulator.demo.scene import Line, Scene
from tightship_simulator.demo.story import BEGIN

NODE = NodeSeen("a", "general", 4000, 8000)


def _scene(*observations: tuple[float, Observation]) -> Scene:
    """Return a scene in which a second is an hour."""
    scene = Scene(seconds=10, price=0.5)
    for at, observation in ((0.0, NODE), *observations):
        scene.take(Moment(at, BEGIN + at, observation))
    return scene


def _event(name: str, reason: str, note: str) -> EventSeen:
    return EventSeen("hpa-scaler", "HorizontalPodAutoscaler", f"shop/{name}", reason, note)


def _moved(name: str, begin: int, end: int, reason: str = "FollowsQuery") -> EventSeen:
    return _event(name, reason, f"minReplicas {begin} -> {end}: {reason}: ceil(1) = {end}")


def _described(*events: EventSeen) -> list[str]:
    return [words.line(each) for each in _scene(*((1.0, event) for event in events)).lines]


HELD = [_event(each, "TimedOut", "late") for each in ("web", "api")]
OTHERWISE = [_event("web", "FollowsRatio", "ends at 8"), _event("api", "FollowsRatio", "ends at 16")]


@pytest.mark.parametrize(
    ("events", "reported"),
    [
        ([_moved("web", 2, 4)], "raises web 2→4: FollowsQuery: ceil(1) = 4"),
        ([_moved("web", 4, 2)], "lowers web 4→2: FollowsQuery: ceil(1) = 2"),
        ([_moved("web", 2, 4), _moved("api", 3, 5), _moved("web", 4, 6)], "raises web 2→6, api 3→5: FollowsQuery"),
        (
            [_moved("web", 2, 4), _moved("api", 5, 3, "FollowsRatio")],
            "moves web 2→4, api 5→3: FollowsQuery, FollowsRatio",
        ),
        (HELD, "holds web, api: TimedOut: late"),
        (OTHERWISE, "holds web, api: FollowsRatio"),
    ],
)
def test_floors_that_move_or_are_held_together_are_one_line(events: list[EventSeen], reported: str) -> None:
    assert _described(*events) == [f"22:00 hpa-scaler {reported}"]


def test_what_is_done_from_outside_and_to_nodes_is_told() -> None:
    assert words.line(Line(1, 23.75, "", "", "the gateway fails")) == "23:45 * the gateway fails"
    assert words.line(Line(1, 24.5, "autoscaler", "a", "deleted, it was empty")) == (
        "00:30 autoscaler a: deleted, it was empty"
    )


def test_pods_that_wait_are_told_from_when_on_and_until_when() -> None:
    scene, waiting = _scene((1, Gone("node", "none"))), words.Waiting()

    def look(at: float, *observations: Observation) -> tuple[float, str] | None:
        for each in observations:
            scene.take(Moment(at, BEGIN + at, each))
        return waiting.take(scene, at)

    pods = [PodSeen(f"shop/{name}", "shop/web", 100, 100) for name in "pqr"]
    assert look(2, pods[0]) is None
    assert look(2.5) == (2, "23:00 pods wait for a node: shop/web 1")
    assert look(3, *pods[1:]) is None
    assert look(4, *(Gone("pod", pod.key) for pod in pods)) is None
    assert look(4.5) == (4, "01:00 every pod has a node again; 3 waited at most")


def test_pods_that_wait_for_a_moment_only_are_not_told() -> None:
    scene, waiting = _scene((1, PodSeen("shop/p", "shop/web", 100, 100))), words.Waiting()
    assert waiting.take(scene, 1) is None
    scene.take(Moment(1.4, BEGIN + 1.4, PodSeen("shop/p", "shop/web", 100, 100, node="a")))
    assert waiting.take(scene, 1.4) is None
    scene.take(Moment(1.8, BEGIN + 1.8, PodSeen("shop/q", "shop/web", 100, 100)))
    assert waiting.take(scene, 1.8) is None


def test_the_summary_counts_the_moves_of_floors_that_are_looked_after() -> None:
    floors = [FloorSeen("shop/web", each, 20, guarded=True) for each in (2, 5, 4, 3)]
    other = [FloorSeen("shop/api", each, 20) for each in (2, 5)]
    reported = words.summary(_scene((0, floors[0]), (0, other[0]), *((1, each) for each in (*floors[1:], *other[1:]))))
    assert "  floors     raised 1 time, lowered 2 times" in reported


def test_after_a_fast_night_the_picture_is_next() -> None:
    assert "as a picture" in words.summary(_scene(), fast=True)[-1]
    assert "--seconds 180" in words.summary(_scene())[-1]
