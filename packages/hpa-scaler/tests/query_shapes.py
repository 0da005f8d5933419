"""Shapes of queries from public dashboards, rules and ScaledObjects, in ``data/query_shapes.txt``.

``python query_shapes.py PROMQL FILE...`` adds the queries in *FILE*, YAML or JSON, under other names, and writes all
lines anew. PROMQL is the program of ``e2e/controlplane/promql``, which says what Prometheus accepts. A line is its
verdict (``ok`` or ``no``), the query and the operands that a fallback hides, with tabs between: those marked ``or`` are
alternatives, those marked ``brief`` only have to exist at times, and ``all gone`` says that nothing else needs data.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import yaml

from hpa_scaler.annotations.promql import AGGREGATES, INSIDE, fallbacks

SHAPES = Path(__file__).parent / "data" / "query_shapes.txt"
MOST = 1200
"""How many shapes are kept, those that fall back or filter before all others."""

_KEYS = ("expr", "query", "definition")
_KEYWORDS = """
    and or unless if ifnot default atan2 by without on ignoring group_left group_right bool offset inf nan start end
    le limit keep_metric_names anchored smoothed fill fill_left fill_right with up ALERTS __name__
"""
_KEPT = AGGREGATES.union(_KEYWORDS.split())
_TELLING = re.compile(
    r"\b(or|default|absent|absent_over_time|scalar|unless|and|bool|offset|if|ifnot|vector|fill)\b|:|@"
)
_ENDS = re.compile(r"_(total|bucket|count|sum|info|seconds)$")


def described(query: str) -> str:
    """Return what may go missing in *query*: each operand, and when its loss holds the floor."""
    found = fallbacks(query)
    whole = "" if found.needs_data or not found.operands else "all gone"
    parts = [f"{'brief ' if each.optional else 'or ' if each.group else ''}{each.part}" for each in found.operands]
    return "\t".join([*parts, whole] if whole else parts)


def rows() -> list[tuple[str, str, str]]:
    """Return verdict, query and operands of each line."""
    lines = SHAPES.read_text().splitlines()
    return [(verdict, query, described) for verdict, query, described in (line.split("\t", 2) for line in lines)]


def renamed(query: str) -> str:
    """Return *query* on one line with the names of metrics, labels and values changed."""
    names: dict[str, str] = {}
    query = re.sub(r"\$\{?__(rate_)?(interval|range)\w*\}?|\$\{?(interval|resolution)\}?", "5m", query)
    query = re.sub(r"\$\{?(\w+)(:\w+)?\}?|\[\[(\w+)\]\]", "v", query)
    parts, at = [], 0
    while found := INSIDE.match(query, at):
        at, text, kind = found.end(), found[0], found.lastgroup
        following = query[at : at + 1]
        if kind == "space":
            text = " "
        elif kind == "string" and "$" not in text and len(text) > 2:
            text = f"{text[0]}v{len(names.setdefault(text, text)) % 10}{'.*' if '*' in text else ''}{text[0]}"
        elif kind == "word" and text.lower() not in _KEPT and following != "(":
            ends = _ENDS.search(text)
            names.setdefault(text, f"n{len(names)}{ends[0] if ends else ''}")
            text = names[text]
        parts.append(text)
    return "".join(parts).strip() if at == len(query) else ""


def _queries(found: Any) -> Iterator[str]:
    if isinstance(found, dict):
        for key, value in found.items():
            yield from [value] if key in _KEYS and isinstance(value, str) else _queries(value)
    elif isinstance(found, list):
        for value in found:
            yield from _queries(value)


def verdicts(program: str, queries: Iterable[str]) -> list[dict[str, Any]]:
    """Return what Prometheus' own parser, the *program*, says of each of *queries*."""
    asked = "".join(json.dumps(each) + "\n" for each in queries)
    done = subprocess.run([program], input=asked, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def main(program: str, *files: str) -> None:
    """Write the file of shapes."""
    kept = dict.fromkeys(query for _, query, _ in rows()) if SHAPES.exists() else {}
    for file in files:
        documents = yaml.load_all(Path(file).read_text(), Loader=yaml.CSafeLoader)
        for query in sorted(renamed(each) for document in documents for each in _queries(document)):
            if 5 < len(query) < 400:
                kept.setdefault(query)
    chosen = sorted(sorted(kept, key=lambda each: not _TELLING.search(each))[:MOST])
    found = zip(chosen, verdicts(program, chosen), strict=True)
    SHAPES.write_text(
        "".join(f"{'no' if each['error'] else 'ok'}\t{query}\t{described(query)}\n" for query, each in found)
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
