"""No text of a user can stop a controller: what reads it takes a step a character, and refuses what is too long.

Here alone time is measured: CPU time, the least of several runs, and only where there is enough of it to compare.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from types import ModuleType

import pytest

import hpa_scaler
import node_compactor
import node_refiner
import tightship
from hpa_scaler.annotations import values
from hpa_scaler.annotations.parsing import parse_spec
from hpa_scaler.annotations.promql import fallbacks, lookback
from hpa_scaler.annotations.values import parse_float, parse_int32
from hpa_scaler.judge.history import StateError, decode_state
from hpa_scaler.prometheus.answers import outcome
from tightship.cli.object_file import DocumentError, documents, unpack
from tightship.objects import quantity
from tightship.objects.query_servers import parse_address
from tightship.objects.selectors import Requirement, parse_selector
from tightship.objects.times import parse_duration, parse_rfc3339
from tightship.process.settings.loading import SettingsError, mapping_of, parse_budget

LENGTH = 200_000
"""Characters: what fits into the annotations of one object."""
SHORT = 10_000
WORST = 2.5
"""By how much longer twice the text may take."""
ROUNDS = 4
"""How often it is measured before a text counts as worse."""
NOISE = 0.02
"""Seconds below which a time tells nothing: all of it is less than a cycle notices."""

PUMPS = (
    " ", "x", "1", "1s", "1.", "1_", "-", ",", "(", "a,", "a in (", "a=b,", '"', '\\"', "\\'", "`", "\\", "\n", "{",
    "[", "{a='", "@", "@ ", "@ +", "offset ", "or ", ":", "a:1s", "/", "a.",
)  # fmt: skip
"""What is repeated."""
STARTS = ("", "x @", '"', "x[", "a:", "http://a/")


def _raw(text: str) -> None:
    with suppress(DocumentError):
        for _ in documents(unpack(text.encode())):
            pass


def _annotations(text: str) -> None:
    start = f"{hpa_scaler.annotations.parsing.PREFIX}/hpa-scaler"
    names = ("prometheus-query", "hold-query", "delta", "lowering-window", "prometheus-server-url", "paused")
    parse_spec({start: "true", **{f"{start}-{name}": text for name in names}})


def _state(text: str) -> None:
    with suppress(StateError):
        decode_state(text)


def _settings(text: str) -> None:
    with suppress(SettingsError):
        mapping_of(text, "file")


READERS: dict[str, Callable[[str], object]] = {
    "promql": lookback,
    "fallback": fallbacks,
    "annotations": _annotations,
    "state": _state,
    "answer": lambda text: outcome(200, text.encode()),
    "duration": lambda text: parse_duration(text, "s"),
    "value-duration": values.duration,
    "whole": values.whole(0),
    "band": values.band,
    "pause": values.pause,
    "missing-data": values.missing_data,
    "server-name": values.server_name,
    "address": parse_address,
    "float": parse_float,
    "int": parse_int32,
    "quantity": quantity.nano.__wrapped__,
    "selector": parse_selector,
    "requirement": lambda text: Requirement("a", "Gt", (text,)).matches({"a": text}),
    "budget": parse_budget,
    "time": parse_rfc3339,
    "file": _raw,
    "settings": _settings,
}


def took(read: Callable[[str], object], text: str) -> float:
    """Return the seconds of CPU that reading *text* takes; a text may be refused as a text, and not fail otherwise."""
    began = time.process_time()
    with suppress(ValueError):
        read(text)
    return time.process_time() - began


Make = Callable[[int], str]


def texts(pumps: Iterable[str], starts: Iterable[str], end: str) -> Iterator[tuple[str, Make]]:
    """Yield what makes texts of a length, each with what it is like."""
    for start in starts:
        for pump in pumps:

            def make(length: int, start: str = start, pump: str = pump) -> str:
                return start + pump * (length // len(pump)) + end

            yield f"{start}{pump}{pump}...", make


def slowest(read: Callable[[str], object], made: Iterable[tuple[str, Make]], length: int = SHORT) -> tuple[str, Make]:
    """Return the text that takes longest to read."""
    return max(made, key=lambda each: took(read, each[1](length)))


def worse_by(read: Callable[[str], object], make: Make, length: int) -> float:
    """Return by how much longer twice the text takes; 1 where there is too little of it to tell."""
    half, long = make(length // 2), make(length)
    if took(read, long) < NOISE:
        return 1.0
    found = float("inf")
    for _ in range(ROUNDS):
        # By turns: what else runs on this machine slows both.
        halves, longs = zip(*[(took(read, half), took(read, long)) for _ in range(2)], strict=True)
        found = min(found, sum(longs) / max(NOISE / 10, sum(halves)))
        if found <= WORST:
            break
    return found


@pytest.mark.parametrize("name", READERS)
def test_twice_the_text_takes_twice_as_long_at_most(name: str) -> None:
    # What is much worse is found before it takes minutes. PyYAML takes seconds for the longest, a piece at a time.
    search, *lengths = (SHORT // 16, SHORT) if name == "settings" else (SHORT, SHORT, LENGTH)
    how, make = slowest(READERS[name], texts(PUMPS, STARTS, "!"), search)
    for length in lengths:
        assert worse_by(READERS[name], make, length) <= WORST, how


def modules() -> Iterator[ModuleType]:
    """Yield every module of the product that can be loaded."""
    for package in (tightship, hpa_scaler, node_compactor, node_refiner):
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not found.name.endswith("__main__"):
                yield importlib.import_module(found.name)


def patterns_in(value: object, depth: int = 0) -> Iterator[re.Pattern[str]]:
    """Yield the patterns of text in *value*, and in what it holds."""
    if isinstance(value, re.Pattern):
        if isinstance(value.pattern, str):
            yield value
    elif isinstance(value, tuple | list | set | frozenset) and depth < 3:
        for each in value:
            yield from patterns_in(each, depth + 1)
    elif isinstance(value, dict) and depth < 3:
        for each in value.values():
            yield from patterns_in(each, depth + 1)


PATTERNS = sorted(
    {
        pattern.pattern: pattern
        for module in modules()
        if module.__name__.partition(".")[0] in ("tightship", "hpa_scaler", "node_compactor", "node_refiner")
        for name, value in vars(module).items()
        if not name.startswith("__")
        for pattern in patterns_in(value)
    }.values(),
    key=lambda pattern: pattern.pattern,
)


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda pattern: pattern.pattern.strip()[:40])
def test_no_pattern_reads_a_text_again_and_again(pattern: re.Pattern[str]) -> None:
    uses: dict[str, Callable[[str], object]] = {
        "fullmatch": pattern.fullmatch,
        "all": lambda text: sum(1 for _ in pattern.finditer(text)),
    }
    # A pattern's own words are what it stumbles over.
    own = sorted({word for word in re.findall(r"[A-Za-z]{2,}", pattern.pattern) if len(word) < 12})
    for name, use in uses.items():
        how, make = slowest(use, texts((*PUMPS, *own, *(f"{word} " for word in own)), ("", "x"), "x!"))
        # A bounded number of steps at each character is linear, though it may be long: half a minute at full length.
        for length in (SHORT, LENGTH) if name == "fullmatch" else (SHORT,):
            assert worse_by(use, make, length) <= WORST, how


def test_patterns_were_found() -> None:
    assert len(PATTERNS) > 25


def test_a_pattern_that_reads_again_and_again_is_found() -> None:
    bad = re.compile(r'"(?:\\.|[^"\\])*"')
    assert worse_by(bad.search, lambda length: '"' + '\\"' * (length // 2), SHORT // 2) > WORST
