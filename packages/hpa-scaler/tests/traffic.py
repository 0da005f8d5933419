"""Requests to a web server in August 1995, minute by minute, with an outage of 37.7 hours."""

from __future__ import annotations

import pytest

from tightship_testkit import web_traffic


def requests_of_1995() -> list[tuple[float, float]]:
    """Return the time, in seconds since 1970, and the requests a second of each minute; skip where there is no file."""
    known = web_traffic.minutes()
    if known is None:
        pytest.skip(f"{web_traffic.FILE} is absent: let TIGHTSHIP_DATA name the folder that holds it")
    return known


def longest_silence(rates: list[float]) -> tuple[int, int]:
    """Return the longest run of zeros: its first minute, and the first after it."""
    best, begin = (0, 0), None
    for minute, rate in enumerate([*rates, 1.0]):
        if rate == 0 and begin is None:
            begin = minute
        elif rate and begin is not None:
            best, begin = max(best, (begin, minute), key=lambda run: run[1] - run[0]), None
    return best
