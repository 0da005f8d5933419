"""The history of one HPA from cycle to cycle, and the state annotation that holds it. Pure.

The running controller keeps the history in memory, and writes it into the annotation with each change of a floor. An
annotation may be old by the time it is read, so in doubt a floor stays where it is. Times are seconds since 1970.

``{"enabled":"true","prometheusQuery":...,"inputs":{...},"target":8,"reason":"FollowsQuery","originalMin":3,...}``: the
older controller's keys come first, in its format, then ours. Anybody can compute ``target`` again from ``inputs``. The
originals are the bounds to put back; ``history`` is for the windows. Unreadable content is reported as absent.

The history also tells since when a reason holds a floor, and when the floor comes down.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, TypeVar

import msgspec
from msgspec import Struct

from hpa_scaler.annotations.spec import FloorSpec, QuerySpec
from hpa_scaler.annotations.values import format_float, quote
from hpa_scaler.judge.floors import FloorInputs
from tightship.objects.counting import counted
from tightship.objects.reasons import QUERY_FAILURES, Reason, Refusal
from tightship.objects.times import format_duration, rfc3339
from tightship.objects.unreadable import UNREADABLE

Whole = Annotated[int, msgspec.Meta(ge=-(2**53), le=2**53)]
"""A number within the range of exact arithmetic, since anybody can write the annotation."""

Time = Annotated[float, msgspec.Meta(ge=-(2**53), le=2**53)]
"""Seconds since 1970; whole seconds in the annotation."""

BUCKETS = 20
"""The buckets of a lowering window; more would enlarge the state without benefit."""

DAY = 86_400.0
"""Seconds for which a floor stays known after the queries wanted it for long enough."""
_HOURS = 6
"""The buckets of a day."""

LONGEST = 2000
"""Bytes. Every cycle reads the HPA, and all its annotations together may take 256 KiB."""

_SHORTEST_TEXT = 40
_ROUNDED: Mapping[str, Callable[[float], int]] = {
    "evaluated": math.floor,
    "answered": math.ceil,
    "incident": math.ceil,
    "rolling": math.ceil,
    "falling": math.floor,
    "failing": math.floor,
    "reset_at": math.ceil,
}
"""How times become whole seconds: always towards keeping a floor."""


class Floor(Struct, frozen=True, array_like=True):
    """A floor that was wanted until the time *at*."""

    at: Whole
    floor: Whole


class Raise(Struct, frozen=True, array_like=True):
    """Pods that one of our raises started at the time *at*."""

    at: Whole
    pods: Whole


class Spike(Struct, frozen=True, array_like=True):
    """Answers that jumped at the time *at* from *base* to *top*; *kept* was the highest floor of the window then."""

    at: Whole
    base: Whole
    top: Whole
    kept: Whole


class FloorHistory(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The controller's memory of one HPA.

    *evaluated* is when the HPA was last judged, ``None`` if never. *floors* are the floors wanted within the lowering
    window, each lower than the one before. *failures* counts consecutive cycles without a complete answer, the first at
    *failing*; *gaps* has a bit for each of the last cycles, below a leading 1. *answered* is the start of the present
    run of complete answers, and *recovering* says whether a failure came before that run.
    *aged* counts the queries whose server has reported the age of its data. *incident* is when the hold query last
    fired, *rolling* the start of the target's present rollout.

    *known* are floors of the last day that the queries wanted for long enough to be traffic, *answers* the recent ones.
    *look* is the lowest floor that the queries have wanted since its time. *last* is the floor of the last complete
    answer, since the last jump of answers at its time; *spike* is a jump that may be one bad sample.

    *series* has the checksum of each query's text, negative if the query first answered with several series. *met* has
    when each operand that a fallback hides last had series, by the checksum of its text.

    *falling* is when many queries fell at once; since then, *answers* stay as they were before.

    *original_min* and *original_max* are the user's own bounds, *applied_min* and *applied_max* the bounds that we last
    set: if an HPA has other values now, somebody else changed them. *resets* counts such changes, the last of them at
    *reset_at*, which took back the bounds *ousted*. *seen* is the floor when the HPA was last judged or written; the
    annotation does not contain it.
    """

    evaluated: Time | None = None
    floors: tuple[Floor, ...] = ()
    raises: tuple[Raise, ...] = ()
    failures: Whole = 0
    failing: Time | None = None
    gaps: Annotated[int, msgspec.Meta(ge=0, lt=2048)] = 0
    answered: Time | None = None
    recovering: bool = False
    aged: Whole = 0
    incident: Time | None = None
    rolling: Time | None = None
    known: tuple[Floor, ...] = ()
    look: Floor | None = None
    last: Floor | None = None
    spike: Spike | None = None
    series: tuple[Whole, ...] = ()
    met: Mapping[Whole, Whole] = {}
    answers: tuple[Floor, ...] = ()
    falling: Time | None = None
    original_min: Whole | None = None
    original_max: Whole | None = None
    applied_min: Whole | None = None
    applied_max: Whole | None = None
    resets: Whole = 0
    ousted: tuple[Whole, Whole] | None = None
    reset_at: Time = msgspec.field(default=0, name="resetAt")
    seen: Whole | None = None

    @property
    def ours(self) -> bool:
        """Whether we have set a bound that could be given back."""
        return self.applied_min is not None or self.applied_max is not None


