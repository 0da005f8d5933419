"""Known findings, by promise: what is broken today, and is being mended. The list is to become empty.

A violation that one of them takes is counted, and fails nothing. What takes it must be narrow, so that it hides nothing
else.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from tightship_testkit.disasters.promises.base import Violation

Takes = Callable[[Violation], bool]


class Known(Struct, frozen=True):
    """A finding: violations of *promise* for which *takes* holds; *reference* says where it is told."""

    name: str
    promise: str
    takes: Takes
    reference: str


def _ends(words: str) -> Takes:
    return lambda each: each.subject.endswith(words)


def _with(*wrong: str) -> Takes:
    """Take violations of a floor whose data had any of these wrong with them."""
    return lambda each: bool(set(wrong) & set(each.subject.partition(" with ")[2].split(", ")))


def _by_clock(each: Violation) -> bool:
    return " with clock-" in each.subject or ", clock-" in each.subject


def _split(each: Violation) -> bool:
    return _with("relabelled-split")(each) and "by query" in each.what


def _answered(each: Violation) -> bool:
    return "an answer of" in each.what and not each.subject.endswith("with nothing wrong")


_BAD_DATA = "no-floor-lowered-on-bad-data"
_GOOD_ANSWERS = "lowered-by-good-answers"

FLOORS = (
    Known("queries without a visible range", _BAD_DATA, _ends(" unguarded"), "floors 2"),
    Known("partial loss of scrapes", _BAD_DATA, _with("targets-partly-away", "targets-flapping"), "floors 3"),
    Known("isPartial is believed", _BAD_DATA, _with("partial"), "floors 4"),
    Known("isPartial is believed", _GOOD_ANSWERS, _ends(" an answer partial"), "floors 4"),
    Known("bad data raise without limit", "no-floor-raised-without-bound", _answered, "floors 5"),
    Known("lag and clocks", _BAD_DATA, _with("lag", "server-clock", "samples-dated"), "floors 6"),
    Known("lag and clocks", _BAD_DATA, _by_clock, "floors 6"),
    Known("lag and clocks", "floors-follow", _ends(" too low with a clock ahead"), "floors 6"),
    Known("the breaker compares with floors", "floors-follow", _ends(" too high after a correlated drop"), "floors 8"),
    Known("one series becomes several", _BAD_DATA, _split, "floors 10"),
    *(
        Known("doubtful answers are believed", _GOOD_ANSWERS, _ends(f" an answer {way}"), "floors 12")
        for way in ("http-203", "http-206", "error-beside")
    ),
    Known(
        "doubtful answers are believed",
        _BAD_DATA,
        _with("http-203", "http-206", "error-beside", "negative", "stale-cache"),
        "floors 12",
    ),
)

KNOWN: tuple[Known, ...] = (*FLOORS,)


def finding(violation: Violation) -> Known | None:
    """Return the known finding that *violation* is, if it is one."""
    return next((each for each in KNOWN if each.promise == violation.promise and each.takes(violation)), None)


__all__ = ["KNOWN", "Known", "finding"]
