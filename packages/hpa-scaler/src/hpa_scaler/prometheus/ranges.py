"""The answers to queries over a stretch of the past, asked from servers in chunks of a day.

A chunk that a server refuses or can't answer in time is halved, down to an hour; what still fails is left out and
reported. Chunks begin at the same times on every call, so that Thanos and Mimir can cache them.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct

from hpa_scaler.annotations.queries import Failure, Query
from hpa_scaler.prometheus.answers import Matrix
from hpa_scaler.prometheus.client import PrometheusClient
from hpa_scaler.prometheus.samples import Recorded, Trace, trace_of
from tightship.objects.counting import counted
from tightship.objects.reasons import Reason
from tightship.objects.times import format_duration, rfc3339

IN_FLIGHT = 8
"""The most range queries at a time, to all servers together."""
CHUNK = 86_400.0
SHORTEST = 3600.0
_LOST = 3
"""Failures in a row, of shortest chunks, after which a server is asked no more."""

_SMALLER = frozenset({Reason.TIMED_OUT, Reason.QUERY_REJECTED, Reason.ANSWER_TOO_LARGE, Reason.HTTP_ERROR})
"""Failures that a smaller chunk may avoid: limits of samples, of series and of time."""


class RangeRequest(Struct, frozen=True):
    """The stretch to ask for, in seconds since 1970, with an answer for each *step* seconds.

    One request is for a *chunk* of so many seconds, and so many are in flight *at_once*.
    """

    begin: float
    end: float
    step: float
    chunk: float = CHUNK
    at_once: int = IN_FLIGHT


class _Chunks:
    """Asks one query for all its chunks."""

    def __init__(self, client: PrometheusClient, asking: RangeRequest, tell: Callable[[], None]) -> None:
        self._client = client
        self._asking = asking
        self._tell = tell
        self._free = asyncio.Semaphore(asking.at_once)
        self._failing: Counter[str] = Counter()

    async def trace(self, query: Query) -> tuple[Trace | None, list[str]]:
        """Return the answers to *query*, ``None`` without any, and remarks."""
        asking = self._asking
        spans = list(chunks(asking))
        found = await asyncio.gather(*(self._chunk(query, begin, end) for begin, end in spans))
        about = _about(query)
        series: list[tuple[tuple[float, float], ...]] = []
        failed: list[tuple[float, float, str]] = []
        warned: list[str] = []
        for answers in found:
            for begin, end, answer in answers:
                if isinstance(answer, Failure):
                    failed.append((begin, end, f"{answer.reason}: {answer.detail}"))
                else:
                    series += answer.series
                    warned += answer.warnings
        remarks = []
        if failed:
            lost = sum(end - begin + asking.step for begin, end, _ in failed)
            hours = f"{counted(len(failed), 'stretch', 'stretches')}, {format_duration(lost)} in all"
            remarks.append(f"{about}: no answers for {hours}; first at {rfc3339(failed[0][0])}: {failed[0][2]}")
        if warned:
            remarks.append(f"{about}: answered with: {warned[0]}")
        if not any(series):
            return None, [*remarks, f"{about}: no sample from {rfc3339(asking.begin)} to {rfc3339(asking.end)}"]
        trace, more = trace_of(series, about, asking.step)
        if trace.begin - asking.begin > max(SHORTEST, 2 * asking.step):
            kept = format_duration(trace.end - trace.begin)
            remarks.append(f"{about}: the data begin only at {rfc3339(trace.begin)}: {kept} of them")
        return trace, [*remarks, *more]

    async def _chunk(self, query: Query, begin: float, end: float) -> list[tuple[float, float, Matrix | Failure]]:
        server, step = str(query.server), self._asking.step
        async with self._free:
            if self._failing[server] >= _LOST:
                answer: Matrix | Failure = Failure(Reason.NOT_ASKED, "the server has failed too often")
            else:
                answer = await self._client.ask_range(query, begin, end, step)
        if isinstance(answer, Failure) and answer.reason in _SMALLER and end - begin >= 2 * SHORTEST:
            middle = begin + math.ceil((end - begin) / 2 / step) * step
            halves = await asyncio.gather(self._chunk(query, begin, middle - step), self._chunk(query, middle, end))
            return [each for half in halves for each in half]
        if not isinstance(answer, Failure):
            self._failing[server] = 0
        elif answer.reason is not Reason.NOT_ASKED:
            self._failing[server] += 1
        self._tell()
        return [(begin, end, answer)]


def chunks(asking: RangeRequest) -> Iterable[tuple[float, float]]:
    """Yield begin and end, both asked for, of the chunks of *asking*: cut at the same times (UTC) always."""
    step = asking.step
    begin = math.floor(asking.begin / step) * step
    while begin <= asking.end:
        cut = (math.floor(begin / asking.chunk) + 1) * asking.chunk
        after = max(begin + step, math.ceil(cut / step) * step)
        yield begin, min(after - step, math.floor(asking.end / step) * step)
        begin = after


async def fetch(
    client: PrometheusClient, queries: Sequence[Query], asking: RangeRequest, say: Callable[[str], None]
) -> Recorded:
    """Return the past of *queries*. Failures are remarks."""
    whole = len(queries) * len(list(chunks(asking)))
    done = 0

    def tell() -> None:
        nonlocal done
        done += 1
        say(f"reading the past: {done:,} of {whole:,} chunks")

    asker = _Chunks(client, asking, tell)
    found = await asyncio.gather(*(asker.trace(query) for query in queries))
    traces = {query: trace for query, (trace, _) in zip(queries, found, strict=True) if trace is not None}
    by_text: dict[str, list[str]] = {}
    for query, (_, remarks) in zip(queries, found, strict=True):
        for remark in remarks:
            by_text.setdefault(remark.removeprefix(f"{_about(query)}: "), []).append(_about(query))
    return Recorded(traces, tuple(f"{_all_of(abouts)}: {text}" for text, abouts in by_text.items()))


def _about(query: Query) -> str:
    return f"server {query.server}: {_cut(query.text)}"


def _all_of(abouts: Sequence[str]) -> str:
    """Return what a remark is about that is the same for several queries."""
    first, *others = abouts
    return f"{first} and {counted(len(others), 'other query', 'other queries')}" if others else first


def _cut(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 80 else line[:77] + "..."
