"""Decodes the answers of ``/api/v1/query`` into outcomes, and those of ``query_range`` into samples. Pure.

Nothing is guessed: an answer counts only if its HTTP status, its ``status`` and its result type say so.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from http import HTTPStatus

import msgspec
from msgspec import Struct

from hpa_scaler.annotations.queries import Failure, Outcome, QueryAnswer, answer_of, of_data
from hpa_scaler.annotations.values import parse_float
from tightship.objects.reasons import Reason
from tightship.objects.unreadable import UNREADABLE

MOST_WARNINGS = 3
"""How many warnings of an answer are kept; one is enough to keep a floor."""

MOST_TARGETS = 1000
"""How many series keep their labels; with more series, all targets count as the query's."""
CLOCKS_APART = 30.0
"""Seconds by which an answer's time may differ from ours; beyond that, a cache answered, or a clock is wrong."""

_LONGEST_TEXT = 200

_QUERYS_FAULT = frozenset({400, 413, 422})
"""Statuses that blame the query. With 429, 499 and 5xx the server can't answer; with 401 it refuses to."""

_SERVERS_FAULT = frozenset({"canceled", "internal", "too_many_requests", "unavailable"})
"""Error types that blame the server, whatever the HTTP status."""

_OUT_OF_TIME = "context deadline exceeded"
"""The end of a timeout's error text, whatever the error type: Prometheus says ``bad_data`` if a query waited too long
for one of ``--query.max-concurrency`` slots, Thanos ``execution`` if a query to a store did."""


class _Sample(Struct):
    value: tuple[float, str] | msgspec.UnsetType = msgspec.UNSET
    histogram: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class _Target(Struct):
    metric: dict[str, str] = {}


class _Data(Struct, rename="camel"):
    result_type: str
    result: msgspec.Raw


class _AnswerBody(Struct, rename="camel"):
    status: str
    data: msgspec.Raw = msgspec.Raw(b"null")
    error_type: str = ""
    error: str = ""
    warnings: list[str] | None = None
    is_partial: bool = False
    """VictoriaMetrics sets this if a storage node did not answer."""


_bodies = msgspec.json.Decoder(_AnswerBody)
_datas = msgspec.json.Decoder(_Data)
_vectors = msgspec.json.Decoder(list[_Sample])
_targets = msgspec.json.Decoder(list[_Target])
_scalars = msgspec.json.Decoder(tuple[float, str])


class _Range(Struct):
    metric: dict[str, str] = {}
    values: list[tuple[float, str]] = []


_ranges = msgspec.json.Decoder(list[_Range])


class Matrix(Struct, frozen=True):
    """The samples of each series of a ``query_range``, times in seconds since 1970; and the answer's *warnings*.

    *names* has the labels of each series, as in PromQL.
    """

    series: tuple[tuple[tuple[float, float], ...], ...]
    warnings: tuple[str, ...] = ()
    names: tuple[str, ...] = ()


class Moment(Struct, frozen=True):
    """The times, by our clock, of asking a query and receiving its answer; *date* is the answer's ``Date``, if any."""

    asked: float
    received: float
    date: float | None = None

    def off(self, time: float) -> float:
        """Return by how many seconds *time* is before *asked* or after *received*."""
        return min(0.0, time - self.asked) or max(0.0, time - self.received)


def outcome(status: int, body: bytes, moment: Moment | None = None, *, labels: bool = False) -> Outcome:
    """Return the outcome of the answer with HTTP *status* and *body*, received at *moment* (``None``: at any time).

    With *labels*, the outcome keeps the labels of the first series.

    Doubts count as warnings: the answer is marked partial, has an error beside the result, has a success status other
    than 200, or was made at another time than received.
    """
    try:
        parsed = _bodies.decode(body)
    except UNREADABLE as error:
        if not 200 <= status < 300:
            return Failure(Reason.HTTP_ERROR, f"HTTP {status}: {_shown(body)}")
        return Failure(Reason.BAD_ANSWER, f"not a Prometheus answer ({error}): {_shown(body)}")
    if parsed.status != "success" or not 200 <= status < 300:
        return _refused(status, parsed)
    try:
        found = _result(status, parsed, moment)
        return _with_targets(found, parsed) if labels and isinstance(found, QueryAnswer) else found
    except UNREADABLE as error:
        return Failure(Reason.BAD_ANSWER, f"not a Prometheus answer: {error}")


def matrix(status: int, body: bytes) -> Matrix | Failure:
    """Return the samples of the answer to a ``query_range``; a text that is no number becomes NaN."""
    try:
        parsed = _bodies.decode(body)
        if parsed.status != "success" or not 200 <= status < 300:
            return _refused(status, parsed)
        data = _data(parsed, "matrix")
        if data.result_type != "matrix":
            return Failure(Reason.WRONG_RESULT_TYPE, f"a {_cut(data.result_type)}; allowed is matrix")
        found = _ranges.decode(data.result)
    except UNREADABLE as error:
        if not 200 <= status < 300:
            return Failure(Reason.HTTP_ERROR, f"HTTP {status}: {_shown(body)}")
        return Failure(Reason.BAD_ANSWER, f"not a Prometheus answer ({error}): {_shown(body)}")
    return Matrix(
        tuple(tuple((at, _sample(text)) for at, text in each.values) for each in found),
        tuple(_doubts(status, parsed)),
        tuple(labelled(each.metric) for each in found),
    )


