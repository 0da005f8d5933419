"""Somebody else changes the bounds: once it is theirs, again and again it is left to them for a while."""

from __future__ import annotations

from itertools import pairwise

import msgspec
import pytest
from hpa_builder import CYCLE, NO_AGE, QUERY, HpaCycles, hpa, manager, reasons, spec

from hpa_scaler.annotations.spec import Rules
from hpa_scaler.judge.ownership import restoration

ASKED = spec(prometheus_query=QUERY, requests_per_replica="10")
RULES = Rules(age_query="", contest_pause=300, contest_longest_pause=900)


def fighting(cycles: int, web: HpaCycles, name: str = "kubectl-client-side-apply") -> list[str]:
    """Somebody sets the floor to 3 before each cycle; return the actions."""
    web.hpa = msgspec.structs.replace(web.hpa, managers=(manager("hpa-scaler", time=9), manager(name, time=7)))
    actions = []
    for _ in range(cycles):
        web.set(minimum=3)
        actions.append(web.cycle(100).action)
    return actions


def test_a_floor_that_somebody_changed_is_theirs_and_moved_from_there() -> None:
    web = HpaCycles(hpa(5), ASKED)
    web.cycle(100)
    web.set(minimum=7)
    decision = web.cycle(100)
    assert (decision.action, decision.target) == ("raise", 10)
    assert reasons(decision) == ["FollowsQuery", "ChangedByOthers"]
    assert "somebody changed minReplicas from 10 to 7" in decision.causes[1].detail
    assert web.history.original_min == 7
    web.set(minimum=3)
    assert web.cycle(100).target == 10, "and raised from a lower one too"


@pytest.mark.parametrize("ours", [True, False], ids=["a floor that we set", "a floor that we never set"])
def test_a_floor_that_somebody_raised_is_kept_for_the_lowering_window(ours: bool) -> None:
    """It went back to what the query wants within one cycle."""
    asked = spec(prometheus_query="sum(rate(x[5m]))", requests_per_replica="10")
    web = HpaCycles(hpa(5 if ours else 20), asked, RULES)
    for _ in range(12):
        web.cycle(200)
    assert (web.bounds[0], web.history.ours) == (20, ours)
    web.set(minimum=45)
    decision = web.cycle(200)
    assert (decision.action, decision.reason) == ("hold", "LoweringWindow")
    assert "45 was within the last 10m" in decision.causes[0].detail
    kept = 1
    while web.bounds[0] == 45:
        web.cycle(200)
        kept += 1
    assert 600 <= (kept - 1) * CYCLE <= 600 + 2 * CYCLE


def test_who_sets_it_back_again_and_again_is_left_alone_for_a_while() -> None:
    web = HpaCycles(hpa(3), ASKED, RULES)
    assert fighting(4, web) == ["raise", "raise", "raise", "hold"]
    decision = web.cycle(100)
    assert (decision.action, decision.reason) == ("hold", "Contested")
    assert "kubectl-client-side-apply (Update) has set the bounds back 3 times" in decision.causes[0].detail
    assert decision.causes[0].fix.startswith("remove the line minReplicas from the manifest")


def test_what_they_set_in_a_contest_is_written_down_once() -> None:
    """A restart would otherwise take a later value of theirs that equals what we had set for our own."""
    web = HpaCycles(hpa(3), ASKED, RULES)
    fighting(3, web)
    web.set(minimum=7)
    decision = web.cycle(100)
    assert (decision.reason, decision.pending, decision.history.applied_min) == ("Contested", True, None)
    assert not web.cycle(100).pending
    web.set(minimum=10)
    assert web.cycle(100).minimum == 10
    assert web.history.applied_min is None


def test_the_pause_ends_and_grows() -> None:
    web = HpaCycles(hpa(3), ASKED, RULES)
    actions = fighting(30, web)
    writes = [number for number, action in enumerate(actions) if action == "raise"]
    gaps = [later - earlier for earlier, later in pairwise(writes)]
    # Pauses of 300, 600, 900 and 900 s are 4, 8 and 12 cycles of 75 s, and one for the reset to show.
    assert gaps == [1, 1, 5, 9, 13]


def test_who_changes_it_now_and_then_fights_nobody() -> None:
    web = HpaCycles(hpa(3), ASKED, RULES)
    for _ in range(6):
        web.set(minimum=3)
        assert web.cycle(100).action == "raise"
        web.now += 3600 - CYCLE + 1
        web.history = msgspec.structs.replace(web.history, evaluated=web.now - CYCLE)


