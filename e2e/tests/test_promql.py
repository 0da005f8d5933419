"""The reader of queries agrees with Prometheus' own parser on queries of public dashboards, rules and ScaledObjects."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from hpa_scaler.annotations.promql import Expression, parse
from tightship_e2e import binaries
from tightship_e2e.plugin import require_programs
from tightship_testkit.client import Json

SHAPES = Path(__file__).parents[2] / "packages/hpa-scaler/tests/data/query_shapes.txt"

pytestmark = pytest.mark.controlplane


def asked(queries: list[str]) -> list[Json]:
    """Return what Prometheus' parser says of each of *queries*."""
    require_programs("promql")
    lines = "".join(json.dumps(each) + "\n" for each in queries)
    program = str(binaries.find("promql")["promql"])
    done = subprocess.run([program], input=lines, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def selectors(node: Expression) -> Iterator[Expression]:
    if node.kind == "selector":
        yield node
    for each in node.args:
        yield from selectors(each)


def test_what_prometheus_parses_is_read_and_means_the_same() -> None:
    """Both the query and its normal form are given to Prometheus' parser, and have the same tree."""
    rows = [line.split("\t")[:2] for line in SHAPES.read_text().splitlines()]
    answers = asked([query for _, query in rows])
    assert [verdict for verdict, _ in rows] == ["no" if each["error"] else "ok" for each in answers]
    whole = [(query, each) for (_, query), each in zip(rows, answers, strict=True) if not each["error"]]
    assert len(whole) >= 1000
    trees = [(query, parse(query)) for query, _ in whole]
    assert [query for query, tree in trees if tree is None] == []
    again = asked([tree.text for _, tree in trees if tree is not None])
    different = [
        query
        for (query, reported), (_, tree), same in zip(whole, trees, again, strict=True)
        if reported["tree"] != same["tree"] or tree is None or len(list(selectors(tree))) != len(reported["selectors"])
    ]
    assert different == []


BROKEN = (
    "sum(x",
    "sum(x))",
    "x{a=}",
    'x{a=="b"}',
    "1 +",
    "x offset",
    "rate(x[])",
    "x[5m",
    "a b",
    "on(x) y",
    "foo!bar",
    "5x",
)


def test_what_prometheus_can_not_parse_is_none() -> None:
    assert [each for each, reported in zip(BROKEN, asked(list(BROKEN)), strict=True) if not reported["error"]] == []
    assert [each for each in BROKEN if parse(each) is not None] == []
