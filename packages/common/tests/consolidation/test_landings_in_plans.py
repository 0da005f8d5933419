"""An evaluation keeps the room of landings, and plans anew when they change."""

from __future__ import annotations

import pytest

from tightship.planning.evaluate import Evaluator
from tightship.planning.plan import Move, Plan, Removal
from tightship.process.settings.loading import load
from tightship_testkit.builders import NOW, decoded, node, pod, snapshot

from .toy import ToyJudge, ToySettings, parse


def test_landings_that_change_are_planned_with_anew() -> None:
    evaluate = Evaluator()
    seen, judge = snapshot(node("n1"), node("n2")), ToyJudge(parse({"goes": "n1"}))
    first = evaluate(seen, judge, NOW, landings={"uid-web": "n2"})
    assert first.snapshot.landings == {"uid-web": "n2"}
    assert evaluate(seen, judge, NOW, landings={"uid-web": "n2"}).plan is first.plan
    other = evaluate(seen, judge, NOW, landings={"uid-web": "n1"})
    assert other.snapshot.landings == {"uid-web": "n1"}
    assert other.plan is not first.plan
    assert evaluate(seen, judge, NOW).snapshot.landings == {}


def test_a_pod_that_a_plan_moves_twice_is_wanted_where_it_is_in_the_end() -> None:
    raw = pod("web-1", on="n1")
    raw["metadata"]["uid"] = "uid-web-1"
    web = decoded(raw)
    twice = (Removal("n1", 1, (Move(web, "n1", "n2"),)), Removal("n2", 1, (Move(web, "n2", "n3"),)))
    assert Plan("toy", "likely", twice, {}).targets == {"uid-web-1": "n3"}


@pytest.mark.parametrize("placement", ["likely", "possible"])
def test_landings_make_any_place_do(placement: str) -> None:
    assert load(ToySettings, {"placement": placement}).led.placement == "possible"