def resumed(history: FloorHistory, minimum: int, now: float, *, gap: float, window: float) -> FloorHistory:
    """Return the part of *history* that still counts at *now*, with the floor at *minimum*.

    After more than *gap* seconds without a judgement, the time in between is unknown: runs of failures and of answers
    begin again, as does the time for which a rise must be wanted, and the present floor counts as wanted now. An
    unfinished outage is kept: it may have ended in between, and the server may not know that its data are young.
    """
    if history.evaluated is not None and now - history.evaluated <= gap:
        return history
    return msgspec.structs.replace(
        history,
        failures=0,
        failing=None,
        gaps=0,
        answered=None,
        rolling=None,
        look=None,
        floors=with_floor(history.floors, minimum, now, window),
    )


def unwatched(history: FloorHistory, *, outage: bool = False) -> FloorHistory:
    """Return *history* after a cycle without a judgement, in which the wanted floor is unknown.

    An *outage* that was seen meanwhile is one all the same.
    """
    recovering = history.recovering or outage
    if history.evaluated is None and recovering == history.recovering:
        return history
    return msgspec.structs.replace(history, evaluated=None, recovering=recovering)


def handed_over(history: FloorHistory, now: float, gap: float) -> FloorHistory:
    """Return the *history* that another term left; after *gap* seconds, its last judgement counts as unknown.

    The other term may have judged again since, and wanted a higher floor than it wrote down.
    """
    if history.evaluated is None or now - history.evaluated <= gap:
        return history
    return msgspec.structs.replace(history, evaluated=None)


_Dated = TypeVar("_Dated", Floor, Raise, Spike)


def caught_up(history: FloorHistory, now: float) -> FloorHistory:
    """Return *history* with its last judgement at *now*, if that is in the future, and all else as long before.

    Otherwise what it holds would be held until our clock has caught up, for days if the other one was days ahead.
    """
    if history.evaluated is None or history.evaluated <= now:
        return history
    late = math.floor(history.evaluated - now)

    def moved(each: _Dated) -> _Dated:
        return msgspec.structs.replace(each, at=each.at - late)

    def earlier(at: float | None) -> float | None:
        return None if at is None else at - late

    return msgspec.structs.replace(
        history,
        evaluated=now,
        failing=earlier(history.failing),
        answered=earlier(history.answered),
        incident=earlier(history.incident),
        rolling=earlier(history.rolling),
        falling=earlier(history.falling),
        reset_at=history.reset_at - late,
        floors=tuple(map(moved, history.floors)),
        raises=tuple(map(moved, history.raises)),
        known=tuple(map(moved, history.known)),
        answers=tuple(map(moved, history.answers)),
        look=None if history.look is None else moved(history.look),
        last=None if history.last is None else moved(history.last),
        spike=None if history.spike is None else moved(history.spike),
        met={mark: at - late for mark, at in history.met.items()},
    )


