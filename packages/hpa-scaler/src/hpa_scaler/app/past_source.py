"""The recorded past of HPAs: read from files, or asked from servers in chunks of a day.

A chunk that a server refuses or can't answer in time is halved, down to an hour; what still fails is left out and
reported. Chunks begin at the same times on every call, so that Thanos and Mimir can cache them.
"""

from __future__ import annotations

import asyncio
import math
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import tzinfo

from msgspec import Struct

from hpa_scaler.app.fleet import Say
from hpa_scaler.decide.recording import Recorded, RecordingError, Trace, replicas_query, trace_of, wanted_query
from hpa_scaler.decide.recording_csv import read_csv
from hpa_scaler.decide.recording_files import decode_past, is_promtool, read_json, read_promtool
from hpa_scaler.prometheus.answers import Matrix
from hpa_scaler.prometheus.client import PrometheusClient
from hpa_scaler.spec.proposals import proposals
from hpa_scaler.spec.queries import Failure, Outcome, Query, QueryAnswer, value_query
from hpa_scaler.spec.spec import FloorSpec, QuerySpec
from tightship.app.cli.app import CliError
from tightship.core.counting import counted
from tightship.core.durations import format_duration
from tightship.core.objects import HorizontalPodAutoscaler
from tightship.core.reasons import Reason
from tightship.core.times import rfc3339
from tightship.files.documents import DocumentError, unpack
from tightship.files.object_file import read_bytes

IN_FLIGHT = 8
"""The most range queries at a time, to all servers together."""
CHUNK = 86_400.0
SHORTEST = 3600.0
PROPOSED = 100
"""HPAs whose proposed queries are asked at once."""
_LOST = 3
"""Failures in a row, of shortest chunks, after which a server is asked no more."""

_SMALLER = frozenset({Reason.TIMED_OUT, Reason.QUERY_REJECTED, Reason.ANSWER_TOO_LARGE, Reason.HTTP_ERROR})
"""Failures that a smaller chunk may avoid: limits of samples, of series and of time."""

Ask = Callable[[Query, float, float, float], "asyncio.Future[Matrix | Failure]"]
HpaQuery = Callable[[str, str], Query]


class Asking(Struct, frozen=True):
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

    def __init__(self, client: PrometheusClient, asking: Asking, tell: Callable[[], None]) -> None:
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
        trace, told = trace_of(series, about, asking.step)
        if trace.begin - asking.begin > max(SHORTEST, 2 * asking.step):
            kept = format_duration(trace.end - trace.begin)
            remarks.append(f"{about}: the data begin only at {rfc3339(trace.begin)}: {kept} of them")
        return trace, [*remarks, *told]

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


def chunks(asking: Asking) -> Iterable[tuple[float, float]]:
    """Yield begin and end, both asked for, of the chunks of *asking*: cut at the same times (UTC) always."""
    step = asking.step
    begin = math.floor(asking.begin / step) * step
    while begin <= asking.end:
        cut = (math.floor(begin / asking.chunk) + 1) * asking.chunk
        after = max(begin + step, math.ceil(cut / step) * step)
        yield begin, min(after - step, math.floor(asking.end / step) * step)
        begin = after


async def fetch(client: PrometheusClient, queries: Sequence[Query], asking: Asking, say: Say) -> Recorded:
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
    told: dict[str, list[str]] = {}
    for query, (_, remarks) in zip(queries, found, strict=True):
        for remark in remarks:
            told.setdefault(remark.removeprefix(f"{_about(query)}: "), []).append(_about(query))
    return Recorded(traces, tuple(f"{_all_of(abouts)}: {text}" for text, abouts in told.items()))


def _about(query: Query) -> str:
    return f"server {query.server}: {_cut(query.text)}"


def _all_of(abouts: Sequence[str]) -> str:
    """Return what a remark is about that is the same for several queries."""
    first, *others = abouts
    return f"{first} and {counted(len(others), 'other query', 'other queries')}" if others else first


