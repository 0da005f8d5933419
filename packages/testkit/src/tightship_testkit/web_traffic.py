"""Requests to a web server in August 1995, minute by minute: real traffic, which is no part of the project."""

from __future__ import annotations

import csv
import gzip
import os
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

FILE = "request_rate.csv.gz"


def minutes() -> list[tuple[float, float]] | None:
    """Return the time, in seconds since 1970, and the requests a second of each minute; ``None`` without the file.

    ``TIGHTSHIP_DATA`` names its folder, which else is ``shared/data`` beside the project.
    """
    beside = Path(__file__).resolve().parents[5] / "shared" / "data"
    path = Path(os.environ.get("TIGHTSHIP_DATA", beside)) / FILE
    if not path.exists():
        return None
    with gzip.open(path, "rt") as lines:
        rows = list(csv.DictReader(lines))
    return [(datetime.fromisoformat(row["timestamp"]).timestamp(), float(row["rps"])) for row in rows]


def day_from(begin: str) -> Sequence[float] | None:
    """Return the requests a second of the 24 hours from *begin*, an RFC 3339 time; ``None`` without the file."""
    known = minutes()
    first = datetime.fromisoformat(begin).timestamp()
    return None if known is None else [rate for at, rate in known if first <= at < first + 24 * 3600]
