"""What annotations would have done over the past, as a document.

Replica-hours are rounded to a tenth, minutes to whole minutes; amounts are millionths of a currency.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from msgspec import Struct

from hpa_scaler.annotations.spec import FloorSpec
from hpa_scaler.backtest.variants import BacktestResult, BacktestSetup, HpaPast, Kind, Worst
from hpa_scaler.documents.document import FloorHead
from tightship.objects.money import NodePrice
from tightship.objects.times import rfc3339

WEEK = 168.0
_HOUR = 3600.0


class WorstMoment(Struct, frozen=True, rename="camel"):
    """The moment with the fewest *ready* replicas for the replicas that the traffic *needed*."""

    at: str
    needed: float
    ready: int


class HeldFloor(Struct, frozen=True, rename="camel"):
    """A stretch without answers: the floor *before*, the *lowest* until the range was full, whether it held."""

    begin: str
    end: str
    before: int
    lowest: int
    held: bool


class Caution(Struct, frozen=True, rename="camel"):
    """What guards cost, in replica-hours beyond a floor that knows the true traffic and waits for nothing."""

    outage: float
    cold_source: float
    lowering_window: float
    forecast: float
    other: float

    @property
    def total(self) -> float:
        """All guards together."""
        return self.outage + self.cold_source + self.lowering_window + self.forecast + self.other


class VariantEntry(Struct, frozen=True, rename="camel"):
    """One set of annotations.

    *short_minutes* is how long each ready replica had to carry more than a tenth above what one carries, ``None`` if
    nothing says what that is; *short_by_hour* has these minutes by the hour of the day (UTC). *unknown_minutes* had no
    known traffic. *micros* is the cost of the replica-hours.
    """

    name: str
    kind: Kind
    changes: Mapping[str, str | None]
    floor_hours: float
    replica_hours: float
    replica_hours_a_week: float
    micros: int | None
    short_minutes: int | None
    short_by_hour: tuple[int, ...]
    unknown_minutes: int
    worst: WorstMoment | None
    lowest_floor: int
    highest_floor: int
    floor_changes: int
    held: tuple[HeldFloor, ...]
    caution: Caution
    caution_share: float
    reasons: Mapping[str, int]


class HpaBacktest(Struct, frozen=True, rename="camel"):
    """One HPA under every set. *wanted_from* says where the replicas that the HPA itself wants come from."""

    namespace: str
    name: str
    target: str
    queries: tuple[str, ...]
    per_replica: tuple[float, ...]
    wanted_from: str
    sets: tuple[VariantEntry, ...]

    @property
    def key(self) -> str:
        """The HPA as ``namespace/name``."""
        return f"{self.namespace}/{self.name}"


class FloorBacktest(FloorHead, frozen=True, rename="camel", tag_field="kind", tag="FloorBacktest"):
    """Sets of annotations side by side over a recorded past."""

    begin: str
    end: str
    interval_seconds: int
    pod_start_seconds: int
    currency: str | None
    price: str | None
    sets: tuple[str, ...]
    hpas: tuple[HpaBacktest, ...]
    warnings: tuple[str, ...]


class Tested(Struct, frozen=True):
    """A finished backtest: each of *pasts* and what the variants did to it, and the price of a replica-hour."""

    head: FloorHead
    setup: BacktestSetup
    pasts: Sequence[HpaPast]
    result: Sequence[Sequence[BacktestResult]]
    price: NodePrice | None = None
    warnings: tuple[str, ...] = ()


def backtest_document(tested: Tested) -> FloorBacktest:
    """Return the document of *tested*."""
    setup, head, price = tested.setup, tested.head, tested.price
    return FloorBacktest(
        api_version=head.api_version,
        generator=head.generator,
        source=head.source,
        evaluated_at=head.evaluated_at,
        settings=head.settings,
        begin=rfc3339(setup.begin),
        end=rfc3339(setup.end),
        interval_seconds=round(setup.interval),
        pod_start_seconds=round(setup.start),
        currency=None if price is None else price.currency,
        price=None if price is None else price.basis,
        sets=tuple(each.variant.name for each in tested.result[0]) if tested.result else (),
        hpas=tuple(_hpa(past, row, setup, price) for past, row in zip(tested.pasts, tested.result, strict=True)),
        warnings=tested.warnings,
    )


def _hpa(past: HpaPast, row: Sequence[BacktestResult], setup: BacktestSetup, price: NodePrice | None) -> HpaBacktest:
    queries = past.yardstick.queries if isinstance(past.yardstick, FloorSpec) else ()
    wanted = "its own metrics" if past.wanted is not None else "its traffic"
    return HpaBacktest(
        namespace=past.hpa.namespace,
        name=past.hpa.name,
        target=str(past.hpa.target),
        queries=tuple(query.text for query in queries),
        per_replica=tuple(query.per_replica for query in queries),
        wanted_from=wanted if queries or past.wanted is not None else "nothing that is known",
        sets=tuple(_entry(result, past, setup, price) for result in row),
    )


def _entry(result: BacktestResult, past: HpaPast, setup: BacktestSetup, price: NodePrice | None) -> VariantEntry:
    hours = result.replicas / _HOUR
    spanned = max(setup.count * setup.interval, 1.0) / _HOUR
    caution = Caution(*(round(seconds / _HOUR, 1) for seconds in result.caution.values()))
    free = hours - sum(result.caution.values()) / _HOUR
    return VariantEntry(
        name=result.variant.name,
        kind=result.variant.kind,
        changes={each.name: each.text for each in result.variant.changes if each.target in ("*", result.key)},
        floor_hours=round(result.floor / _HOUR, 1),
        replica_hours=round(hours, 1),
        replica_hours_a_week=round(hours / spanned * WEEK, 1),
        micros=None if price is None else round(hours * price.hourly),
        short_minutes=None if past.yardstick is None else round(result.short / 60),
        short_by_hour=_by_hour(result.shorts, setup.interval),
        unknown_minutes=round(result.unknown / 60),
        worst=worst_moment(result.worst),
        lowest_floor=result.lowest,
        highest_floor=result.highest,
        floor_changes=result.changes,
        held=tuple(
            HeldFloor(rfc3339(each.span.begin), rfc3339(each.span.end), each.before, each.lowest, each.held)
            for each in result.held
        ),
        caution=caution,
        caution_share=round(caution.total / free, 4) if free > 0 else 0.0,
        reasons=dict(sorted(result.reasons.items(), key=lambda item: (-item[1], item[0]))),
    )


def _by_hour(times: Sequence[float], seconds: float) -> tuple[int, ...]:
    counts = Counter(int(at // _HOUR) % 24 for at in times)
    return tuple(round(counts[hour] * seconds / 60) for hour in range(24))


def worst_moment(worst: Worst | None) -> WorstMoment | None:
    """Return the document's form of *worst*."""
    return None if worst is None else WorstMoment(rfc3339(worst.at), round(worst.need, 1), worst.ready)