async def proposed_specs(
    client: PrometheusClient, hpas: Sequence[HorizontalPodAutoscaler], seconds: float
) -> dict[str, FloorSpec]:
    """Return a spec with a query for each of *hpas* for which one answers above 0, by the HPA's key.

    A hundred HPAs at a time are asked for, within so many *seconds*.
    """
    found: dict[str, FloorSpec] = {}
    for first in range(0, len(hpas), PROPOSED):
        asked = {hpa.key: list(proposals(hpa)) for hpa in hpas[first : first + PROPOSED]}
        queries = dict.fromkeys(query for each in asked.values() for query in each)
        outcomes = await client.ask(queries, seconds)
        for key, tried in asked.items():
            best = next((query for query in tried if _answers(outcomes.get(query))), None)
            if best is not None:
                found[key] = FloorSpec(queries=(QuerySpec(best.text, server=best.server),))
    return found


def _answers(outcome: Outcome | None) -> bool:
    return isinstance(outcome, QueryAnswer) and outcome.highest is not None and outcome.highest > 0


def read_pasts(
    paths: Sequence[str],
    hpas: Sequence[tuple[HorizontalPodAutoscaler, FloorSpec | None]],
    zone: tzinfo | None = None,
    series: str = "",
) -> Recorded:
    """Return the past in the files *paths*: what ``--save-past`` wrote, CSV, or JSON with the samples of one query.

    All but the first belong to the one HPA there is, or to the one before an equals sign: ``shop/web=FILE``. *zone* is
    of times without an offset, *series* names one of several. Raises :class:`CliError` and
    :class:`~tightship.files.object_file.FileError`.
    """
    traces: dict[Query, Trace] = {}
    remarks: list[str] = []
    for path in paths:
        key, file = _named(path)
        raw, name = read_bytes(file)
        try:
            text = unpack(raw)
            if text.lstrip()[:1] == b"{" and b'"QueryPast"' in text:
                found = decode_past(text, name)
                traces |= found.traces
                remarks += found.remarks
                continue
            hpa, spec = _only(key, hpas, name)
            server = spec.queries[0].server
            value = value_query(spec.queries[0])
            # PowerShell and spreadsheets write UTF-16.
            plain = text.decode("utf-16" if text[:2] in (BOM_UTF16_LE, BOM_UTF16_BE) else "utf-8-sig")
            if is_promtool(plain):
                traces[value], told = read_promtool(plain, name, series)
            elif plain.lstrip()[:1] in ("{", "["):
                traces[value], told = read_json(plain.encode(), name, series)
            else:
                columns, told = read_csv(plain, name, zone, series)
                traces[value] = columns["value"]
                others: dict[str, Query] = {
                    "replicas": replicas_query(hpa.namespace, hpa.name, server),
                    "wanted": wanted_query(hpa.namespace, hpa.name, server),
                }
                traces |= {others[column]: trace for column, trace in columns.items() if column in others}
            remarks += told
        except (RecordingError, DocumentError, UnicodeDecodeError) as error:
            raise CliError(str(error) if str(error).startswith(name) else f"{name}: {error}") from error
    return Recorded(traces, tuple(remarks))


def _named(path: str) -> tuple[str, str]:
    key, equals, file = path.partition("=")
    return (key, file) if equals and key.count("/") == 1 else ("", path)


def _only(
    key: str, hpas: Sequence[tuple[HorizontalPodAutoscaler, FloorSpec | None]], name: str
) -> tuple[HorizontalPodAutoscaler, FloorSpec]:
    """Return the HPA whose first query the file called *name* records."""
    found = [each for each in hpas if key in ("", each[0].key)]
    if len(found) != 1:
        raise CliError(
            f"{name}: records one query, and {counted(len(found), 'HPA')} may be meant: write NAMESPACE/NAME=FILE"
        )
    hpa, spec = found[0]
    if spec is None or not spec.queries:
        raise CliError(f"{name}: {hpa.key} has no query that the file could record: give one by --set or an annotation")
    return hpa, spec


def _cut(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 80 else line[:77] + "..."
