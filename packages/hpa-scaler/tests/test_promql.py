"""How far back a query looks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpa_scaler.annotations.promql import LONGEST_REMEMBERED, lookback, parse

M, H, D = 60, 3600, 86400


@pytest.mark.parametrize(
    ("query", "seconds"),
    [
        ("up", 0),
        ("", 0),
        ("42", 0),
        ("sum(rate(x[5m]))", 5 * M),
        ("sum(rate(x{a='b'}[5m])) by (app)", 5 * M),
        ("sum by (app) (rate(x[5m]))", 5 * M),
        ("rate(x[1h30m])", 90 * M),
        ("rate(x[1w2d])", 9 * D),
        ("rate(x[1y])", 365 * D),
        ("rate(x[1500ms])", 1.5),
        ("rate(x[ 5m ])", 5 * M),
        ("rate(x [5m])", 5 * M),
        ("rate(x[300])", 300),
        ("rate(a[1m]) + rate(b[10m]) / rate(c[5m])", 10 * M),
        ("max(rate(a[10m]), rate(b[1m]))", 10 * M),
        ("max_over_time(rate(x[5m])[1h:1m])", H + 5 * M),
        ("max_over_time(rate(x[5m])[1h:])", H + 5 * M),
        ("max_over_time(rate(x[5m])[1h : 1m])", H + 5 * M),
        ("max_over_time((rate(a[5m]) + rate(b[20m]))[1h:1m])", H + 20 * M),
        ("max_over_time(sum(rate(x[5m]))[1h:1m] offset 1d)", D + H + 5 * M),
        ("rate(x[5m] offset 1h)", H + 5 * M),
        ("rate(x[5m]) offset 1h", H + 5 * M),
        ("x offset 1h + rate(y[5m])", H),
        ("rate(x[5m] OFFSET 1h)", H + 5 * M),
        ("rate(x[5m] offset -1h)", 5 * M),
        ("rate(x[5m] offset - 1h)", 5 * M),
        ("rate(x[5m] @ 1609746000)", 5 * M),
        ("rate(x[5m] @ end())", 5 * M),
        ("rate(x[5m] @ start() offset 1h)", H + 5 * M),
        ("rate(x[5m] @ 1609746000.5) > 3", 5 * M),
        ("http_offset_total", 0),
        ("sum(offset_total[5m])", 5 * M),
        ("job:requests:rate5m", 5 * M),
        ("sum(app:requests:sum_rate1h30m{app='b'})", 90 * M),
        ("max_over_time(job:requests:rate5m[1h])", H + 5 * M),
        ("job:requests:rate5m offset 1h", H + 5 * M),
        ('{__name__="job:requests:rate5m", app="b"}', 5 * M),
        ('{"job:requests:rate5m", app="b"}', 5 * M),
        ('label_replace(x, "a", "job:requests:rate5m", "b", "")', 0),
        ('x{rule="job:requests:rate5m"}', 0),
        ('label_replace(rate(x[5m]), "a", "[1h]", "b", "(.*)[1d]")', 5 * M),
        (r'x{a="\"[1h]", b=~"}[1h]"}', 0),
        ("x{a='it\\'s [1h]'}", 0),
        ("x{a=`\\`}[5m]", 5 * M),
        ('{__name__="x", "quoted.label"="[1h]"}[5m]', 5 * M),
        ("rate(x[5m]) # not rate(x[1h])\n + rate(y[6m])", 6 * M),
        ("rate(x[5m # five\n])", 5 * M),
        ('"# no comment" + rate(x[5m])', 5 * M),
        ("x{a='b'} # {\n + rate(y[5m])", 5 * M),
        ("(((rate(x[5m]))))", 5 * M),
        ("vector(0) or rate(x[5m])", 5 * M),
        ("sum(rate(x[5m])) or vector(0)", 5 * M),
        ("quantile_over_time(0.9, rate(x[5m])[30m:5m])", 35 * M),
        ("1e3 * rate(x[5m])", 5 * M),
        ("0x1F * .5 * rate(x[5m])", 5 * M),
        ("rate(x[5m]) unless on(a) rate(y[10m] offset 5m)", 15 * M),
        ("time() - min(min_over_time(timestamp(up)[5m:15s]))", 5 * M),
        ("rate(x[5m] offset (1h + 2h))", 3 * H + 5 * M),
        ("rate(x[5m*2])", 10 * M),
        ("rate(x[1.5m])", 90),
        ("max_over_time(x[5m:step()])", 5 * M),
        ("WITH (w = 5m, f(q) = rate(q[w])) f(x) + f(y offset 1h)", H + 5 * M),
    ],
)
def test_a_query_looks_back_as_far_as_its_ranges_and_offsets_say(query: str, seconds: float) -> None:
    found = lookback(query)
    assert found.seconds == seconds
    assert found.readable


@pytest.mark.parametrize(
    ("query", "seconds"),
    [
        ("rate(x[$__rate_interval])", 0),
        ("rate(x[five]) + rate(y[5m])", 5 * M),
        ("rate(x[])", 0),
        ("rate(x[5m", 0),
        ("rate(x[5m*step()])", 0),
        ("rate(x[5i])", 0),
        ("rate(x[-5m])", 0),
    ],
)
def test_what_is_not_understood_is_said_so(query: str, seconds: float) -> None:
    found = lookback(query)
    assert found.seconds == seconds
    assert not found.readable


def test_a_query_too_long_to_be_remembered_is_read_all_the_same() -> None:
    long = f'rate(x{{app="{"a" * LONGEST_REMEMBERED}"}}[5m])'
    assert lookback(long).seconds == 5 * M


@pytest.mark.parametrize("query", ["rate(x[5m])))", "((rate(x[5m])", "rate(x[5m]) 'open", "x{a='b', rate(x[5m])"])
def test_broken_queries_are_scanned_as_far_as_they_go(query: str) -> None:
    assert lookback(query).seconds in (0, 5 * M)


@pytest.mark.parametrize("query", ["a:b:sum", "sum(:b)", '{__name__=~"app:.*"}', "max_over_time(a:b:ratio[1h])"])
def test_a_recording_rule_whose_name_has_no_range_hides_it(query: str) -> None:
    assert lookback(query).hidden


@pytest.mark.parametrize("query", ["x", "a:b:rate5m", 'x{a="b:c"}', "max_over_time(rate(x[5m])[1h : 1m])"])
def test_what_is_no_such_rule_hides_nothing(query: str) -> None:
    assert not lookback(query).hidden


@pytest.mark.parametrize("digits", [13, 400, 5000])
def test_a_range_of_so_many_digits_is_none(digits: int) -> None:
    assert not lookback(f"rate(x[{'9' * digits}s])").readable


def test_the_selectors_of_a_query_are_told() -> None:
    query = """rate(x{"job"="a", app!~'b|c'}[5m]) / on (app) sum({"y", zone=`d}`}) or z"""
    assert lookback(query).selectors == (
        (("job", "=", '"a"'), ("app", "!~", "'b|c'")),
        (("__name__", "=", '"y"'), ("zone", "=", "`d}`")),
    )


@pytest.mark.parametrize(
    "query",
    [
        "sum(x",
        "sum(x))",
        "x{a=}",
        'x{a=="b"}',
        "x{a}",
        "1 +",
        "x offset",
        "x @",
        "rate(x[])",
        "a b",
        "on(x) y",
        "5x",
        "x[0s]",
    ],
)
def test_what_is_no_query_is_none(query: str) -> None:
    assert parse(query) is None


@given(st.text(alphabet=list("ab0159ms[](){}:'\"`#\\@ offset,\n"), max_size=60))
def test_no_text_breaks_the_scanner(query: str) -> None:
    assert lookback(query).seconds >= 0


@given(st.integers(1, 10**6), st.integers(1, 10**6))
def test_a_subquery_adds_to_what_is_inside(inner: int, outer: int) -> None:
    assert lookback(f"f(g(x[{inner}s])[{outer}s:])").seconds == inner + outer
