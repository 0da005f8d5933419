"""What is known from cycle to cycle, and when it counts no more."""

from __future__ import annotations

import msgspec
from hpa_builder import NO_AGE, NOW, QUERY, answer, hpa, judge, spec

from hpa_scaler.annotations import PREFIX, STATE, name_of
from hpa_scaler.history import History
from hpa_scaler.memory import Memory
from hpa_scaler.writing import change, restoration
from tightship.objects import HorizontalPodAutoscaler

ASKED = spec(prometheus_query=QUERY, requests_per_replica="10")
NAME = name_of(PREFIX, STATE)
KNOWN = History(original_min=3, applied_min=5)


def with_state(thing: HorizontalPodAutoscaler, text: str | None, **more: int) -> HorizontalPodAutoscaler:
    notes = {key: value for key, value in thing.annotations.items() if key != NAME}
    return msgspec.structs.replace(thing, annotations=notes | ({} if text is None else {NAME: text}), **more)


def test_what_was_kept_is_recalled_whatever_the_annotation_says() -> None:
    memory = Memory(PREFIX, writes=True)
    memory.keep(hpa(), KNOWN)
    assert memory.recall(with_state(hpa(), "changed")) == KNOWN
    assert memory.recall(hpa(uid="another")) is None


def test_what_a_dry_run_knows_counts_until_somebody_else_has_written() -> None:
    memory = Memory(PREFIX, writes=False)
    seen = with_state(hpa(), "first")
    memory.keep(seen, KNOWN)
    assert memory.recall(seen) == KNOWN
    assert memory.recall(with_state(seen, "second")) is None


def test_a_write_without_an_answer_is_settled_by_what_the_hpa_says() -> None:
    memory, thing = Memory(PREFIX, writes=True), hpa()
    decision = judge(thing, ASKED, answer(72.0), rules=NO_AGE)
    patch = change(decision, ASKED, NO_AGE, NOW)
    memory.doubt(thing, decision, patch)
    assert memory.recall(thing) == decision.history
    done = with_state(thing, patch.state, min_replicas=8)
    assert memory.recall(done) == decision.written
    # Whatever somebody did to the bounds after it, it was carried out.
    assert memory.recall(with_state(done, patch.state, min_replicas=4)) == decision.written
    later = change(decision, ASKED, NO_AGE, NOW + 60)
    assert memory.recall(with_state(thing, later.state)) == decision.history


def test_a_return_without_an_answer_is_settled_by_what_the_hpa_says() -> None:
    memory = Memory(PREFIX, writes=True)
    ours = hpa(minimum=5)
    given = restoration(ours, KNOWN, NO_AGE, NOW)
    assert given is not None
    memory.doubt_return(ours, KNOWN, given)
    assert memory.recall(ours) == KNOWN
    assert memory.recall(with_state(ours, "there", min_replicas=3)) == KNOWN
    assert memory.recall(with_state(ours, None, min_replicas=3)) is None


def test_what_is_gone_is_forgotten() -> None:
    memory = Memory(PREFIX, writes=True)
    for uid in ("u1", "u2", "u3"):
        memory.keep(hpa(uid=uid), KNOWN)
    memory.retain({"u1", "u2"})
    memory.forget("u2")
    assert ["u1" in memory, "u2" in memory, "u3" in memory] == [True, False, False]
    memory.clear()
    assert "u1" not in memory
