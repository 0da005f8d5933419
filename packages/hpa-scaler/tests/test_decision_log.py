"""A log gives every decision again."""

from __future__ import annotations

import json

import pytest
from hpa_builder import DISABLED, NO_AGE, NOW, QUERY, answer, failure, hpa, spec

from hpa_scaler.annotations.queries import Outcome, Query
from hpa_scaler.annotations.spec import Problems, Rollout
from hpa_scaler.judge.decision import DropState, Subject
from hpa_scaler.judge.decision_log import LogError, cycle_line, decision_line, replay
from hpa_scaler.judge.history import Floor, FloorHistory
from hpa_scaler.judge.judge import judge_one

ASKED = spec(prometheus_query=QUERY, requests_per_replica="10", lowering_window="10m", hold_query="down")


def subjects() -> list[Subject]:
    outcomes: list[dict[Query, Outcome]] = [
        {Query(QUERY): answer(value), Query("down"): answer()} for value in (30.5, 200, "NaN")
    ]
    outcomes.append({Query(QUERY): failure(), Query("down"): failure()})
    judged = [
        Subject(hpa=hpa(10, name=f"web-{number}"), asked=ASKED, outcomes=each, now=NOW + 0.25, rules=NO_AGE)
        for number, each in enumerate(outcomes)
    ]
    history = FloorHistory(evaluated=NOW - 60, floors=(Floor(int(NOW), 12),), answered=NOW - 900.5)
    return [
        *judged,
        Subject(
            hpa=hpa(10, scale_up=DISABLED),
            asked=ASKED,
            outcomes=outcomes[1],
            history=history,
            rollout=Rollout("rolling", "x"),
            state_problem="broken",
            now=NOW,
        ),
        Subject(hpa=hpa(), asked=Problems(("bad",)), now=NOW),
        Subject(hpa=hpa(), asked=None, now=NOW),
    ]


def test_a_log_is_replayed_without_a_difference() -> None:
    made = [judge_one(subject) for subject in subjects()]
    lines = [decision_line("c1", each) for each in made]
    lines.append(cycle_line("c1", NOW, made, DropState(), NO_AGE))
    found = replay(lines)
    assert (found.decisions, found.cycles, found.unended) == (len(made), 1, 0)
    assert found.differences == ()
    assert all(line.endswith(b"\n") and line.count(b"\n") == 1 for line in lines)


def test_what_comes_out_otherwise_is_named() -> None:
    subject = subjects()[1]
    line = json.loads(decision_line("c", judge_one(subject)))
    line["result"]["target"] = 19
    end = json.loads(cycle_line("c", NOW, [judge_one(subject)], DropState(), NO_AGE))
    end["count"]["floor"] = 11
    end["held"] = True
    found = replay([json.dumps(line).encode(), json.dumps(end).encode()])
    first, second, third = found.differences
    assert str(first) == (
        "line 1: HPA shop/web-1: logged raise to 19 of 50 (FollowsQuery), now raise to 20 of 50 (FollowsQuery)"
    )
    assert second.about == third.about == "cycle c"


def test_a_cycle_that_was_cut_off_is_told_and_not_compared() -> None:
    subject = subjects()[0]
    assert replay([decision_line("c", judge_one(subject))]).unended == 1
    part = cycle_line("c", NOW, [judge_one(each) for each in subjects()], DropState(), NO_AGE)
    assert replay([decision_line("c", judge_one(subject)), part, b"\n"]).differences == ()


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (b"{", "line 2: not a line of a decision log"),
        (b'{"kind":"other"}', "line 2: not a line of a decision log"),
        (b'{"kind":"decision","v":1}', "line 2: not a line of a decision log"),
    ],
)
def test_a_line_that_can_not_be_read_is_an_error(line: bytes, says: str) -> None:
    with pytest.raises(LogError, match=says):
        replay([b"\n", line])


def test_another_version_is_an_error() -> None:
    line = cycle_line("c", NOW, [], DropState(), NO_AGE).replace(b'"v":1', b'"v":2')
    with pytest.raises(LogError, match="line 1: version 2 is not known, only 1"):
        replay([line])