def labelled(metric: Mapping[str, str]) -> str:
    """Return the labels *metric* of a series as in PromQL, ``up{job="web"}``."""
    labels = ", ".join(f'{key}="{value}"' for key, value in sorted(metric.items()) if key != "__name__")
    return metric.get("__name__", "") + f"{{{labels}}}"


def _sample(text: str) -> float:
    value = parse_float(text)
    return math.nan if value is None else value


def _refused(status: int, parsed: _AnswerBody) -> Failure:
    if not parsed.error_type and not parsed.error:
        if 200 <= status < 300:
            return Failure(Reason.BAD_ANSWER, f"the status is {_cut(parsed.status)!r}, not success")
        return Failure(Reason.HTTP_ERROR, f"HTTP {status}")
    detail = f"HTTP {status}: {parsed.error_type}: {_cut(parsed.error)}"
    if parsed.error_type == "timeout" or parsed.error.endswith(_OUT_OF_TIME):
        return Failure(Reason.TIMED_OUT, detail)
    of_query = 200 <= status < 300 or status in _QUERYS_FAULT
    return Failure(
        Reason.QUERY_REJECTED if of_query and parsed.error_type not in _SERVERS_FAULT else Reason.HTTP_ERROR, detail
    )


def _data(parsed: _AnswerBody, kind: str) -> _Data:
    """Return the data of an answer; the result ``null``, of *kind* or of no type, is one without series.

    Go may write an empty list so: Prometheus 2.0 did (prometheus#3515), and Cortex with an empty type (cortex#1142).
    """
    data = _datas.decode(parsed.data)
    if bytes(data.result) == b"null" and data.result_type in ("", kind):
        return _Data(kind, msgspec.Raw(b"[]"))
    return data


def _with_targets(answer: QueryAnswer, parsed: _AnswerBody) -> Outcome:
    data = _data(parsed, "vector")
    if data.result_type != "vector":
        return answer
    targets = tuple(each.metric for each in _targets.decode(data.result)[:MOST_TARGETS])
    return msgspec.structs.replace(answer, targets=targets)


def _doubts(status: int, parsed: _AnswerBody) -> list[str]:
    """Return why an answer may be incomplete."""
    found = [_cut(each) for each in of_data(parsed.warnings or ())[:MOST_WARNINGS]]
    if parsed.is_partial:
        found.append("the answer is marked partial (isPartial)")
    if parsed.error or parsed.error_type:
        found.append(f"an error beside its result: {_cut(f'{parsed.error_type} {parsed.error}'.strip())}")
    if status != HTTPStatus.OK:
        found.append(f"HTTP {status}, which is no plain answer")
    return found


def _dated(times: list[float], moment: Moment | None) -> list[str]:
    """Return why *times*, of the values of an answer, make the answer doubtful."""
    if moment is None:
        return []
    if moment.date is not None:
        times = [*times, moment.date]
    off = max((moment.off(each) for each in times), key=abs, default=0.0)
    if abs(off) <= CLOCKS_APART:
        return []
    way = "ahead of" if off > 0 else "behind"
    return [f"the answer is {abs(off):.0f} s {way} our clock: it comes from a cache, or the clocks differ"]


def _result(status: int, parsed: _AnswerBody, moment: Moment | None) -> Outcome:
    data = _data(parsed, "vector")
    match data.result_type:
        case "vector":
            series = _vectors.decode(data.result)
            if any(each.histogram is not msgspec.UNSET for each in series):
                return Failure(Reason.WRONG_RESULT_TYPE, "a native histogram, not a number")
            found = [each.value for each in series if each.value is not msgspec.UNSET]
            if len(found) < len(series):
                return Failure(Reason.BAD_ANSWER, "a series without a value")
        case "scalar":
            found = [_scalars.decode(data.result)]
        case other:
            return Failure(Reason.WRONG_RESULT_TYPE, f"a {_cut(other)}; allowed are vector and scalar")
    values = []
    for _, text in found:
        value = parse_float(text)
        if value is None:
            return Failure(Reason.BAD_ANSWER, f"{_cut(text)!r} is not a number")
        values.append(value)
    return answer_of(values, (*_doubts(status, parsed), *_dated([at for at, _ in found], moment)))


def _shown(body: bytes) -> str:
    return _cut(" ".join(body[: 4 * _LONGEST_TEXT].decode("utf-8", "replace").split())) or "an empty body"


def _cut(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST_TEXT else line[: _LONGEST_TEXT - 3] + "..."
