"""What a fallback hides: which data of a query may go missing unseen, and what follows when they do."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hpa_builder import CYCLE, HpaCycles, answer, failure, hpa, reasons, spec
from hypothesis import given
from hypothesis import strategies as st
from query_shapes import described, rows

from hpa_scaler.annotations.promql import MOST_OPERANDS, fallbacks, normal, parse, without_fallbacks
from hpa_scaler.annotations.queries import (
    Outcome,
    Query,
    QueryAnswer,
    operand_answer,
    operand_queries,
    range_of,
    recorded_instead,
)
from hpa_scaler.judge.history import LONGEST, State, decode_state, encode_state
from hpa_scaler.judge.sources import HANDOVER

NOTHING = ""


@pytest.mark.parametrize(
    ("query", "asked"),
    [
        # A constant in place of data.
        ("sum(rate(x[5m])) or vector(0)", "sum(rate(x[5m]))"),
        ("sum(x) OR on() vector(1)", "sum(x)"),
        ("sum(x) default -1.5", "sum(x)"),
        ("sum(x) or sum by (job) (up{a='b'}) * 0", "sum(x)"),
        ("sum(x) or 0 * absent(x)", "sum(x)"),
        ("sum(x) or label_replace(vector(0), 'a', 'b', '', '')", "sum(x)"),
        ("vector(0) or sum(x)", "sum(x)"),
        ("sum(x) or sum(up) - sum(up)", "sum(x)"),
        ("sum(x) or clamp_max(sum(up), 0) or 0 / sum(up)", "sum(x)"),
        ("topk(1, x or vector(0))", "count(x)"),
        ("sum(x, vector(0))", "count(x)"),
        ("(sum(x), vector(0))", "sum(x)"),
        ("sum(x) or vector(0) # or not", "sum(x)"),
        # Within something else.
        ("-(sum(x) or vector(0)) * 2", "sum(x)"),
        ("(sum(x) * 0 or sum(y)) * vector(0) or sum(z)", "sum(z)"),
        ("ceil(clamp_min(sum(x) or vector(0), 3))", "sum(x)"),
        ("sum(x + y or vector(0))", "count(x + y)"),
        # A value that is always the same, while its series are there: not those of the last alternative.
        ("(sum(x) > 10) * 0 + 20 or vector(3)", "sum(x)"),
        ("(max(incident) == 1) * 0 + 20 or (sum(y) > 5) * 0 + 10 or vector(3)", "max(incident) | sum(y)"),
        ("clamp_max(sum(x), 0) + 5 default 2", "clamp_max(sum(x), 0) + 5"),
        ("(hour() > 8) * 0 + 20 or vector(3)", NOTHING),
        ("(absent(x) * 0) + 20 or vector(3)", NOTHING),
        ("sum(x or y * 0)", "count(x)"),
        ("(sum(a) or vector(0)) + (sum(b) or vector(0))", "sum(a) | sum(b)"),
        ("sum(a) / ((sum(b) or vector(0)) + sum(c))", "sum(b)"),
        ("histogram_quantile(0.9, sum by (le) (x) or vector(0))", "count(sum by (le) (x))"),
        ("max_over_time((sum(rate(x[1m])) or vector(0))[10m:1m])", "sum(rate(x[1m]))"),
        (
            "max_over_time((sum(x) or vector(0))[10m:1m] offset 1w)",
            "last_over_time((sum(x))[1m:1m] offset 1w)",
        ),
        ("WITH (f(q) = sum(q) or vector(0), m = x{a='b'}) f(m) + f(y)", "sum(x{a='b'}) | sum(y)"),
        # Filters: the data are there although the result is empty.
        ("sum(rate(x[5m])) > 0 or vector(0)", "sum(rate(x[5m]))"),
        ("sum(x) > sum(y) or vector(0)", "sum(x) | sum(y)"),
        ("sum(x) > bool 0 or vector(0)", "sum(x) > bool 0"),
        ("count(up == 1) or vector(0)", "count(up)"),
        ("sum(a) / (sum(b) > 0) or vector(0)", "sum(a) | sum(b)"),
        ("sum(a) and on () (sum(b) > 3) or vector(0)", "sum(a) | sum(b)"),
        ("sum(a) and on () flag or vector(0)", "sum(a) | brief count(flag)"),
        ("sum(a) if (flag) default 0", "sum(a) | brief count(flag)"),
        ("sum(a) unless on () absent(b) or vector(0)", "sum(a) | brief count(b)"),
        ("vector(9) unless on () sum(b) < 3 or vector(0)", "sum(b)"),
        ("sum(a) and on () ALERTS{alertname='Rush'} or vector(0)", "sum(a)"),
        # What makes a number of no series, and operators that fill in.
        ("max(vector(scalar(sum(x))) or vector(3))", "NaN scalar(sum(x))"),
        ("sum(y) * scalar(x or vector(0))", "count(x)"),
        ("sum(x) + fill(0) sum(y)", "sum(x) | sum(y)"),
        ("sum(x) + on () fill_right(0) sum(y)", "sum(x) | sum(y)"),
        # Alternatives.
        ("sum(new) or sum(old)", "or sum(new) | or sum(old)"),
        ("sum(new) default sum(old) default 0", "or sum(new) | or sum(old)"),
        ("sum(x) or sum(y) * 10", "or sum(x) | or sum(y) * 10"),
        ("x == 1 or x == 2", "or count(x)"),
        ('{"my.metric"} or vector(0)', 'count({__name__="my.metric"})'),
        # Names that are those of functions and operators too.
        ("scalar or vector(0)", "count(scalar)"),
        ("absent or union or vector(0)", "or count(absent) | or count(union)"),
        ("sum(if) or vector(0)", "sum(if)"),
        ("sum(x) + on (fill_level) sum(y)", NOTHING),
        ("SUM(x) OR VECTOR(0)", "sum(x)"),
        ("MAX(SCALAR(sum(x)))", "NaN SCALAR(sum(x))"),
        # As people write them: dashboards of Grafana, ScaledObjects of KEDA, rules of VictoriaMetrics' vmalert.
        ("sum(x)or vector(0)", "sum(x)"),
        ("sum(x) or (vector(0))", "sum(x)"),
        ("sum(x) or vector(0)*5", "sum(x)"),
        ("sum(x) or 0*time()", "sum(x)"),
        ("sum(x) or vector(time())*0", "sum(x)"),
        ("sum(x) or count(vector(0))*0", "sum(x)"),
        ("keep_last_value(sum(x)) or 0", "keep_last_value(sum(x))"),
        ('label_replace(sum(x) or vector(0), "a","b","c","d")', "sum(x)"),
        ("quantile(0.9, x or vector(0))", "count(x)"),
        ("sum_over_time((x or vector(0))[5m:])", "count(x)"),
        ("(sum(x) or vector(0)) > 10", "sum(x)"),
        ("(sum(x) or vector(0)) > 10 or vector(3)", "sum(x)"),
        ("sum(x) + (absent(sum(y))*0 or sum(y))", "sum(y)"),
        ("absent(sum(x)) * 0 or sum(x)", "sum(x)"),
        ("(sum(x) and sum(x) > 0) or vector(0)", "sum(x)"),
        ("sum(x) or absent(sum(x)) - 1", "sum(x)"),
        ("bottomk(1, sum(x) or vector(100))", "sum(x)"),
        ("sum(x) unless sum(x) < 10 or vector(10)", "sum(x)"),
        ("sum(x) or group(x)*0", "sum(x)"),
        ("sum(x) or group(up)*0", "sum(x)"),
        ('sum(x) or (up{job="a"} * 0)', "sum(x)"),
        ("sum(rate(a[5m])) or sum(rate(b[5m])) or vector(0)", "or sum(rate(a[5m])) | or sum(rate(b[5m]))"),
        ("sum by (h) (rate(x[5m])) or on (h) vector(0)", "count(sum by (h) (rate(x[5m])))"),
        ("max(sum(x) or vector(0), 1)", "sum(x)"),
        (
            '(sum(rate(x{code!~"5.."}[5m])) or vector(0)) / (sum(rate(x[5m])) > 0) or vector(1)',
            'sum(rate(x{code!~"5.."}[5m])) | sum(rate(x[5m]))',
        ),
        ("round(sum(rate(x[5m]))) or on() vector(0)", "round(sum(rate(x[5m])))"),
        ("sum(max_over_time(x[5m])) or vector(0) offset 5m", "sum(max_over_time(x[5m]))"),
        ("sum(x @ end()) or vector(0)", "sum(x @ end())"),
        ("sum(x offset -5m) or vector(0)", "sum(x offset -5m)"),
        ("sort_desc(sum(x) or vector(0))", "sum(x)"),
        ("sum without (a) (x or vector(0))", "count(x)"),
        ("sum(x) or vector(NaN)", "sum(x)"),
        ("sum(x) or vector(1/0)", "sum(x)"),
        ("sum(x) or vector(-1)", "sum(x)"),
        ("avg_over_time(sum(x)[5m:]) or vector(0)", "avg_over_time(sum(x)[5m:])"),
        ("sum(avg_over_time(x[5m])) default 0 keep_metric_names", "sum(avg_over_time(x[5m]))"),
        (
            "max(quantile_over_time(0.95, sum(rate(x[1m]))[10m:1m]) or vector(2))",
            "quantile_over_time(0.95, sum(rate(x[1m]))[10m:1m])",
        ),
        ("count(x > 0) or vector(0)", "count(x)"),
        ('count_values("v", x) or vector(0)', 'count(count_values("v", x))'),
        (
            "histogram_quantile(0.99, sum by (le) (rate(x_bucket[5m]))) or vector(0)",
            "count(histogram_quantile(0.99, sum by (le) (rate(x_bucket[5m]))))",
        ),
        ("sum(x) + on() group_left() (sum(y) or vector(0))", "sum(y)"),
        ("sum(x) * on() (1 + (max(y) or vector(0)))", "max(y)"),
        ("sum(x) - (sum(y) or vector(0))", "sum(y)"),
        ("(sum(x) or vector(0)) + sum(y)", "sum(x)"),
        ("sum(x) atan2 (sum(y) or vector(0))", "sum(y)"),
        ("sum(x) and on() vector(1) or vector(0)", "sum(x)"),
        ("(max(sum(x)) or max(sum(y))) or vector(0)", "or max(sum(x)) | or max(sum(y))"),
        ("sum(x) or sum(x offset 1w)", "or sum(x) | or sum(x offset 1w)"),
        ("sum(x) or sum(x offset 5m) or vector(0)", "or sum(x) | or sum(x offset 5m)"),
        ("last_over_time(sum(x)[10m:1m]) or vector(0)", "last_over_time(sum(x)[10m:1m])"),
        ("sum(x) != 0 or vector(5)", "sum(x)"),
        ("sum(x) > -1 or vector(0)", "sum(x)"),
        ("scalar(sum(x) or vector(0)) + 1", "sum(x)"),
        ("vector(scalar(sum(x)) > bool 0)", "NaN scalar(sum(x))"),
        ("limitk(5, x or vector(0))", "count(x)"),
        ("info(x) or vector(0)", "count(info(x))"),
        ("sum(first_over_time(x[5m])) or vector(0)", "sum(first_over_time(x[5m]))"),
        (
            "double_exponential_smoothing(x[5m],0.5,0.5) or vector(0)",
            "count(double_exponential_smoothing(x[5m], 0.5, 0.5))",
        ),
        ("predict_linear(sum(x)[30m:1m], 600) or vector(0)", "predict_linear(sum(x)[30m:1m], 600)"),
        ("clamp(sum(x) or vector(0), 1, 10)", "sum(x)"),
        ("clamp_min(sum(x), 5) or vector(5)", "clamp_min(sum(x), 5)"),
        ("time() - max(ts) < 60 or vector(0)", "time() - max(ts)"),
        ('sum(label_keep(x,"a")) or 0', 'sum(label_keep(x, "a"))'),
        ("union(sum(x), 0)", "sum(x)"),
        ("sum(x) or 0", "sum(x)"),
        ("0 or sum(x)", "sum(x)"),
        ("if(sum(x), 1)", NOTHING),
        ('sum(rate({__name__=~"http.*_total"}[5m])) or vector(0)', 'sum(rate({__name__=~"http.*_total"}[5m]))'),
        ('sum(rate({"http.requests", job="a"}[5m])) or vector(0)', 'sum(rate({__name__="http.requests",job="a"}[5m]))'),
        (
            'sum(rate(http_requests_total{job="a",} [5m] offset 1m)) or vector(0)',
            'sum(rate(http_requests_total{job="a"}[5m] offset 1m))',
        ),
        ("sum(rate(x[5m:30s])) or vector(0)", "sum(rate(x[5m:30s]))"),
        ("(sum(x) or vector(0)) * 0 + 5", NOTHING),
        ("sum(x) or sum(kube_deployment_spec_replicas) * 0", "sum(x)"),
        ("sum(x) or sum(kube_hpa_spec_min_replicas)", "or sum(x) | or sum(kube_hpa_spec_min_replicas)"),
        ("sum(x) or max(hpa_min) * 10", "or sum(x) | or max(hpa_min) * 10"),
        ("max_over_time(sum(x)[1h:]) or vector(0)", "max_over_time(sum(x)[1h:])"),
        ("sum(changes(x[5m])) or vector(0)", "sum(changes(x[5m]))"),
        ("(sum(x) > 5) or (sum(x) <= 5) * 0 + 5", "sum(x)"),
        ("(sum(x) > bool 5) * sum(x)", NOTHING),
        ("sum(x) + ((sum(y) > 0) or vector(0))", "sum(y)"),
        ("ceil(sum(x)/10) or vector(1)", "ceil(sum(x) / 10)"),
        ("sum(x)/10 or vector(1) # comment or more", "sum(x) / 10"),
        ("sum(x)  or  vector( 0 )", "sum(x)"),
        # Nothing that may go missing unseen.
        ("", NOTHING),
        ("sum(rate(x[5m]))", NOTHING),
        ("sum(x) + vector(0)", NOTHING),
        ("sum(x{a='or vector(0)'})", NOTHING),
        ("sum(x) # or vector(0)", NOTHING),
        ("sum by (default) (x)", NOTHING),
        ("sum(x) > 5 and on () sum(y) > 3", NOTHING),
        ("vector(10) and on() (hour() >= 8 < 18) or vector(2)", NOTHING),
        ("vector(time() % 60) or vector(day_of_week())", NOTHING),
        ("absent(x)", NOTHING),
        ("sum(x) or", NOTHING),
    ],
)
def test_each_operand_that_a_fallback_hides_is_asked_for(query: str, asked: str) -> None:
    found = [
        f"{'brief ' if each.optional else ''}{'or ' if each.group else ''}{'NaN ' if each.single else ''}{each.text}"
        for each in fallbacks(query).operands
    ]
    assert " | ".join(found) == asked


def test_the_shapes_of_public_dashboards_rules_and_scaled_objects_are_told_apart() -> None:
    """What Prometheus' own parser reads, this one reads; ``e2e/tests/test_promql.py`` asks that parser again."""
    found = rows()
    assert len(found) >= 1000
    assert [query for verdict, query, _ in found if verdict == "ok" and parse(query) is None] == []
    assert [(query, described(query)) for _, query, operands in found if described(query) != operands] == []


