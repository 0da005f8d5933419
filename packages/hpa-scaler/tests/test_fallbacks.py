"""A query that is answered without data, and the same without its fallback."""

from __future__ import annotations

import pytest

from hpa_scaler.spec.promql import Bare, without_fallback


@pytest.mark.parametrize(
    ("text", "bare", "whole"),
    [
        ("sum(rate(x[5m])) or vector(0)", "sum(rate(x[5m]))", True),
        ("sum(rate(x[5m])) or sum(up)*0", "sum(rate(x[5m]))", True),
        ("sum(rate(x[5m])) or 0 * sum(up)", "sum(rate(x[5m]))", True),
        ("sum(rate(x[5m])) OR on() vector(1)", "sum(rate(x[5m]))", True),
        ("sum(rate(x[5m])) default 0", "sum(rate(x[5m]))", True),
        ("sum(rate(x[5m])) default -1.5", "sum(rate(x[5m]))", True),
        ("sum(rate(x[5m])) default (0)", "sum(rate(x[5m]))", True),
        ("sum(x) or (sum(up) * 0)", "sum(x)", True),
        ("sum(x) or sum by (job) (up{a='b'}) * 0", "sum(x)", True),
        ("sum(x) or sum(y) or vector(0)", "sum(x) or sum(y)", True),
        ("sum(x) or vector(0) or sum(y)", "sum(x) or sum(y)", True),
        ("sum(x) or absent(x) * 0", "sum(x)", True),
        ("sum(x) or label_replace(vector(0), 'a', 'b', '', '')", "sum(x)", True),
        ("sum(rate(x[5m]) or vector(0))", "sum(rate(x[5m]) )", False),
        ("(sum(a) or vector(0)) + (sum(b) or vector(0))", "(sum(a) ) + (sum(b) )", False),
        ("max(sum(a) or vector(0), 1)", "max(sum(a) , 1)", False),
        ("sum(x) # or not\nor vector(0) # really", "sum(x) # or not", True),
        ("(sum(a or vector(0)) + 1) or vector(0)", "(sum(a ) + 1)", True),
    ],
)
def test_a_fallback_is_recognized_and_taken_away(text: str, bare: str, whole: bool) -> None:
    assert without_fallback(text) == Bare(bare, whole)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "sum(rate(x[5m]))",
        "sum(x) or sum(y)",
        "sum(x) + vector(0)",
        'sum(x{a="or vector(0)"})',
        "sum(x) # or vector(0)",
        "sum by (default) (x)",
        "sum(x) or",
        "sum(x) or (sum(y))",
        "sum(x) or sum(up) * 0 + sum(y)",
        "sum(x) or (sum(up) * 0 + sum(y))",
        "vector(0)",
        "sum(x) or sum(y) * 10",
        "sum(x) or sum(y) * 0.5",
        "sum(x) or sum(rate(y[5m])) * on() z",
        "(sum(x) or vector(0",
    ],
)
def test_what_needs_data_is_none(text: str) -> None:
    assert without_fallback(text) is None


LONG = ("(", "or ", "or(", ")", "[", "x or 0 ", '"\\"', "(a or vector(0) ", "#", "` `", "(vector(", "x or (vector(")


@pytest.mark.parametrize("part", LONG)
def test_no_text_is_read_twice(part: str) -> None:
    """Deep nesting and many fallbacks are scanned in one go; none makes the recursion too deep."""
    text = part * (200_000 // len(part))
    found = without_fallback(text)
    assert found is None or len(found.text) < len(text)
