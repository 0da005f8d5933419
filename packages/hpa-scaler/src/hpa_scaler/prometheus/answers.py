"""From the bytes of an answer of ``/api/v1/query`` to an outcome. Pure.

Nothing is guessed: an answer counts only if its HTTP status, its ``status`` and its type of result say so.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import Struct

from hpa_scaler.golang import parse_float
from hpa_scaler.queries import Failure, Outcome, answer_of
from hpa_scaler.reasons import Reason

MOST_WARNINGS = 3
"""Warnings that are kept of an answer; one is enough to keep a floor."""

_LONGEST_TEXT = 200

_QUERYS_FAULT = frozenset({400, 413, 422})
"""Statuses of what is wrong with a query; 429, 499 and 5xx are of a server that can't answer, 401 of one that won't."""

_SERVERS_FAULT = frozenset({"canceled", "internal", "too_many_requests", "unavailable"})
"""Kinds of errors that no query deserves, whatever status they came with."""

_OUT_OF_TIME = "context deadline exceeded"
"""How the text of an error ends that is one of time, whatever kind it is said to be: Prometheus calls it ``bad_data``
where a query waited too long for one of ``--query.max-concurrency`` places, Thanos ``execution`` where a store did."""


class _Series(Struct):
    value: tuple[float, str] | msgspec.UnsetType = msgspec.UNSET
    histogram: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class _Data(Struct, rename="camel"):
    result_type: str
    result: msgspec.Raw


class _Body(Struct, rename="camel"):
    status: str
    data: msgspec.Raw = msgspec.Raw(b"null")
    error_type: str = ""
    error: str = ""
    warnings: list[str] | None = None


_bodies = msgspec.json.Decoder(_Body)
_datas = msgspec.json.Decoder(_Data)
_vectors = msgspec.json.Decoder(list[_Series])
_scalars = msgspec.json.Decoder(tuple[float, str])


def outcome(status: int, body: bytes) -> Outcome:
    """Return what the answer with the HTTP *status* and *body* says."""
    try:
        told = _bodies.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        if not 200 <= status < 300:
            return Failure(Reason.HTTP_ERROR, f"HTTP {status}: {_shown(body)}")
        return Failure(Reason.BAD_ANSWER, f"not an answer of Prometheus ({error}): {_shown(body)}")
    if told.status != "success" or not 200 <= status < 300:
        return _refused(status, told)
    try:
        return _result(told)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return Failure(Reason.BAD_ANSWER, f"not an answer of Prometheus: {error}")


def _refused(status: int, told: _Body) -> Failure:
    if not told.error_type and not told.error:
        if 200 <= status < 300:
            return Failure(Reason.BAD_ANSWER, f"its status is {_cut(told.status)!r}, not success")
        return Failure(Reason.HTTP_ERROR, f"HTTP {status}")
    detail = f"HTTP {status}: {told.error_type}: {_cut(told.error)}"
    if told.error_type == "timeout" or told.error.endswith(_OUT_OF_TIME):
        return Failure(Reason.TIMED_OUT, detail)
    of_query = 200 <= status < 300 or status in _QUERYS_FAULT
    return Failure(
        Reason.QUERY_REJECTED if of_query and told.error_type not in _SERVERS_FAULT else Reason.HTTP_ERROR, detail
    )


def _result(told: _Body) -> Outcome:
    data = _datas.decode(told.data)
    warnings = tuple(_cut(each) for each in (told.warnings or ())[:MOST_WARNINGS])
    match data.result_type:
        case "vector":
            series = _vectors.decode(data.result)
            if any(each.histogram is not msgspec.UNSET for each in series):
                return Failure(Reason.WRONG_RESULT_TYPE, "a native histogram, not a number")
            texts = [each.value[1] for each in series if each.value is not msgspec.UNSET]
            if len(texts) < len(series):
                return Failure(Reason.BAD_ANSWER, "a series without a value")
        case "scalar":
            texts = [_scalars.decode(data.result)[1]]
        case other:
            return Failure(Reason.WRONG_RESULT_TYPE, f"a {_cut(other)}; allowed are vector and scalar")
    return _summed_up(texts, warnings)


def _summed_up(texts: Sequence[str], warnings: tuple[str, ...]) -> Outcome:
    values = []
    for text in texts:
        value = parse_float(text)
        if value is None:
            return Failure(Reason.BAD_ANSWER, f"{_cut(text)!r} is no number")
        values.append(value)
    return answer_of(values, warnings)


def _shown(body: bytes) -> str:
    return _cut(" ".join(body[: 4 * _LONGEST_TEXT].decode("utf-8", "replace").split())) or "nothing"


def _cut(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST_TEXT else line[: _LONGEST_TEXT - 3] + "..."


__all__ = ["outcome"]