def test_the_normal_form_of_a_query_is_its_own() -> None:
    assert [query for _, query, _ in rows() if normal(normal(query)) != normal(query)] == []


def test_many_operands_are_asked_for_together() -> None:
    query = " + ".join(f"(sum(x{number}) or vector(0))" for number in range(20))
    found = fallbacks(query).operands
    assert len(found) == MOST_OPERANDS + 1
    assert found[-1].text == " and on () ".join(f"(sum(x{number}))" for number in range(MOST_OPERANDS, 20))


LONG = ("(", "or ", "or(", ")", "[", "x or 0 ", '"\\"', "(a or vector(0) ", "#", "` `", "(vector(", "-", "x[1m:", "{a=")


@pytest.mark.parametrize("part", [*LONG, *(f"x or {each}" for each in LONG)])
@pytest.mark.parametrize("length", [500, 5_000, 200_000])
def test_no_text_is_too_much(part: str, length: int) -> None:
    assert fallbacks(part * (length // len(part))).operands is not None


WORDS = """x sum( absent( scalar( max_over_time( ( ) ) ) or and unless if default + - * / 0 1 > bool on() by (a) [5m]
[5m:1m] offset 1h @ { } = 'v' a , vector( up fill(0) with ( info("""


@given(st.lists(st.sampled_from(WORDS.split()), max_size=24).map(" ".join))
def test_no_text_breaks_the_reader(query: str) -> None:
    found = fallbacks(query)
    assert all(parse(each.text) is not None for each in found.operands)
    assert normal(normal(query)) == normal(query)


def test_templates_that_double_each_other_end() -> None:
    doubled = ", ".join(f"a{number + 1} = a{number} + a{number}" for number in range(60))
    assert parse(f"WITH (a0 = x, {doubled}) a60") is None


@pytest.mark.parametrize(
    "query", ["sum(rate(x[1m])) default 0", "sum(rate(x[1m])) or sum(up)*0", "sum(x) or vector(0)"]
)
def test_a_query_with_a_fallback_looks_back_two_minutes_at_least(query: str) -> None:
    asked = spec(prometheus_query=query)
    assert range_of(asked.queries[0], asked, 3600) == 120


# What follows. A web's queries are answered from what has series: a name and its value.


def after_stages(query: str, *stages: tuple[int, Mapping[str, float]], minimum: int = 10) -> HpaCycles:
    """Let cycles pass, so many in each of *stages*; an operand has series if a name of the stage is in its text."""
    asked = spec(prometheus_query=query, requests_per_replica="10", lowering_window="0", query_range="0")
    web = HpaCycles(hpa(minimum), asked)
    for cycles, there in stages:
        outcomes: dict[Query, Outcome] = {
            each: answer(1.0) if any(f"({name})" in each.text for name in there) else answer()
            for _, each in operand_queries(asked.queries[0])
        }
        for _ in range(cycles):
            web.cycle(sum(there.values()), others=outcomes)
    return web


BOTH, NONE = {"a": 50.0, "b": 30.0}, dict[str, float]()
HOURS = int(2 * HANDOVER / CYCLE)
PARTS = "(sum(a) or vector(0)) + (sum(b) or vector(0))"
EITHER = "sum(a) or sum(b)"
FLAG = "sum(a) and on () count(b) or vector(0)"


@pytest.mark.parametrize(
    ("query", "stages", "floor"),
    [
        pytest.param(PARTS, [(3, BOTH), (HOURS, {"b": 30.0})], 8, id="one of two parts is lost"),
        pytest.param(PARTS, [(3, BOTH), (HOURS, NONE)], 8, id="both are lost"),
        pytest.param(PARTS, [(3, {"b": 80.0}), (HOURS, {"b": 30.0})], 3, id="a part that never was is not lost"),
        pytest.param(PARTS, [(3, {"b": 80.0}), (HOURS, NONE)], 8, id="the only part that ever was is lost"),
        pytest.param(PARTS, [(HOURS, NONE)], 10, id="nothing ever was"),
        pytest.param("clamp_min(sum(a) or vector(0), 3)", [(HOURS, NONE)], 10, id="in a function, nothing ever was"),
        pytest.param("sum(a) > 5 or vector(0)", [(3, {"a": 80.0}), (9, {"a": 0.0})], 3, id="filtered, and there"),
        pytest.param(f"{EITHER} or vector(0)", [(3, {"a": 80.0}), (9, {"b": 40.0})], 8, id="a new name, at first"),
        pytest.param(EITHER, [(3, {"a": 80.0}), (9, {"b": 40.0})], 8, id="a new name without a fallback, at first"),
        pytest.param(EITHER, [(3, {"a": 80.0}), (HOURS, {"b": 40.0})], 4, id="a new name, after an hour"),
        pytest.param(EITHER, [(3, {"a": 80.0}), (HOURS, {"b": 40.0}), (HOURS, NONE)], 4, id="then that is lost"),
        pytest.param(FLAG, [(3, {"a": 80.0, "b": 0.0}), (9, {"a": 0.0})], 8, id="a flag that has just gone"),
        pytest.param(FLAG, [(3, {"a": 80.0, "b": 0.0}), (HOURS, {"a": 0.0})], 3, id="a flag that has gone"),
        pytest.param(FLAG, [(3, {"a": 80.0}), (HOURS, NONE)], 8, id="the data beside a flag are lost"),
        pytest.param("vector(9) and on () hour() > 8 or vector(2)", [(3, {"": 90.0}), (9, NONE)], 3, id="a schedule"),
    ],
)
def test_no_fallback_hides_a_lost_series(query: str, stages: list[tuple[int, Mapping[str, float]]], floor: int) -> None:
    assert after_stages(query, *stages).bounds[0] == floor


def test_what_is_lost_is_named() -> None:
    web = after_stages(PARTS, (3, BOTH))
    decision = web.cycle(0, others={Query("sum(a)"): answer(), Query("sum(b)"): answer()})
    assert "FallbackAnswer" in reasons(decision)
    assert "sum(a) has no series since 2027-01-15T08:02:30Z, nor has 1 other operand" in str(decision.causes[0])


def test_a_scalar_that_is_no_number_has_no_series() -> None:
    asked = spec(prometheus_query="max(vector(scalar(sum(x))) or vector(3))", lowering_window="0", query_range="0")
    part, web = Query("scalar(sum(x))"), HpaCycles(hpa(9), asked)
    web.cycle(9, others={part: answer(9.0)})
    for told_of_it, floor in ((answer("NaN"), 9), (failure(), 9), (answer(3.0), 3)):
        web.cycle(3, others={part: told_of_it})
        assert web.bounds[0] == floor


def test_what_had_series_is_known_to_the_next_leader() -> None:
    web = after_stages(PARTS, (3, BOTH))
    text = encode_state(State(history=web.history), web.asked, web.now)
    assert decode_state(text).history.met == web.history.met != {}


def test_a_state_with_many_operands_still_fits() -> None:
    web = after_stages(
        " + ".join(f"(sum(x{number}) or vector(0))" for number in range(20)), (3, {f"x{n}": 5 for n in range(20)})
    )
    assert len(web.history.met) == MOST_OPERANDS + 1
    assert len(encode_state(State(history=web.history), web.asked, web.now)) <= LONGEST


# Files that somebody wrote, or an earlier version.


def test_a_file_may_have_the_operand_in_other_words_or_the_query_without_its_fallbacks() -> None:
    asked = spec(prometheus_query=PARTS)
    first, second = (each for _, each in operand_queries(asked.queries[0]))
    whole = Query("((sum(a) )) + (sum(b) )")
    assert list(recorded_instead(asked, [first, Query("( sum( b ) )")])) == [(second, Query("( sum( b ) )"), None)]
    assert [each[:2] for each in recorded_instead(asked, [whole])] == [(first, whole), (second, whole)]
    assert list(recorded_instead(asked, [first, second, whole])) == []


@pytest.mark.parametrize(
    ("query", "whole", "value", "there"),
    [
        (PARTS, answer(), 0, 0),
        (PARTS, answer(), 400, 1),
        (PARTS, answer(7.0), 0, 1),
        ("max(sum(a) or vector(5))", answer(), 400, 0),
        ("scalar(a or vector(0))", answer("NaN"), 400, 0),
    ],
)
def test_a_value_that_only_fallbacks_have_tells_that_all_operands_are_missing(
    query: str, whole: QueryAnswer, value: float, there: int
) -> None:
    assert operand_answer(whole, spec(prometheus_query=query).queries[0], answer(value)) == QueryAnswer(there)


def test_a_query_without_its_fallbacks_keeps_alternatives() -> None:
    tree = parse("sum(new or old or vector(0)) + (sum(y) default 0)")
    assert tree is not None
    assert without_fallbacks(tree).text == "sum(new or old) + sum(y)"
