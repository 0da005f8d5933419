"""What servers know of their own gaps, and which HPAs it holds."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hpa_builder import NOW, HpaCycles, answer, hpa, judge, reasons, spec

from hpa_scaler.annotations.queries import Failure, Outcome, Query, QueryAnswer
from hpa_scaler.annotations.spec import FAILED_QUERY, LATE_QUERY, Rules
from hpa_scaler.judge.judge import judge_one, questions, subject_of
from hpa_scaler.judge.sources import evidence_queries
from tightship.objects.reasons import Reason
from tightship_simulator.life.evaluation import evaluate
from tightship_simulator.life.promql import parse
from tightship_simulator.life.samples import Samples

ASKED = 'sum(rate(requests_total{app="web", code!="500"}[1m]))'
RULES = Rules(age_query="")
WARM: dict[str, Any] = {"rules": Rules(age_query="", longest_guard=0.0)}
"""Rules by which no data are too young."""
LATE = Query(LATE_QUERY)
FAILED = Query(FAILED_QUERY.replace("{range}", "60"), labels=True)


def asks(query: str = ASKED, **more: str) -> Any:
    return spec(prometheus_query=query, requests_per_replica="10", lowering_window="0", **more)


def failed(*targets: dict[str, str], others: int = 0) -> QueryAnswer:
    return msgspec.structs.replace(answer(*[0.5] * (len(targets) + others)), targets=targets)


def held_by(query: str, outcome: QueryAnswer) -> list[str]:
    """Return the reasons of an HPA whose query wants less, where its server has answered that of failed targets."""
    asked = asks(query)
    [evidence] = [each for each in evidence_queries(asked, RULES) if each.labels] or [FAILED]
    cycles = HpaCycles(hpa(10), asked, RULES)
    for _ in range(5):
        decision = cycles.cycle(40, others={evidence: outcome})
    return [each for each in reasons(decision) if each != "FollowsQuery"]


def values_of(query: str, ups: dict[int, int], now: int) -> list[float]:
    """Return the values with which a Prometheus answers *query* at *now* that has scraped ``up`` at these seconds."""
    samples = Samples(kept=7200.0)
    for at, up in ups.items():
        samples.add((("__name__", "up"), ("instance", "a")), at * 1000, up)
    return [float(each["value"][1]) for each in evaluate(samples, parse(query), now)["data"]["result"]]


@pytest.mark.parametrize("every", [5, 15, 60])
@pytest.mark.parametrize("since", [4000, 6800], ids=["an hour of data", "little data"])
def test_how_late_samples_are_shows_also_in_data_of_minutes(every: int, since: int) -> None:
    scraped = dict.fromkeys(range(since, 7201, every), 1)
    [prompt] = values_of(LATE_QUERY, scraped, max(scraped) + every - 1)
    assert 0 < prompt < 1.5
    [late] = values_of(LATE_QUERY, {at: up for at, up in scraped.items() if at <= 7200 - 4 * every}, 7200)
    assert late > 3


@pytest.mark.parametrize(
    ("ups", "tells"),
    [
        ({at: int(at % 10 < 4) for at in range(7050, 7200, 5)}, True),
        ({at: int(at < 7170) for at in range(7050, 7200, 5)}, True),
        ({at: int(at < 4000) for at in range(3610, 7200, 15)}, True),
        (dict.fromkeys(range(3610, 7200, 15), 0), False),
        (dict.fromkeys(range(7050, 7200, 5), 1), False),
    ],
    ids=["flaps, young data", "gone, young data", "gone since almost an hour", "never there", "always there"],
)
def test_a_target_that_was_there_counts_as_failed_however_young_the_data_are(ups: dict[int, int], tells: bool) -> None:
    assert bool(values_of(FAILED_QUERY.replace("{range}", "60"), ups, 7200)) is tells


TARGET = {"job": "pods", "instance": "10.1.2.3:80", "app": "web", "namespace": "shop"}


def test_a_target_of_the_query_that_can_not_be_scraped_holds_the_floor() -> None:
    cycles = HpaCycles(hpa(10), asks(), RULES)
    for _ in range(3):
        decision = cycles.cycle(40, others={FAILED: failed(TARGET)})
    assert (decision.target, decision.reason) == (10, "FailedScrapes")
    assert decision.causes[0].detail == (
        "1 target of the query could not always be scraped within 60s: pods 10.1.2.3:80"
    )
    assert cycles.cycle(40, others={FAILED: failed()}).target == 4
    assert cycles.cycle(90, others={FAILED: failed(TARGET)}).target == 9, "it keeps none from rising"


@pytest.mark.parametrize(
    ("selector", "concerned"),
    [
        ('x{app="web"}', True),
        ('x{app="web", code="200"}', True),
        ('x{app="web", namespace="shop"}', True),
        ('x{app="web", namespace="other"}', False),
        ('x{app="other"}', False),
        ('x{namespace="shop"}', True),
        ('x{code="200"}', False),
        ("x{app='web'}", True),
        ("x{app=`web`}", True),
        ('x{app="we\\x62"}', False),
        ('x{app=~"web"}', True),
        ('x{app=~"we.*"}', True),
        ('x{app=~"we.+", namespace!="shop"}', False),
        ('x{app=~"api|web"}', True),
        ('x{app=~"(api|web)"}', True),
        ('x{app=~"api|other"}', False),
        ('x{app=~"other.*"}', False),
        ('x{app=~".*"}', False),
        ('x{app=~"(a+)+b", job="pods"}', True),
        ('x{app!="web"}', False),
        ('x{app!="other", job="pods"}', True),
        ('x{app!~"web", job="pods"}', False),
        ('x{app="other"} / on () y{app="web"}', True),
        ('{__name__="x", app="web"}', True),
        ('x{app="web", service="web"}', False),
        ('x{namespace="shop", code="200"}', False),
        ('x{namespace="shop", service=""}', True),
        ('x{namespace="shop"} / on () y{app="web"}', True),
        ('x{cluster="one"}', False),
        ("x", False),
    ],
)
def test_which_targets_a_query_is_about_follows_from_the_labels_they_have(selector: str, concerned: bool) -> None:
    assert held_by(f"sum({selector})", failed({**TARGET, "cluster": "one"})) == ["FailedScrapes"] * concerned


def test_where_so_many_fail_that_they_were_not_all_told_all_are_held() -> None:
    assert held_by('sum(x{app="other"})', failed(TARGET)) == []
    assert held_by('sum(x{app="other"})', failed(TARGET, others=1)) == ["FailedScrapes"]
    assert held_by("sum(x)", failed(TARGET, others=1)) == [], "it says nothing of its targets"


def test_a_few_of_many_are_named() -> None:
    decision = judge(hpa(10), asks(), 40, others={FAILED: failed(*[TARGET] * 5)}, now=NOW)
    [cause] = [each for each in decision.causes if each.reason == "FailedScrapes"]
    assert cause.detail.endswith("within 60s: pods 10.1.2.3:80, pods 10.1.2.3:80, pods 10.1.2.3:80 and 2 more")


@pytest.mark.parametrize(
    ("outcome", "held"),
    [
        (answer(1.0), False),
        (answer(1.5), False),
        (answer(1.6), True),
        (answer(40), True),
        (answer(), False),
        (answer("NaN"), False),
        (Failure(Reason.TIMED_OUT), False),
    ],
)
def test_samples_that_come_late_hold_the_floor(outcome: Outcome, held: bool) -> None:
    cycles = HpaCycles(hpa(10), asks(), RULES)
    for _ in range(3):
        decision = cycles.cycle(40, others={LATE: outcome})
    assert (decision.target, decision.reason) == ((10, "LateSamples") if held else (4, "FollowsQuery"))


def test_what_is_wished_while_the_evidence_stands_against_it_is_not_remembered() -> None:
    asked = spec(prometheus_query=ASKED, requests_per_replica="10", lowering_window="3m")
    cycles = HpaCycles(hpa(10), asked, RULES)
    for _ in range(6):
        cycles.cycle(40, others={FAILED: failed(TARGET)})
    assert [cycles.cycle(40).target for _ in range(4)] == [10, 10, 4, 4]


def test_an_answer_that_is_missing_is_no_end_of_traffic_while_its_targets_fail() -> None:
    asked = asks(missing_data="zero", missing_data_after="1")
    assert judge(hpa(10), asked, answer(), others={FAILED: failed(TARGET)}).target == 10
    assert judge(hpa(10), asked, answer()).target == 3


def test_a_server_is_asked_once_for_all_who_ask_it_the_same() -> None:
    specs = [asks(f'sum(rate(x{{app="a{number}"}}[1m]))') for number in range(100)]
    assert len(questions(specs, RULES)) == 100 + 2
    more = [asks(ASKED, prometheus_server="other"), asks(ASKED.replace("1m", "5m"))]
    assert len(questions([*specs, *more], RULES)) == 102 + 2 + 2 + 1


@pytest.mark.parametrize(
    "rules", [Rules(cold_guard=False), Rules(late_query="", failed_query=""), Rules(cold_guard=False, late_query="")]
)
def test_what_is_switched_off_is_not_asked(rules: Rules) -> None:
    assert list(evidence_queries(asks(), rules)) == []


def test_without_a_word_on_its_targets_only_the_server_is_asked() -> None:
    assert list(evidence_queries(asks("sum(x)"), RULES)) == [LATE]


def test_a_judgement_has_the_targets_of_its_own_hpa_only() -> None:
    others = [{**TARGET, "app": "other", "instance": str(number)} for number in range(500)]
    whole = {FAILED: failed(TARGET, *others), LATE: answer(1), Query(ASKED): answer(40)}
    subject = subject_of(hpa(10), asks(), outcomes=whole, rollout=None, rules=RULES, now=NOW)
    assert subject.outcomes == {**whole, FAILED: failed(TARGET)}
    of_other = subject_of(
        hpa(10), asks('x{app="a"}', query_range="60"), outcomes=whole, rollout=None, rules=RULES, now=NOW
    )
    found = of_other.outcomes[FAILED]
    assert isinstance(found, QueryAnswer)
    assert (found.series, found.targets) == (0, ())


def test_where_too_many_of_its_own_fail_all_count() -> None:
    whole = {FAILED: failed(*[TARGET] * 21), Query(ASKED): answer(40)}
    subject = subject_of(hpa(10), asks(), outcomes=whole, rollout=None, rules=RULES, now=NOW)
    assert subject.outcomes[FAILED] == failed(others=21)
    [cause] = [each for each in judge_one(subject).causes if each.reason == "FailedScrapes"]
    assert cause.detail == "21 targets of server default could not always be scraped within 60s"