def with_floor(
    floors: Iterable[Floor], floor: int, now: float, window: float, parts: int = BUCKETS
) -> tuple[Floor, ...]:
    """Return *floors* plus *floor*, wanted at *now*, without floors that no longer matter within *window* seconds.

    Times are rounded up to one of the *parts* of the window: a floor is held slightly longer, never shorter.
    """
    if window <= 0:
        return ()
    bucket = max(1, math.ceil(window / parts))
    at = (int(now) // bucket + 1) * bucket
    kept = [each for each in floors if each.at + window > now and each.floor > floor]
    if kept and kept[-1].at >= at:
        # The present bucket already has a higher floor, which hides this one.
        return tuple(kept)
    return (*kept, Floor(at, floor))


def highest_floor(floors: Iterable[Floor], now: float, window: float) -> int | None:
    """Return the highest floor wanted within the last *window* seconds, ``None`` if none is known."""
    return max((each.floor for each in floors if each.at + window > now), default=None)


def with_known(history: FloorHistory, floor: int, now: float, recent: float = 0.0) -> FloorHistory:
    """Return *history* with *floor* known at *now* and, unless *recent* is 0, as an answer of the last *recent*
    seconds.
    """
    return msgspec.structs.replace(
        history,
        known=with_floor(history.known, floor, now, DAY, _HOURS),
        answers=with_floor(history.answers, floor, now, recent, _HOURS) if recent else history.answers,
    )


class State(Struct, frozen=True, kw_only=True):
    """The content of the annotation; *inputs*, *target* and *reason* describe the last change, if any."""

    history: FloorHistory = FloorHistory()
    inputs: FloorInputs | None = None
    target: int | None = None
    reason: str = ""
    known: bool = False
    """Whether the annotation is ours; the older controller's has none of our keys."""


class _StateWire(Struct, rename="camel", omit_defaults=True):
    inputs: FloorInputs | None = None
    target: Whole | None = None
    reason: str = ""
    original_min: Whole | None = None
    original_max: Whole | None = None
    applied: Whole | None = None
    applied_max: Whole | None = None
    history: FloorHistory | None = None


class StateError(ValueError):
    """An unreadable state annotation."""


def encode_state(state: State, spec: FloorSpec, now: float) -> str:
    """Return the annotation's value: compact JSON of at most :data:`LONGEST` bytes, written at *now*.

    To fit, the texts of the older controller's keys are cut first, since nobody reads them back. Then the history
    becomes coarser, on the safe side.
    """
    history = state.history
    for attempt in (history, _coarse(history, floors=False), _coarse(history, floors=True)):
        ours = _ours(state, attempt)
        room = LONGEST - len(ours.encode())
        text = _legacy_part(spec, now, room) + ours
        if len(text.encode()) <= LONGEST:
            break
    return text


def decode_state(text: str) -> State:
    """Return the content of the annotation *text*. Raises :class:`StateError`."""
    try:
        wire = msgspec.json.decode(text, type=_StateWire)
    except (*UNREADABLE, UnicodeError) as error:
        raise StateError(f"the state annotation can't be read: {error}") from error
    history = msgspec.structs.replace(
        wire.history or FloorHistory(),
        original_min=wire.original_min,
        original_max=wire.original_max,
        applied_min=wire.applied,
        applied_max=wire.applied_max,
        seen=None,
    )
    known = wire.history is not None or history.ours
    return State(history=history, inputs=wire.inputs, target=wire.target, reason=wire.reason, known=known)


def _legacy_part(spec: FloorSpec, now: float, room: int) -> str:
    """Return the older controller's part, without its closing brace, in at most *room* bytes if possible."""
    query = spec.queries[0] if spec.queries else QuerySpec("")
    texts = [query.text, str(query.server)]
    while True:
        parts = {
            "enabled": '"true"',
            "prometheusQuery": quote(texts[0]),
            "requestsPerReplica": format_float(query.per_replica),
            "delta": format_float(query.delta),
            "lastUpdated": f'"{rfc3339(now)}"',
            "prometheusServerUrl": quote(texts[1]),
            "scaleDownMaxRatio": format_float(spec.ratio),
            "enableScaleDownRatioDeploymentChecking": f'"{str(spec.rollout_check).lower()}"',
        }
        text = "{" + ",".join(f'"{key}":{value}' for key, value in parts.items())
        longest = max(range(2), key=lambda number: len(texts[number]))
        if len(text.encode()) <= room or len(texts[longest]) <= _SHORTEST_TEXT:
            return text
        texts[longest] = texts[longest][: len(texts[longest]) * 9 // 10].rstrip("…") + "…"


def _ours(state: State, history: FloorHistory) -> str:
    whole = {name: None if (at := getattr(history, name)) is None else to(at) for name, to in _ROUNDED.items()}
    elsewhere = dict.fromkeys(("original_min", "original_max", "applied_min", "applied_max", "seen"))
    wire = _StateWire(
        inputs=state.inputs,
        target=state.target,
        reason=state.reason,
        original_min=history.original_min,
        original_max=history.original_max,
        applied=history.applied_min,
        applied_max=history.applied_max,
        history=msgspec.structs.replace(history, **whole, **elsewhere),
    )
    return "," + msgspec.json.encode(wire).decode()[1:]


def _coarse(history: FloorHistory, *, floors: bool) -> FloorHistory:
    """Return *history* with all raises merged into one and, with *floors*, only the highest floor and answer.

    The known floors of the day, which let a floor go up, are then dropped.
    """
    raises = history.raises
    if raises:
        raises = (Raise(raises[-1].at, sum(each.pods for each in raises)),)
    history = msgspec.structs.replace(history, raises=raises)
    if not floors:
        return history
    return msgspec.structs.replace(
        history, floors=_highest(history.floors), answers=_highest(history.answers), known=(), look=None
    )


def _highest(floors: tuple[Floor, ...]) -> tuple[Floor, ...]:
    return (Floor(floors[-1].at, max(each.floor for each in floors)),) if floors else ()


ADVICE: Mapping[Reason, str] = {
    Reason.HPA_TERMINATING: "none is needed",
    Reason.TARGET_AT_ZERO: "scale the target up; the HPA then works again",
    Reason.PAUSED: "remove the annotation paused, or let its time pass",
    Reason.SERVER_UNKNOWN: "correct the server's name, or add the server to the controller's configuration",
    Reason.SERVER_NOT_ALLOWED: "name a configured server in prometheus-server, or add the URL to allowedServerURLs",
    Reason.CREDENTIALS_UNREADABLE: "mount the file with the server's credentials, readable for the controller",
    Reason.CONNECTION_FAILED: "see that the server runs, and that address and NetworkPolicies let the controller in",
    Reason.TIMED_OUT: "see why the server is slow, record the query by a rule, or raise the server's timeout",
    Reason.CIRCUIT_OPEN: "repair the server; the controller tries it again by itself",
    Reason.HTTP_ERROR: "send the query to the same URL with curl: look at path, credentials and proxies",
    Reason.QUERY_REJECTED: "correct the query: the server's own page shows the same error",
    Reason.BAD_ANSWER: "see that the URL is a Prometheus API's, and not that of a page, a login or another service",
    Reason.ANSWER_TOO_LARGE: "aggregate the query, for example by sum()",
    Reason.WRONG_RESULT_TYPE: "let the query return one number: an instant vector or a scalar",
    Reason.OUT_OF_RANGE: "check the query's unit and requests-per-replica",
    Reason.NOT_ASKED: "add the answer to the file of --outcomes",
    Reason.ANSWER_WITH_WARNINGS: "remove the warning's cause: mostly a store or a replica that the server can't reach",
    Reason.INCIDENT_HOLD: "end the incident that the hold query reports, or correct the query",
    Reason.HOLD_QUERY_FAILED: "see that the hold query is answered",
    Reason.ROLLOUT_IN_PROGRESS: "finish, resume or abort the rollout",
    Reason.ROLLOUT_UNKNOWN: "see that the target exists, and that the controller may read its kind",
    Reason.ROLLOUT_EXPIRED: "finish or abort the rollout",
    Reason.REPLICAS_UNKNOWN: "see that the HPA's target exists, and that the HPA's condition AbleToScale is True",
    Reason.LOWERING_WINDOW: "wait; a shorter lowering-window lets the floor come down sooner",
    Reason.DEADBAND: "set a smaller deadband if the floor should follow smaller steps",
    Reason.PAUSED_SCALE_DOWN: "remove the annotation paused-scale-down, or let its time pass",
    Reason.PAUSED_SCALE_UP: "remove the annotation paused-scale-up, or let its time pass",
    Reason.STEP_LIMIT: "wait for the next cycles, or raise the annotation's limit",
    Reason.BEHAVIOR_LIMIT: "wait, relax behavior.scaleUp, or set honour-scale-up-behavior: false",
    Reason.AT_UPPER_BOUND: "raise the annotation maximum-replicas",
}
"""What to do, where the cause at hand gives no closer advice."""

LENGTHEN = "lengthen the query's range to four scrape intervals or more, or see why the data have gaps"

_CYCLES = 10
"""Cycles whose gaps are remembered."""
_OFTEN = 3
"""Runs of cycles without a complete answer that are regular gaps and not one outage."""


def advised(cause: Refusal) -> Refusal:
    """Return *cause* with what to do about it."""
    return cause if cause.fix else msgspec.structs.replace(cause, fix=ADVICE.get(cause.reason, ""))


def moment(at: float, now: float) -> str:
    """Return the time *at*, and how far it is from *now*, such as ``2026-03-01T04:00:00Z (in 9m)``."""
    return f"{rfc3339(at)} (in {format_duration(at - now)})"


def with_gap(gaps: int, *, complete: bool) -> int:
    """Return *gaps* after one more cycle: a bit for each of the last cycles, 1 for a gap, below a leading 1."""
    more = (gaps or 1) << 1 | (not complete)
    return more if more < 2 << _CYCLES else more & ((1 << _CYCLES) - 1) | 1 << _CYCLES


def regular_gaps(gaps: int) -> str:
    """Return that answers are missing again and again, empty if they aren't."""
    bits = f"{gaps:b}"[1:]
    if len([run for run in bits.split("0") if run]) < _OFTEN:
        return ""
    return f"no complete answer in {bits.count('1')} of the last {counted(len(bits), 'cycle')}"


def since(history: FloorHistory) -> str:
    """Return since when there has been no complete answer, empty if that is new."""
    if often := regular_gaps(history.gaps):
        return often
    if history.failures < 2:
        return ""
    began = "" if history.failing is None else f" since {rfc3339(history.failing)}"
    return f"no complete answer{began}, in {counted(history.failures, 'cycle')}"


def of_outage(causes: Iterable[Refusal], history: FloorHistory, released: float | None, now: float) -> list[Refusal]:
    """Return the *causes* of the queries, the first one with since when and for how long it holds.

    *released* is when the floor could come down if the answer were there *now*, ``None`` if the floor is not held.
    """
    found = list(causes)
    if not found or found[0].reason not in QUERY_FAILURES | {Reason.ANSWER_WITH_WARNINGS}:
        return found
    often = regular_gaps(history.gaps)
    parts = [found[0].detail, since(history)]
    if released is not None:
        wait = f"{format_duration(released - now)} after the first" if released > now else "the first"
        parts.append(f"the floor stays until {wait} complete answer")
    fix = LENGTHEN if often and found[0].reason is Reason.EMPTY_RESULT else found[0].fix
    found[0] = msgspec.structs.replace(found[0], detail="; ".join(filter(None, parts)), fix=fix)
    return found


def of_wait(cause: Refusal, history: FloorHistory, wanted: int, released: float, now: float) -> Refusal:
    """Return *cause*; if that is young data, with the moment *released* from which the floor may be *wanted*.

    Where answers are missing again and again, no wait ends.
    """
    if cause.reason not in (Reason.COLD_SOURCE, Reason.LOWERING_WINDOW):
        return cause
    if often := regular_gaps(history.gaps):
        return msgspec.structs.replace(cause, detail=f"{cause.detail}; {often}", fix=LENGTHEN)
    if cause.reason is Reason.LOWERING_WINDOW:
        return cause
    fix = f"wait: without another gap the floor may be {wanted} from {moment(released, now)} on"
    return msgspec.structs.replace(cause, fix=fix)


def when_released(whole: float, window: float) -> float:
    """Return when a floor comes down that is held until *whole*, seconds since 1970, and then for a lowering *window*.

    While young data hold a floor, it counts as wanted; so the window begins when they are whole.
    """
    bucket = max(1, math.ceil(window / BUCKETS))
    return (int(whole) // bucket + 1) * bucket + window if window > 0 else whole


def window_detail(history: FloorHistory, wanted: int, now: float, window: float) -> str:
    """Return how the lowering *window* ends: the next lower floor and its time, and those of *wanted* itself."""
    ends = [(each.at + window, each.floor) for each in history.floors if each.at + window > now and each.floor > wanted]
    if not ends or regular_gaps(history.gaps):
        return ""
    later = [floor for _, floor in ends[1:]] + [wanted]
    first = f"the floor may be {later[0]} from {moment(ends[0][0], now)} on"
    return first if len(ends) == 1 else f"{first}, and {wanted} from {moment(ends[-1][0], now)} on"
