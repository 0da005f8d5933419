"""Windows: when work may begin, by weekdays and times, by cron, and around events of a freeze calendar. Pure.

A window is open from its beginning to its end in the time zone that it names, also across a change of daylight saving.
A time that is skipped is the moment of the change. Of a time that comes twice, the first one counts, but a denied
window ends at the second one. So a night has all its hours, and nothing begins in an hour that somebody excluded.
(Karpenter's budgets know UTC alone: ``Timezones are not supported``, pkg/apis/v1/nodepool.go.)
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import date, datetime, time, timedelta, tzinfo
from functools import cached_property, lru_cache
from typing import Protocol
from zoneinfo import ZoneInfo

from msgspec import Struct

from tightship.cluster import Snapshot
from tightship.objects import Pod, Workload
from tightship.objects.cron import CronError, Schedule, parse_schedule
from tightship.objects.quoting import quoted
from tightship.objects.reasons import Check, Reason, Refusal
from tightship.objects.times import format_duration

DAY = 86400.0

LONGEST = 31 * DAY
"""Seconds that one window may last."""

HORIZON = 366 * DAY
"""Seconds in which a window must open."""

ALLOWED_FORMS = 'weekdays, times or both, such as "Mon-Fri 20:00-06:00", or a schedule with a duration'

_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_WINDOW = re.compile(
    r"(?P<days>[a-z]{3}(?:[-,][a-z]{3})*)?\s*(?:(?P<begin>\d\d?:\d\d)\s*-\s*(?P<end>\d\d?:\d\d))?",
    re.ASCII | re.IGNORECASE,
)


class WindowError(ValueError):
    """The text is not a window."""


class Span(Struct, frozen=True, order=True):
    """From *begin* to *end*, in seconds since 1970, without *end*. *name* is that of an event, for people."""

    begin: float
    end: float
    name: str = ""


class Window(Struct, frozen=True):
    """A repeated window. Each span begins on a day of *weekdays* (0 is Monday) at *begin*, in minutes of the day.

    The span ends at the minute *end* of the same day, or of the next one if *end* is not after *begin*. With a
    *schedule* a span begins at each of its times instead, and lasts *duration* seconds.
    """

    text: str
    weekdays: frozenset[int] = frozenset()
    begin: int = 0
    end: int = 0
    schedule: Schedule | None = None
    duration: float = 0.0

    def spans(self, first: date, last: date, zone: tzinfo, *, denied: bool) -> Iterator[Span]:
        """Yield the spans that begin on the days from *first* to *last*."""
        for number in range((last - first).days + 1):
            day = first + timedelta(days=number)
            if self.schedule is not None:
                for minute in self.schedule.minutes_of(day):
                    for second in (False, True) if denied else (False,):
                        begin = _instant(day, minute, zone, second=second)
                        yield Span(begin, begin + self.duration, self.text)
            elif day.weekday() in self.weekdays:
                ends = day if self.end > self.begin else day + timedelta(days=1)
                yield Span(_instant(day, self.begin, zone), _instant(ends, self.end, zone, second=denied), self.text)


class Windows(Struct, frozen=True):
    """When work may begin: in a window of *allow*, or at any time without one, and never in one of *deny* or *freeze*.

    *zone* is an IANA time zone. *freeze* are the events of a calendar, recurring ones as often as they come. Drains
    under way end; after *hard_stop* seconds of closed windows their nodes are given back. No pod moves earlier than
    *not_before* seconds after its workload's last rollout (:class:`Rollouts`). *written* is what users
    wrote, for documents.
    """

    allow: tuple[Window, ...] = ()
    deny: tuple[Window, ...] = ()
    zone: str = "UTC"
    freeze: tuple[Span, ...] = ()
    hard_stop: float | None = None
    not_before: float = 0.0
    written: str = ""

    def __bool__(self) -> bool:
        return bool(self.allow or self.deny or self.freeze)

    def state(self, now: float, horizon: float = 62 * DAY) -> State:
        """Return whether work may begin at *now*, and until when that holds, looking *horizon* seconds ahead."""
        return state_of((self,), now, horizon)

    def spans(self, now: float, end: float) -> tuple[list[Span], list[Span]]:
        """Return the allowed and the denied spans from *now* to *end*."""
        zone = ZoneInfo(self.zone)
        longest = max((each.duration for each in (*self.allow, *self.deny)), default=0.0)
        first = datetime.fromtimestamp(now - max(longest, 2 * DAY), zone).date()
        last = datetime.fromtimestamp(end, zone).date()
        allowed = [span for each in self.allow for span in each.spans(first, last, zone, denied=False)]
        denied = [span for each in self.deny for span in each.spans(first, last, zone, denied=True)]
        if not self.allow:
            allowed = [Span(now, math.inf)]
        found = (
            (each for each in some if now < each.end and each.begin < end)
            for some in (allowed, (*denied, *self.freeze))
        )
        return sorted(next(found)), sorted(next(found))


class WindowRules(Protocol):
    """Which windows must be open before a drain begins."""

    def windows_of(self, pool: str) -> Sequence[Windows]: ...


class State(Struct, frozen=True):
    """Whether windows are *open*, and *until* when (seconds since 1970); ``None`` if no change is in sight.

    *because* says what keeps them closed.
    """

    open: bool
    until: float | None
    because: str = ""


def state_of(windows: Sequence[Windows], now: float, horizon: float = 62 * DAY) -> State:
    """Return whether all of *windows* are open at *now*, and until when that holds, looking *horizon* seconds ahead."""
    ahead = min(2 * DAY, horizon)
    while (state := _until(windows, now, now + ahead)).until is None and ahead < horizon:
        ahead = min(6 * ahead, horizon)
    return state


def _until(windows: Sequence[Windows], now: float, end: float) -> State:
    """Return the state at *now*, with the next change if that comes before *end*."""
    spans = [some for each in windows for some in each.spans(now, end)]
    # How many spans of each kind begin less those that end, by time.
    steps: defaultdict[float, Counter[int]] = defaultdict(Counter)
    for kind, some in enumerate(spans):
        for each in some:
            steps[max(now, each.begin)][kind] += 1
            steps[each.end][kind] -= 1

    def is_open() -> bool:
        return all((inside[kind] > 0) is (kind % 2 == 0) for kind in range(len(spans)))

    inside = Counter(steps.pop(now, {}))
    before, because = is_open(), ""
    if not before:
        denied = (each for some in spans[1::2] for each in some if each.begin <= now)
        because = next((f"{each.name} is denied" for each in denied), "no allowed window is open")
    for at in sorted(steps):
        inside.update(steps[at])
        if is_open() is not before:
            return State(before, at if at < end else None, because)
    return State(before, None, because)


@lru_cache(maxsize=32)
def window_check(windows: Windows, now: float, beside: tuple[Windows, ...] = ()) -> Check:
    """Return whether work may begin at *now* by *windows*; the windows *beside* must be open too."""
    state = windows.state(now)
    if state.open:
        until = "" if state.until is None else f" until {shown(state.until, windows.zone)}"
        return Check("window", Reason.OUTSIDE_WINDOW, True, f"a window is open{until}")
    opens, fix = "no window opens within two months", "change windows"
    if (at := state_of((windows, *beside), now).until) is not None:
        wait = format_duration(at - now)
        opens, fix = f"a window opens at {shown(at, windows.zone)}, in {wait}", f"wait {wait}"
    return Check("window", Reason.OUTSIDE_WINDOW, False, f"{state.because}; {opens}", fix)


def window_checks(windows: Iterable[Windows], now: float) -> tuple[Check, ...]:
    """Return for each of *windows* that closes at times whether work may begin at *now*."""
    closing = tuple(each for each in windows if each)
    return tuple(window_check(each, now, closing if len(closing) > 1 else ()) for each in closing)


def stopped_by(windows: Iterable[Windows], node: str, now: float) -> Refusal | None:
    """Return why a drain of *node* under way is given back at *now*: windows that closed, and their hard stop."""
    for each in windows:
        if each and each.hard_stop is not None:
            state = each.state(now - each.hard_stop)
            if not state.open and (state.until is None or state.until > now):
                stop = format_duration(each.hard_stop)
                detail = f"{state.because}; drains under way are given back {stop} after the windows close"
                return Refusal(Reason.OUTSIDE_WINDOW, node, detail)
    return None


def shown(at: float, zone: str) -> str:
    """Return the time *at* in *zone*, to the minute, with its offset: ``Mon 2026-11-30 20:00 +01:00``."""
    local = datetime.fromtimestamp(at, ZoneInfo(zone))
    offset = local.strftime("%z")
    return f"{local:%a %Y-%m-%d %H:%M} {offset[:3]}:{offset[3:5]}"


def parse_window(text: str) -> Window:
    """Return the window in *text*, such as ``Mon-Fri 20:00-06:00``, ``Sat,Sun`` or ``22:00-04:00``.

    Raises :class:`WindowError`.
    """
    found = _WINDOW.fullmatch(text.strip())
    if found is None or not text.strip():
        raise WindowError(f"{quoted(text)} is not a window; allowed are {ALLOWED_FORMS}")
    weekdays = frozenset(range(7)) if found["days"] is None else _weekdays(text, found["days"].lower())
    begin = _minute(text, found["begin"] or "00:00")
    end = _minute(text, found["end"] or "24:00")
    if begin == end:
        raise WindowError(
            f"{quoted(text)} is empty: the window ends when it begins; leave the times out for whole days"
        )
    if begin == 24 * 60:
        raise WindowError(f"{quoted(text)} begins at 24:00; allowed are 00:00 to 23:59")
    return Window(text.strip(), weekdays, begin, end)


def scheduled(schedule: str, duration: float) -> Window:
    """Return the window that opens by the cron *schedule* for *duration* seconds. Raises :class:`WindowError`."""
    if not 60 <= duration <= LONGEST:
        raise WindowError(f"a duration of {format_duration(duration)} is no window; allowed are 1m to 31d")
    try:
        parsed = parse_schedule(schedule)
    except CronError as error:
        zone = "; the key timeZone names the zone" if "TZ=" in schedule else ""
        raise WindowError(f"{error}{zone}") from error
    return Window(f"{schedule} for {format_duration(duration)}", schedule=parsed, duration=duration)


def _weekdays(text: str, days: str) -> frozenset[int]:
    found: set[int] = set()
    for part in days.split(","):
        words = part.split("-")
        if len(words) > 2 or any(word not in _DAYS for word in words):
            allowed = ", ".join(day.capitalize() for day in _DAYS)
            raise WindowError(
                f"{quoted(text)} has no weekdays in {quoted(part)}; allowed are {allowed}, Mon-Fri, Sat,Sun"
            )
        first, last = _DAYS.index(words[0]), _DAYS.index(words[-1])
        found.update((first + number) % 7 for number in range((last - first) % 7 + 1))
    return frozenset(found)


def _minute(text: str, clock: str) -> int:
    hour, minute = map(int, clock.split(":"))
    if minute > 59 or hour * 60 + minute > 24 * 60:
        raise WindowError(f"{quoted(text)} has no time of day in {quoted(clock)}; allowed are 00:00 to 24:00")
    return hour * 60 + minute


def _instant(day: date, minute: int, zone: tzinfo, *, second: bool = False) -> float:
    """Return when it is *minute* of *day* in *zone*: the *second* time if it comes twice, at the change if never."""
    local = datetime.combine(day, time()) + timedelta(minutes=minute)
    early, late = (local.replace(tzinfo=zone, fold=fold).timestamp() for fold in (0, 1))
    if early <= late:
        return late if second else early
    # The time is skipped: with the offset from before the change it comes after it, and the other way round.
    low, high = late, early
    offset = datetime.fromtimestamp(high, zone).utcoffset()
    while high - low > 1:
        middle = (low + high) // 2
        if datetime.fromtimestamp(middle, zone).utcoffset() == offset:
            high = middle
        else:
            low = middle
    return high


REVISION = "controller-revision-hash"
"""The label of a StatefulSet's pods with its revision (apps/v1 ``ControllerRevisionHashLabelKey``)."""


