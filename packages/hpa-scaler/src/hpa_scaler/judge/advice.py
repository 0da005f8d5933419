"""What to do about a reason that holds a floor, since when it holds, and when the floor comes down. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import msgspec

from hpa_scaler.judge.history import BUCKETS, FloorHistory
from tightship.objects.counting import counted
from tightship.objects.durations import format_duration
from tightship.objects.reasons import QUERY_FAILURES, Reason, Refusal
from tightship.objects.times import rfc3339

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
