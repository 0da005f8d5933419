"""Known findings, by promise: what is broken today, and is being mended. None is at present.

A violation that one of them takes is counted, and fails nothing. What takes it must be narrow, so that it hides nothing
else. A promise tells in its words what a finding goes by: when a drain began, whose clocks differ.
"""

from __future__ import annotations

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


KNOWN: tuple[Known, ...] = ()


def finding(violation: Violation) -> Known | None:
    """Return the known finding that *violation* is, if it is one."""
    return next((each for each in KNOWN if each.promise == violation.promise and each.takes(violation)), None)


__all__ = ["KNOWN", "Known", "finding"]