class Rollouts:
    """When the last rollouts of the workloads of one snapshot ended, as the objects tell that are read anyway.

    No right on Deployments or ControllerRevisions is needed:

    * A ReplicaSet shows in ``managedFields`` when its Deployment (or Argo Rollout) emptied it: that is the last write
      to an old one (``scaleReplicaSet`` in pkg/controller/deployment/sync.go). The end is the latest such time, or the
      creation of a newer one. While two want replicas, the rollout is under way.
    * A StatefulSet replaces its pods from the highest ordinal down (``updateStatefulSet`` in
      pkg/controller/statefulset/stateful_set_control.go). The end is the creation of the lowest pod with the revision
      of the highest. If that very pod is moved later, it counts again.

    kubectl prints no ``managedFields``: in its files only the creation of ReplicaSets counts.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def refusal(self, windows: Iterable[Windows], node: str, now: float, own: Collection[str] = ()) -> Refusal | None:
        """Return why *windows* let *node* wait at *now*: the pod whose rollout ended last, ``None`` without any.

        *own* are the Deployments (``namespace/name``) that the node's drain has itself restarted.
        """
        rest = max((each.not_before for each in windows), default=0.0)
        view = self._snapshot.nodes.get(node)
        if not rest or view is None:
            return None
        pods = [pod for pod in view.pods if pod.deletion is None and not (own and self._above(pod) in own)]
        ends = {pod.owner.uid: (self._end(pod, now), pod) for pod in pods if pod.owner}
        end, pod = max(ends.values(), key=lambda each: each[0], default=(0.0, None))
        if pod is None or now - end >= rest:
            return None
        what = f"the workload of {pod.key} "
        what += "is rolling out" if end >= now else f"ended a rollout {format_duration(now - end)} ago"
        detail = f"{what}; its pods move no earlier than {format_duration(rest)} after a rollout (notBefore)"
        return Refusal(Reason.OUTSIDE_WINDOW, node, detail, f"wait {format_duration(end + rest - now)}")

    def _above(self, pod: Pod) -> str:
        """Return what rolls *pod* out, without its kind."""
        known = (
            None
            if pod.owner is None
            else self._snapshot.workloads.get(pod.owner.kind, {}).get(f"{pod.namespace}/{pod.owner.name}")
        )
        return "" if known is None or known.owner is None else f"{pod.namespace}/{known.owner.name}"

    def _end(self, pod: Pod, now: float) -> float:
        """Return when the last rollout of *pod*'s workload ended, *now* while one is under way, 0 without any."""
        owner = pod.owner
        assert owner is not None
        if owner.kind == "StatefulSet":
            ordered = sorted((_ordinal(each), each) for each in self._of_sets[owner.uid])
            newest = ordered[-1][1].template.labels.get(REVISION)
            return next(each.created for _, each in ordered if each.template.labels.get(REVISION) == newest)
        known = self._snapshot.workloads.get(owner.kind, {}).get(f"{pod.namespace}/{owner.name}")
        if known is None or known.owner is None or owner.kind != "ReplicaSet":
            return 0.0
        together = self._replica_sets[known.owner.uid]
        if sum(each.replicas != 0 for each in together) > 1:
            return now
        return max(each.since for each in together)

    @cached_property
    def _replica_sets(self) -> dict[str, list[Workload]]:
        found: defaultdict[str, list[Workload]] = defaultdict(list)
        for each in self._snapshot.workloads.get("ReplicaSet", {}).values():
            if each.owner is not None:
                found[each.owner.uid].append(each)
        return found

    @cached_property
    def _of_sets(self) -> dict[str, list[Pod]]:
        found: defaultdict[str, list[Pod]] = defaultdict(list)
        pods = (pod for view in self._snapshot.nodes.values() for pod in view.pods)
        for pod in (*self._snapshot.unscheduled, *pods):
            if pod.owner is not None and pod.owner.kind == "StatefulSet":
                found[pod.owner.uid].append(pod)
        return found


def _ordinal(pod: Pod) -> int:
    number = pod.name.rpartition("-")[2]
    return int(number) if number.isdecimal() else 0
