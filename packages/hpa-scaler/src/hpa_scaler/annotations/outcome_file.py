"""The file of recorded outcomes, and of forecasts. Pure.

A person or a script writes the file: ``{"kind": "QueryOutcomes", "outcomes": [{"query": "...",
"server": "main", "values": [110.5]}, ...]}``. ``values`` has one value for each series, ``targets`` their labels.
Instead, an entry may have a ``failure`` with its reason, or the whole ``answer``.
"""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import Struct

from hpa_scaler.annotations.queries import (
    Expected,
    Failure,
    ForecastKey,
    Outcome,
    Query,
    QueryAnswer,
    answer_of,
)
from hpa_scaler.annotations.spec import ForecastSpec, Season, ServerRef
from hpa_scaler.annotations.values import parse_float
from tightship.documents.document import API_VERSION
from tightship.objects.query_servers import AddressError, parse_address
from tightship.objects.reasons import QUERY_FAILURES
from tightship.objects.times import parse_rfc3339
from tightship.objects.unreadable import UNREADABLE


class _RecordedOutcome(Struct, omit_defaults=True, forbid_unknown_fields=True):
    query: str
    server: str = ""
    labels: bool = False
    values: list[float | str] | None = None
    warnings: tuple[str, ...] = ()
    targets: tuple[dict[str, str], ...] = ()
    answer: QueryAnswer | None = None
    failure: Failure | None = None


class _RecordedForecast(Struct, omit_defaults=True, forbid_unknown_fields=True, rename="camel"):
    query: str
    season: Season
    expected: Expected
    ahead_seconds: float = 900.0
    server: str = ""


class _File(Struct, rename="camel"):
    outcomes: list[_RecordedOutcome]
    forecasts: list[_RecordedForecast] = []
    kind: Literal["QueryOutcomes"] = "QueryOutcomes"
    api_version: Literal["tightship.dev/v1"] = API_VERSION
    asked_at: str = ""


class OutcomeFileError(ValueError):
    """An unreadable file of outcomes; *problems* are whole lines."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class RecordedOutcomes(Struct, frozen=True):
    """The contents of a file."""

    outcomes: dict[Query, Outcome]
    forecasts: dict[ForecastKey, Expected]


def decode_outcomes(raw: bytes, name: str) -> RecordedOutcomes:
    """Return the contents of *raw*, the file called *name*. Raises :class:`OutcomeFileError` with all problems."""
    try:
        file = msgspec.json.decode(raw, type=_File)
    except UNREADABLE as error:
        raise OutcomeFileError([f"{name}: not a file of query outcomes: {error}"]) from error
    outcomes: dict[Query, Outcome] = {}
    forecasts: dict[ForecastKey, Expected] = {}
    problems: list[str] = []
    for number, entry in enumerate(file.outcomes, 1):
        try:
            outcomes[Query(entry.query, _server(entry.server), entry.labels)] = _outcome(entry)
        except ValueError as error:
            problems.append(f"{name}: outcome {number}: {error}")
    for number, each in enumerate(file.forecasts, 1):
        try:
            query = Query(each.query, _server(each.server))
        except ValueError as error:
            problems.append(f"{name}: forecast {number}: {error}")
        else:
            forecasts[query, ForecastSpec(each.season, each.ahead_seconds)] = each.expected
    if problems:
        raise OutcomeFileError(problems)
    return RecordedOutcomes(outcomes, forecasts)


def asked_at(raw: bytes) -> float | None:
    """Return when the outcomes in *raw* were recorded, in seconds since 1970; ``None`` if nothing tells."""
    try:
        return parse_rfc3339(msgspec.json.decode(raw, type=_File).asked_at)
    except (*UNREADABLE, ValueError):
        return None


def _server(text: str) -> ServerRef:
    if "://" not in text:
        return ServerRef(name=text)
    try:
        return ServerRef(url=str(parse_address(text)))
    except AddressError as error:
        raise ValueError(f"server {error}") from error


def _outcome(entry: _RecordedOutcome) -> Outcome:
    given = [each for each in (entry.values, entry.answer, entry.failure) if each is not None]
    if len(given) != 1:
        raise ValueError("must have one of values, answer and failure")
    if entry.answer is not None:
        return entry.answer
    if entry.failure is None:
        answer = answer_of([_value(each) for each in entry.values or ()], entry.warnings)
        return msgspec.structs.replace(answer, targets=entry.targets)
    if entry.failure.reason not in QUERY_FAILURES:
        allowed = ", ".join(sorted(QUERY_FAILURES))
        raise ValueError(f"failure.reason: {entry.failure.reason.value!r}: allowed are {allowed}")
    return entry.failure


def _value(value: float | str) -> float:
    number = parse_float(value) if isinstance(value, str) else float(value)
    if number is None:
        raise ValueError(f"values: {value!r} is not a number; allowed are numbers, and texts such as NaN and +Inf")
    return number
