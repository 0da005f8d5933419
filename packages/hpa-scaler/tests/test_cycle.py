"""A cycle over all HPAs."""

from __future__ import annotations

import json
from typing import Any

from hpa_builder import NO_AGE, NOW, QUERY, annotated, answer, hpa, spec

from hpa_scaler.annotations.queries import Query
from hpa_scaler.annotations.spec import LATE_QUERY, FloorSpec, Problems, Rules
from hpa_scaler.judge.decision import DropState, Subject
from hpa_scaler.judge.decision_log import log_lines, replay
from hpa_scaler.judge.history import Floor, FloorHistory
from hpa_scaler.judge.judge import asked_of, judge_cycle, judge_one, questions, subject_of, wants_rollout

ASKED = spec(prometheus_query=QUERY, requests_per_replica="10")


def subjects(values: list[float]) -> list[Subject]:
    """HPAs with a query each, which has wanted 10 until now."""
    names = [QUERY + ("" if number == 0 else str(number)) for number in range(len(values))]
    return [
        subject_of(
            hpa(10, name=f"w{number}"),
            spec(prometheus_query=name, requests_per_replica="10"),
            outcomes={Query(name): answer(value), Query("of another"): answer(1)},
            rollout=None,
            rules=NO_AGE,
            now=NOW,
            remembered=FloorHistory(answers=(Floor(int(NOW), 10),)),
        )
        for number, (name, value) in enumerate(zip(names, values, strict=True))
    ]


def test_an_hpa_asks_only_where_it_is_opted_in() -> None:
    assert asked_of(hpa(annotations={}), "tightship.dev") is None
    assert isinstance(asked_of(hpa(annotations=annotated(delta="x")), "tightship.dev"), Problems)
    found = asked_of(hpa(annotations=annotated()), "tightship.dev", {"delta": "2", "prometheus-query": "q"})
    assert isinstance(found, FloorSpec)
    assert found.queries[0].delta == 2


def test_equal_questions_of_different_hpas_are_one() -> None:
    rated = spec(prometheus_query="rate(x[5m])", hold_query="down")
    asked = [rated, spec(prometheus_query="rate(x[5m])"), Problems(("bad",)), None, ASKED]
    assert [query.text for query in questions(asked, Rules())] == [
        "rate(x[5m])",
        "time() - min(min_over_time(timestamp(up)[300s:15s]))",
        "down",
        LATE_QUERY,
        QUERY,
    ]


def test_a_target_is_looked_at_only_where_that_is_asked_for() -> None:
    assert not wants_rollout(ASKED)
    assert not wants_rollout(None)
    assert wants_rollout(spec(enable_scale_down_ratio_deployment_checking="true"))


def test_a_subject_has_the_outcomes_of_its_own_queries_only() -> None:
    assert set(subjects([1])[0].outcomes) == {Query(QUERY)}


def test_what_the_controller_remembers_comes_before_what_is_written() -> None:
    given: dict[str, Any] = {"outcomes": {}, "rollout": None, "rules": NO_AGE, "now": NOW}
    thing = hpa(annotations=annotated(state='{"applied":7,"originalMin":2,"history":{}}'))
    read = subject_of(thing, ASKED, **given)
    assert (read.history.applied_min, read.history.original_min) == (7, 2)
    known = subject_of(thing, ASKED, remembered=FloorHistory(applied_min=9), **given)
    assert known.history == FloorHistory(applied_min=9)
    assert subject_of(hpa(annotations=annotated(state="{")), ASKED, **given).state_problem


def test_each_hpa_is_judged_by_itself_and_then_with_the_others() -> None:
    cycle = judge_cycle(subjects([0.0] * 20 + [300.0]), DropState(), NO_AGE, NOW)
    assert cycle.count.dropping == 20
    assert cycle.verdict.state == DropState(NOW)
    assert {judge_one(each.subject).action for each in cycle.decisions[:20]} == {"lower"}
    assert {each.action for each in cycle.decisions[:20]} == {"hold"}
    assert cycle.decisions[20].target == 30


def test_a_cycle_is_logged_so_that_it_is_replayed() -> None:
    for values in ([0.0] * 20, [100.0, 80.0, 300.0]):
        cycle = judge_cycle(subjects(values), DropState(), NO_AGE, NOW)
        lines = log_lines(cycle, "one", DropState(), NO_AGE, NOW)
        held = not any(values)
        assert json.loads(lines[-1])["held"] is held
        assert (json.loads(lines[0])["result"]["reasons"][0] == "CorrelatedDrop") is held
        found = replay(lines)
        assert (found.decisions, found.differences) == (len(values), ())
