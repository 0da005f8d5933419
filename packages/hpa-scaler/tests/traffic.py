"""Requests to a web server in August 1995, minute by minute, with an outage of 37.7 hours."""

from __future__ import annotations

import csv
import gzip
import os
from datetime import datetime
from pathlib import Path

import pytest


def august_1995() -> list[tuple[float, float]]:
    """Return the time, in seconds since 1970, and the requests a second of each minute; skip where there is no file."""
    root = Path(__file__).parents[3]
    path = Path(os.environ.get("TIGHTSHIP_DATA", root.parent / "shared" / "data")) / "request_rate.csv.gz"
    if not path.exists():
        pytest.skip("request_rate.csv.gz is absent: let TIGHTSHIP_DATA name the folder that holds it")
    with gzip.open(path, "rt") as lines:
        rows = list(csv.DictReader(lines))
    return [(datetime.fromisoformat(row["timestamp"]).timestamp(), float(row["rps"])) for row in rows]


def longest_silence(rates: list[float]) -> tuple[int, int]:
    """Return the longest run of zeros: its first minute, and the first after it."""
    best, begin = (0, 0), None
    for minute, rate in enumerate([*rates, 1.0]):
        if rate == 0 and begin is None:
            begin = minute
        elif rate and begin is not None:
            best, begin = max(best, (begin, minute), key=lambda run: run[1] - run[0]), None
    return best
