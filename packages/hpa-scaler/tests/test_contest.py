"""Somebody else changes the bounds: once it is theirs, again and again it is left to them for a while."""

from __future__ import annotations

from itertools import pairwise

import msgspec
import pytest
from hpa_builder import CYCLE, NO_AGE, QUERY, World, hpa, manager, reasons, spec

from hpa_scaler.spec.spec import Rules

ASKED = spec(prometheus_query=QUERY, requests_per_replica="10")
RULES = Rules(age_query="", contest_pause=300, contest_longest_pause=900)


def fighting(cycles: int, world: World, name: str = "kubectl-client-side-apply") -> list[str]:
    """Somebody sets the floor to 3 before each cycle; return the actions."""
    world.hpa = msgspec.structs.replace(world.hpa, managers=(manager("hpa-scaler", time=9), manager(name, time=7)))
    actions = []
    for _ in range(cycles):
        world.set(minimum=3)
        actions.append(world.cycle(100).action)
    return actions


def test_a_floor_that_somebody_changed_is_theirs_and_moved_from_there() -> None:
    world = World(hpa(5), ASKED)
    world.cycle(100)
    world.set(minimum=7)
    decision = world.cycle(100)
    assert (decision.action, decision.target) == ("raise", 10)
    assert reasons(decision) == ["FollowsQuery", "ChangedByOthers"]
    assert "somebody changed minReplicas from 10 to 7" in decision.causes[1].detail
    assert world.history.original_min == 7
    world.set(minimum=3)
    assert world.cycle(100).target == 10, "and raised from a lower one too"


@pytest.mark.parametrize("ours", [True, False], ids=["a floor that we set", "a floor that we never set"])
def test_a_floor_that_somebody_raised_is_kept_for_the_lowering_window(ours: bool) -> None:
    """It went back to what the query wants within one cycle."""
    asked = spec(prometheus_query="sum(rate(x[5m]))", requests_per_replica="10")
    world = World(hpa(5 if ours else 20), asked, RULES)
    for _ in range(12):
        world.cycle(200)
    assert (world.bounds[0], world.history.ours) == (20, ours)
    world.set(minimum=45)
    decision = world.cycle(200)
    assert (decision.action, decision.reason) == ("hold", "LoweringWindow")
    assert "45 was within the last 10m" in decision.causes[0].detail
    kept = 1
    while world.bounds[0] == 45:
        world.cycle(200)
        kept += 1
    assert 600 <= (kept - 1) * CYCLE <= 600 + 2 * CYCLE


def test_who_sets_it_back_again_and_again_is_left_alone_for_a_while() -> None:
    world = World(hpa(3), ASKED, RULES)
    assert fighting(4, world) == ["raise", "raise", "raise", "hold"]
    decision = world.cycle(100)
    assert (decision.action, decision.reason) == ("hold", "Contested")
    assert "kubectl-client-side-apply (Update) has set the bounds back 3 times" in decision.causes[0].detail
    assert decision.causes[0].fix.startswith("remove the line minReplicas from the manifest")


def test_what_they_set_in_a_contest_is_written_down_once() -> None:
    """A restart would otherwise take a later value of theirs that equals what we had set for our own."""
    world = World(hpa(3), ASKED, RULES)
    fighting(3, world)
    world.set(minimum=7)
    decision = world.cycle(100)
    assert (decision.reason, decision.pending, decision.history.applied_min) == ("Contested", True, None)
    assert not world.cycle(100).pending
    world.set(minimum=10)
    assert world.cycle(100).minimum == 10
    assert world.history.applied_min is None


def test_the_pause_ends_and_grows() -> None:
    world = World(hpa(3), ASKED, RULES)
    actions = fighting(30, world)
    writes = [number for number, action in enumerate(actions) if action == "raise"]
    gaps = [later - earlier for earlier, later in pairwise(writes)]
    # Pauses of 300, 600, 900 and 900 s are 4, 8 and 12 cycles of 75 s, and one for the reset to show.
    assert gaps == [1, 1, 5, 9, 13]


def test_who_changes_it_now_and_then_fights_nobody() -> None:
    world = World(hpa(3), ASKED, RULES)
    for _ in range(6):
        world.set(minimum=3)
        assert world.cycle(100).action == "raise"
        world.now += 3600 - CYCLE + 1
        world.history = msgspec.structs.replace(world.history, evaluated=world.now - CYCLE)


def test_in_a_contest_the_floor_is_not_lowered_either() -> None:
    world = World(hpa(3), ASKED, RULES)
    fighting(4, world)
    world.set(minimum=30)
    assert world.cycle(100).action == "hold"


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("argocd-controller", "managedFieldsManagers: [hpa-scaler]"),
        ("kustomize-controller", "driftIgnoreRules with the path /spec/minReplicas"),
        ("helm", "leave minReplicas out of the chart"),
        ("kubectl", "remove the line minReplicas"),
    ],
)
def test_what_ends_the_contest_is_said_for_each_tool(name: str, says: str) -> None:
    world = World(hpa(3), ASKED, RULES)
    fighting(4, world, name)
    assert says in world.cycle(100).causes[0].fix


def test_a_contest_is_remembered_over_a_restart() -> None:
    world = World(hpa(3), ASKED, RULES)
    fighting(3, world)
    assert world.history.resets == 2
    world.set(minimum=3)
    world.now += 10
    assert world.cycle(100).action == "hold"


def test_an_hpa_of_nobody_else_is_no_contest() -> None:
    world = World(hpa(3), ASKED, NO_AGE)
    for value in (100, 200, 100, 200, 100):
        assert world.cycle(value).changes
    assert world.history.resets == 0