def test_in_a_contest_the_floor_is_not_lowered_either() -> None:
    web = HpaCycles(hpa(3), ASKED, RULES)
    fighting(4, web)
    web.set(minimum=30)
    assert web.cycle(100).action == "hold"


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("argocd-controller", "managedFieldsManagers: [hpa-scaler]"),
        ("kustomize-controller", "driftIgnoreRules with the path /spec/minReplicas"),
        ("helm-controller", "driftDetection.ignore"),
        ("helm", "leave minReplicas out of the chart"),
        ("HashiCorp", "lifecycle { ignore_changes"),
        ("Terraform", "lifecycle { ignore_changes"),
        ("pykube-ng", "downscaler/exclude"),
        ("py-kube-downscaler", "downscaler/exclude"),
        ("keda", "minReplicaCount in the ScaledObject"),
        ("keda-operator", "minReplicaCount in the ScaledObject"),
        ("pulumi-kubernetes", "ignoreChanges"),
        ("kubectl-edit", "ask who edits the HPA by hand"),
        ("kubectl-patch", "ask who edits the HPA by hand"),
        ("kubectl-client-side-apply", "remove the line minReplicas"),
        ("kubectl", "remove the line minReplicas"),
    ],
)
def test_what_ends_the_contest_is_said_for_each_tool(name: str, says: str) -> None:
    web = HpaCycles(hpa(3), ASKED, RULES)
    fighting(4, web, name)
    assert says in web.cycle(100).causes[0].fix


def test_a_contest_is_remembered_over_a_restart() -> None:
    web = HpaCycles(hpa(3), ASKED, RULES)
    fighting(3, web)
    assert web.history.resets == 2
    web.set(minimum=3)
    web.now += 10
    assert web.cycle(100).action == "hold"


def test_an_hpa_of_nobody_else_is_no_contest() -> None:
    web = HpaCycles(hpa(3), ASKED, NO_AGE)
    for value in (100, 200, 100, 200, 100):
        assert web.cycle(value).changes
    assert web.history.resets == 0


def night(web: HpaCycles, *, restores: bool, above: int | None = None) -> list[tuple[float, int]]:
    """Run 20:00 to 09:00 with a writer that keeps the floor at 2 until 06:00; return the floor by the hour of the day.

    The writer looks once a minute, as kube-downscaler does, and *restores* in the morning what it found; *above* is
    another floor that it sets then. The queries want 10, and 30 from 08:00 on.
    """
    start, found, floors = web.now, 0, []
    for _ in range(int(13 * 3600 / CYCLE)):
        hour = 20 + (web.now - start) / 3600
        if hour < 30 and web.bounds[0] != 2:
            found = web.bounds[0]
            web.set(minimum=2)
        elif hour >= 30 and web.bounds[0] == 2:
            web.set(minimum=found if restores else above)
        web.cycle(300 if hour >= 32 else 100)
        floors.append((hour, web.bounds[0]))
    return floors


@pytest.mark.parametrize(("restores", "above"), [(True, None), (False, 5), (False, None)])
def test_a_night_of_another_writer_does_not_take_the_morning(restores: bool, above: int | None) -> None:
    """Its contest's pause of up to six hours outlasted the night: the floor was 10 until 09:53, with 30 wanted."""
    web = HpaCycles(hpa(3, 60), ASKED, Rules(age_query="", rise_factor=0))
    web.cycle(100)
    web.hpa = msgspec.structs.replace(web.hpa, managers=(manager("pykube-ng", time=7),))
    floors = night(web, restores=restores, above=above)
    raised = min(hour for hour, floor in floors if floor == 30)
    assert 32 <= raised <= 32 + CYCLE / 3600
    tried = sum(floor > 2 for hour, floor in floors if hour < 30)
    assert tried < 12, "and the night is left alone all the same"


def test_a_contest_ends_when_our_bound_is_back() -> None:
    web = HpaCycles(hpa(3), ASKED, RULES)
    fighting(4, web)
    assert web.cycle(100).reason == "Contested"
    web.set(minimum=10)
    decision = web.cycle(100)
    assert (decision.action, decision.history.resets) == ("hold", 0)
    assert "Contested" not in reasons(decision)


SURGED = {"evictionSurgeReplicas": "12", "eviction-autoscaler.azure.com/original-min-replicas": "10"}


def surge(web: HpaCycles, minimum: int, notes: dict[str, str]) -> None:
    """What eviction-autoscaler writes: the bound and its annotations, or without *notes* both back."""
    kept = {key: text for key, text in web.hpa.annotations.items() if key not in SURGED}
    web.set(minimum=minimum)
    web.hpa = msgspec.structs.replace(web.hpa, annotations={**kept, **notes})


def test_the_surge_of_a_drain_is_no_contest_and_the_floor_goes_on_from_where_it_was() -> None:
    web = HpaCycles(hpa(5), ASKED, RULES)
    assert web.cycle(100).target == 10
    for _ in range(5):
        surge(web, 12, SURGED)
        decision = web.cycle(150)
        assert (decision.target, reasons(decision)) == (12, ["EvictionSurge"])
        assert restoration(web.hpa, web.history, RULES, web.now) is None
        surge(web, 10, {})
        decision = web.cycle(100)
        assert (decision.target, web.history.original_min, web.history.resets) == (10, 5, 0)
    assert "ChangedByOthers" not in reasons(decision)
    assert web.cycle(150).target == 15
    given = restoration(web.hpa, web.history, RULES, web.now)
    assert given is not None
    assert given.minimum == 5
