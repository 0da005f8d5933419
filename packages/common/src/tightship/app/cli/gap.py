"""The flag ``--gap`` of ``plan``."""

from __future__ import annotations

import argparse

from tightship.app.cli.app import UsageError
from tightship.app.cli.arguments import value_of
from tightship.core.durations import ALLOWED_FORMS, parse_duration
from tightship.core.quoting import quoted

DEFAULT = "10s"
_LONGEST = 3600.0


def add_gap_argument(parser: argparse.ArgumentParser) -> None:
    """Add the flag."""
    group = parser.add_argument_group("how far from the best")
    group.add_argument(
        "--gap",
        metavar="DURATION",
        nargs="?",
        const=DEFAULT,
        type=value_of(_search_time),
        help="also show how few nodes any plan must keep (a proven bound), what the best plan keeps that a search of "
        f"this long finds (default: {DEFAULT}), and what each rule costs",
    )


def gap_wanted(arguments: argparse.Namespace) -> float | None:
    """Return how many seconds to search for the best plan, ``None`` if nobody asked. Raises :class:`UsageError`."""
    seconds: float | None = getattr(arguments, "gap", None)
    if seconds is not None and arguments.until_stable:
        raise UsageError("--gap goes without --until-stable: its bound holds for plans of one round")
    return seconds


def _search_time(text: str) -> float:
    seconds = parse_duration(text, plain_unit="s")
    if not 0 < seconds <= _LONGEST:
        raise ValueError(f"{quoted(text)} is no time to search; allowed is {ALLOWED_FORMS}, more than 0 and up to 1h")
    return seconds
