"""What can happen to a call between a controller and a server, and plans of which call it happens to.

:class:`~tightship_testkit.fault_proxy.FaultProxy` carries a plan out before the API server, its base
:class:`~tightship_testkit.fault_proxy.Proxy` before any other.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from tightship_testkit.client import Json

Hook: TypeAlias = Callable[[], Awaitable[object]]


@dataclass(frozen=True)
class Call:
    """One request. `number` counts all calls from 1, `write_number` the mutating ones (0: this is none).

    `headers` are found whatever their case. `client` is who asks: a process of a simulation, else an address.
    """

    number: int
    write_number: int
    verb: str  # of HTTP; a watch is a GET with is_watch
    path: str
    query: Mapping[str, str]
    body: bytes
    is_watch: bool
    headers: Mapping[str, str] = field(default_factory=dict)
    client: str = ""


@dataclass(frozen=True, kw_only=True)
class Fault:
    """What becomes of a call; this one by itself is no disturbance, only an occasion for hooks.

    `before` runs before the call is forwarded, `after` once the server has answered and before the client is told.
    """

    before: Hook | None = None
    after: Hook | None = None


@dataclass(frozen=True, kw_only=True)
class Reset(Fault):
    """The connection breaks without an answer; with `done` the server has carried the call out."""

    done: bool = False


@dataclass(frozen=True)
class Late(Fault):
    """The connection breaks at the beginning of an answer, and the call is carried out so many seconds later.

    Without a beginning of an answer, clients may send the call again by themselves.
    """

    seconds: float


@dataclass(frozen=True, kw_only=True)
class Twice(Fault):
    """The call is carried out, and once more at once: what the client hears is the second answer."""


@dataclass(frozen=True)
class ResetMidAnswer(Fault):
    """The connection breaks after so many bytes of the answer's body; at least its last byte is missing."""

    size: int


@dataclass(frozen=True)
class Answer(Fault):
    """An answer in the API server's place: a Status with this code. Nothing is forwarded."""

    status: int
    reason: str = ""
    message: str = "made by the fault proxy"
    retry_after: int | None = None  # seconds
    causes: tuple[tuple[str, str], ...] = ()  # reason and message
    headers: Mapping[str, str] = field(default_factory=dict)

    def body(self) -> Json:
        """Return the Status."""
        details: Json = {}
        if self.retry_after is not None:
            details["retryAfterSeconds"] = self.retry_after
        if self.causes:
            details["causes"] = [{"reason": reason, "message": message} for reason, message in self.causes]
        status: Json = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": self.status}
        return status | {"reason": self.reason, "message": self.message} | ({"details": details} if details else {})


@dataclass(frozen=True)
class WatchError(Answer):
    """A watch that is accepted and at once ends with an ERROR event, as one from too old a version does."""


@dataclass(frozen=True)
class Slow(Fault):
    """The call is held up for so long: before it is forwarded, with `done` between its effect and the answer."""

    seconds: float
    done: bool = False


@dataclass(frozen=True, kw_only=True)
class Hang(Fault):
    """No answer until the client gives up; after `seconds`, or once `release` is set, the connection breaks."""

    seconds: float | None = None
    release: asyncio.Event | None = None
    done: bool = False


@dataclass(frozen=True, kw_only=True)
class SilentWatch(Fault):
    """A watch that is accepted and says nothing any more after so many events."""

    events: int = 0


@dataclass(frozen=True, kw_only=True)
class HeldWatch(Fault):
    """A watch whose events are passed on only while `open` is set; none is lost."""

    open: asyncio.Event


@dataclass
class Record:
    """What became of a call. `status` is the server's (None: it was not asked), `answered` what the client got."""

    call: Call
    fault: Fault | None = None
    status: int | None = None
    answered: int | None = None  # None: no whole answer


Plan: TypeAlias = Callable[[Call], Awaitable[Fault | None]]


@dataclass(frozen=True, kw_only=True)
class Rates:
    """The share of calls that meet each fault, and how long the slow ones take, in seconds.

    A rate is of the calls that the fault is possible for: conflicts of writes, the last three of watches.
    """

    hang: float = 0.01
    reset: float = 0.02
    reset_done: float = 0.02  # carried out, but the answer is lost
    reset_mid_answer: float = 0.02
    busy: float = 0.02  # 429 with Retry-After
    busy_silent: float = 0.02  # 429 without
    broken: float = 0.02  # 500
    conflict: float = 0.02  # 409
    slow: float = 0.05
    gone: float = 0.05  # 410, as an answer
    expired: float = 0.05  # 410, as an event
    silent: float = 0.05
    hang_seconds: float = 3.0
    slow_seconds: float = 1.0
    retry_after: int = 1
    silent_events: int = 3  # at most so many events before a watch falls silent

    def times(self, factor: float) -> Rates:
        """Return the same mixture with each rate multiplied."""
        return replace(self, **{name: getattr(self, name) * factor for name in RATES})


ANY = ("hang", "reset", "reset_done", "reset_mid_answer", "busy", "busy_silent", "broken", "slow")
OF_WRITES = ("conflict",)
OF_WATCHES = ("gone", "expired", "silent")
RATES = (*ANY, *OF_WRITES, *OF_WATCHES)


class SeededFaults:
    """A plan from a seed: what call number n meets depends on the seed, n and its sort (watch, write, other) alone.

    It stays quiet after `calls` calls or `seconds` from the first one, whichever comes first, so that a run can end.
    `only` spares the calls it is false for. `tally` counts what was done by the names of the rates.
    """

    def __init__(
        self,
        seed: int,
        rates: Rates = Rates(),
        *,
        calls: int | None = None,
        seconds: float | None = None,
        only: Callable[[Call], bool] = lambda _: True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.tally: Counter[str] = Counter()
        self._seed = seed
        self._rates = rates
        self._calls = calls
        self._seconds = seconds
        self._only = only
        self._clock = clock
        self._began: float | None = None

    async def __call__(self, call: Call) -> Fault | None:
        """Return what the call meets."""
        now = self._clock()
        if self._began is None:
            self._began = now
        late = self._seconds is not None and now - self._began >= self._seconds
        if late or (self._calls is not None and call.number > self._calls) or not self._only(call):
            return None
        rng = random.Random(f"{self._seed}/{call.number}")  # noqa: S311
        possible = ANY + (OF_WRITES if call.write_number else ()) + (OF_WATCHES if call.is_watch else ())
        left = rng.random()
        for name in possible:
            left -= getattr(self._rates, name)
            if left < 0:
                self.tally[name] += 1
                return self._fault(name, rng)
        return None

    def _fault(self, name: str, rng: random.Random) -> Fault:
        rates = self._rates
        done = rng.random() < 0.5
        share = rng.random()
        made: dict[str, Fault] = {
            "hang": Hang(seconds=rates.hang_seconds, done=done),
            "reset": Reset(),
            "reset_done": Reset(done=True),
            "reset_mid_answer": ResetMidAnswer(int(4 ** (8 * share))),
            "busy": Answer(429, "TooManyRequests", retry_after=rates.retry_after),
            "busy_silent": Answer(429, "TooManyRequests"),
            "broken": Answer(500, "InternalError"),
            "conflict": Answer(409, "Conflict"),
            "slow": Slow(rates.slow_seconds * share, done=done),
            "gone": Answer(410, "Expired"),
            "expired": WatchError(410, "Expired"),
            "silent": SilentWatch(events=int(share * (rates.silent_events + 1))),
        }
        return made[name]
