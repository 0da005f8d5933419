"""What is known from cycle to cycle, and when it counts no more."""

from __future__ import annotations

import json

import msgspec
import pytest
from hpa_builder import NO_AGE, NOW, QUERY, answer, hpa, judge, manager, spec

from hpa_scaler.annotations.parsing import name_of
from hpa_scaler.annotations.spec import PREFIX, STATE
from hpa_scaler.judge.history import FloorHistory
from hpa_scaler.judge.ownership import change, ownership, restoration, state_of
from hpa_scaler.write.applying import Records
from tightship.objects import HorizontalPodAutoscaler
from tightship.objects.autoscaling import FieldManager

ASKED = spec(prometheus_query=QUERY, requests_per_replica="10")
NAME = name_of(PREFIX, STATE)
KNOWN = FloorHistory(original_min=3, applied_min=5)


def with_state(thing: HorizontalPodAutoscaler, text: str | None, **more: int) -> HorizontalPodAutoscaler:
    notes = {key: value for key, value in thing.annotations.items() if key != NAME}
    return msgspec.structs.replace(thing, annotations=notes | ({} if text is None else {NAME: text}), **more)


def made(at: float, floor: int = 5) -> str:
    """A state annotation made at a time."""
    return json.dumps({"originalMin": 3, "applied": floor, "history": {"evaluated": int(at)}})


def test_what_was_kept_is_recalled_as_long_as_the_annotation_is_ours() -> None:
    records = Records(PREFIX, writes=True)
    records.keep(with_state(hpa(), made(NOW)), KNOWN)
    assert records.recall(with_state(hpa(), made(NOW))) == KNOWN
    assert records.recall(hpa(uid="another")) is None
    records.keep(hpa(), KNOWN, made(NOW + 60))
    assert records.recall(with_state(hpa(), made(NOW + 60))) == KNOWN


def test_an_annotation_that_is_newer_counts_in_its_place() -> None:
    """Such as one that the leader before wrote late."""
    records = Records(PREFIX, writes=True)
    records.keep(with_state(hpa(), made(NOW)), KNOWN)
    assert records.recall(with_state(hpa(), made(NOW + 1))) is None
    records.keep(hpa(), KNOWN)
    assert records.recall(with_state(hpa(), made(NOW))) is None


@pytest.mark.parametrize("text", [None, "{broken", made(NOW - 600), '{"enabled":"true"}'])
def test_an_annotation_that_is_older_gone_or_broken_does_not(text: str | None) -> None:
    records = Records(PREFIX, writes=True)
    records.keep(with_state(hpa(), made(NOW)), KNOWN)
    assert records.recall(with_state(hpa(), text)) == KNOWN


def brought_back(*managers: FieldManager) -> FloorHistory | None:
    """What is recalled of an HPA that we had set to 5 and then to 8, and which is as it was at 5 again."""
    records = Records(PREFIX, writes=True)
    records.keep(
        hpa(8, 20), FloorHistory(original_min=3, original_max=20, applied_min=8, applied_max=20, resets=1), made(NOW)
    )
    then = json.dumps(
        {
            "originalMin": 3,
            "originalMax": 20,
            "applied": 5,
            "appliedMax": 20,
            "history": {"evaluated": int(NOW) - 75},
        }
    )
    return records.recall(with_state(hpa(5, 20, managers=managers), then))


@pytest.mark.parametrize("managers", [(), (manager("hpa-scaler"),)])
def test_a_floor_of_ours_that_etcd_brings_back_is_ours(managers: tuple[FieldManager, ...]) -> None:
    """It was taken for the user's own, and theirs was lost."""
    history = brought_back(*managers)
    assert history is not None
    assert (history.original_min, history.applied_min, history.resets) == (3, 5, 1)
    own = ownership(hpa(5, 20), history, NO_AGE, NOW)
    assert (own.minimum, own.changed) == (3, None)


def test_a_floor_that_somebody_sets_back_with_a_manifest_of_then_is_theirs() -> None:
    history = brought_back(manager("hpa-scaler", time=1), manager("argocd-controller", time=9))
    assert history is not None
    assert history.applied_min == 8
    assert ownership(hpa(5, 20), history, NO_AGE, NOW).changed is not None


def test_what_a_dry_run_knows_counts_until_somebody_else_has_written() -> None:
    records = Records(PREFIX, writes=False)
    seen = with_state(hpa(), "first")
    records.keep(seen, KNOWN)
    assert records.recall(seen) == KNOWN
    assert records.recall(with_state(seen, "second")) is None


def test_a_write_without_an_answer_is_settled_by_what_the_hpa_says() -> None:
    records, thing = Records(PREFIX, writes=True), with_state(hpa(), made(NOW - 75))
    decision = judge(thing, ASKED, answer(72.0), rules=NO_AGE)
    patch = change(decision, ASKED, NO_AGE, NOW)
    records.keep(thing, decision.history)
    assert records.recall(thing) == decision.history
    assert records.recall(with_state(thing, patch.state, min_replicas=8)) is None
    assert state_of(with_state(thing, patch.state), PREFIX)[0].history.applied_min == 8


def test_a_return_without_an_answer_is_settled_by_what_the_hpa_says() -> None:
    records = Records(PREFIX, writes=True)
    ours = with_state(hpa(minimum=5), made(NOW))
    given = restoration(ours, KNOWN, NO_AGE, NOW)
    assert given is not None
    records.keep(ours, KNOWN, returned=given)
    assert records.recall(ours) == KNOWN
    assert records.recall(with_state(ours, made(NOW), min_replicas=3)) == KNOWN
    assert records.recall(with_state(ours, None, min_replicas=3)) is None


def test_what_is_gone_is_forgotten() -> None:
    records = Records(PREFIX, writes=True)
    for uid in ("u1", "u2", "u3"):
        records.keep(hpa(uid=uid), KNOWN)
    records.retain({"u1", "u2"})
    records.forget("u2")
    assert ["u1" in records, "u2" in records, "u3" in records] == [True, False, False]
    records.begin_term()
    assert "u1" not in records
