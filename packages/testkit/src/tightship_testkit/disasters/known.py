"""Known findings, by promise: what is broken today, and is being mended. The list is to become empty.

A violation that one of them takes is counted, and fails nothing. What takes it must be narrow, so that it hides nothing
else. A promise tells in its words what a finding goes by: when a drain began, whose clocks differ.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from msgspec import Struct

from tightship_testkit.disasters.promises.base import Violation

Takes = Callable[[Violation], bool]


class Known(Struct, frozen=True):
    """A finding: violations of *promise* for which *takes* holds; *reference* says what it is."""

    name: str
    promise: str
    takes: Takes
    reference: str


def _says(pattern: str) -> Takes:
    found = re.compile(pattern)
    return lambda violation: found.search(violation.what) is not None


def _apart(least: float) -> Takes:
    """Take what happened with clocks that were so many seconds apart."""

    def takes(violation: Violation) -> bool:
        found = re.search(r"clocks are up to (\d+) s apart", violation.what)
        return found is not None and float(found[1]) >= least

    return takes


def _ends(words: str) -> Takes:
    return lambda each: each.subject.endswith(words)


def _with(*wrong: str) -> Takes:
    """Take violations of a floor whose data had any of these wrong with them."""
    return lambda each: bool(set(wrong) & set(each.subject.partition(" with ")[2].split(", ")))


def _by_clock(each: Violation) -> bool:
    return " with clock-" in each.subject or ", clock-" in each.subject


def _split(each: Violation) -> bool:
    return _with("relabelled-split")(each) and "by query" in each.what


def _fallback(each: Violation) -> bool:
    return _with("targets-away")(each) and "fallback query" in each.what


def _answered(each: Violation) -> bool:
    return "an answer of" in each.what and not each.subject.endswith("with nothing wrong")


_BAD_DATA = "no-floor-lowered-on-bad-data"
_GOOD_ANSWERS = "lowered-by-good-answers"

NODES = (
    Known(
        "cordon-in-drain-lifted",
        "persons-cordon-stays",
        _says(r"lifted the cordon .* (during|just after) a drain of ours$"),
        "drains 1: a cordon that a person puts on a node in drain is taken for ours",
    ),
    Known(
        "cordon-in-drain-ignored",
        "persons-cordon-stays",
        _says(r"evicted .* a person cordoned the node .* (during|just after) a drain of ours$"),
        "drains 1: uncordoned and cordoned again by a person, a node is emptied all the same",
    ),
    Known(
        "node-opts-out-in-drain",
        "opt-outs-respected",
        lambda violation: violation.subject.startswith("Node ") and violation.what.endswith("in mid-drain"),
        "drains 2: a node that opts out in mid-drain is emptied all the same",
    ),
    Known(
        "pinned-pods",
        "no-eviction-loop",
        _says(r"its template names the node$"),
        "drains 5: pods whose template names their node are evicted again and again",
    ),
    Known(
        "two-ledgers",
        "within-drain-budget",
        _says(r"whose ledgers are in \d+ namespaces$"),
        "drains 8: controllers in two namespaces don't share one budget",
    ),
    Known(
        "skew-waited-out", "drains-end", _apart(30), "drains 10: a successor whose clock is behind waits the skew out"
    ),
    Known(
        "skew-orphans",
        "live-drain-left-alone",
        _apart(80_000),
        "drains 10: a controller whose clock is a day ahead takes a living drain for an orphan",
    ),
    Known(
        "dry-run-strands",
        "cordon-has-owner",
        _says(r"its controller is a dry run now$"),
        "operations F2: going back to a dry run strands a cordoned node",
    ),
    Known(
        "lease-not-given-up",
        "nothing-left",
        _says(r"is held by .* which has ended$"),
        "to be mended: a replica that is told to end now and then leaves its Lease to run out",
    ),
)

FLOORS = (
    Known("unguarded-query", _BAD_DATA, _ends(" unguarded"), "floors 2: one answer lowers where no range is visible"),
    Known(
        "scrapes-partly-lost",
        _BAD_DATA,
        _with("targets-partly-away", "targets-flapping"),
        "floors 3: targets that can't be scraped are taken for traffic that ended",
    ),
    Known("is-partial", _BAD_DATA, _with("partial"), "floors 4: isPartial is not looked at"),
    Known("is-partial", _GOOD_ANSWERS, _ends(" an answer partial"), "floors 4: isPartial is not looked at"),
    Known("raised-without-limit", "no-floor-raised-without-bound", _answered, "floors 5: bad data raise without limit"),
    Known("lag-and-clocks", _BAD_DATA, _with("lag", "server-clock", "samples-dated"), "floors 6: late samples lower"),
    Known("lag-and-clocks", _BAD_DATA, _by_clock, "floors 6: our clock ahead lowers"),
    Known("lag-and-clocks", "floors-follow", _ends(" too low with a clock ahead"), "floors 6: our clock ahead lowers"),
    Known("fallback-is-believed", _BAD_DATA, _fallback, "floors 7: a fallback outlives the lowering window"),
    Known(
        "breaker-by-floors",
        "floors-follow",
        _ends(" too high after a correlated drop"),
        "floors 8: the breaker compares with floors, not with earlier answers",
    ),
    Known("one-series-becomes-several", _BAD_DATA, _split, "floors 10: the largest of several series counts"),
    *(
        Known("doubtful-answers", _GOOD_ANSWERS, _ends(f" an answer {way}"), f"floors 12: {way} is believed")
        for way in ("http-203", "http-206", "error-beside")
    ),
    Known(
        "doubtful-answers",
        _BAD_DATA,
        _with("http-203", "http-206", "error-beside", "negative", "stale-cache"),
        "floors 12: partial, old and negative answers are believed",
    ),
    Known(
        "own-bound-lost-with-etcd",
        "own-bounds-are-kept",
        _ends(" after etcd had lost a write"),
        "to be mended: an older floor of ours that etcd brings back is taken for the user's own bound",
    ),
)

KNOWN: tuple[Known, ...] = (*NODES, *FLOORS)


def finding(violation: Violation) -> Known | None:
    """Return the known finding that *violation* is, if it is one."""
    return next((each for each in KNOWN if each.promise == violation.promise and each.takes(violation)), None)


__all__ = ["KNOWN", "Known", "finding"]
