"""The time of a file: a row for each way in which the clocks of a cluster disagree."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tightship.cli.snapshot_file import agreed_time, odd_clocks, read_files
from tightship.objects.times import parse_rfc3339, rfc3339

from .conftest import node

Json = dict[str, Any]
NOW = int(parse_rfc3339("2026-11-01T00:00:00Z"))
MINUTE, HOUR, DAY = 60, 3600, 86400
YEAR = 365 * DAY
IDLE = NOW - 10 * DAY
"""When the last object was created in a cluster where nothing happens."""

CLOCKS: list[tuple[str, list[int], int, int, int]] = [
    # (situation, what the kubelets say, what the API server has written last, the time of the file, clocks named)
    ("all agree", [NOW, NOW - 60, NOW - 120], IDLE, NOW, 0),
    ("reports of five minutes, late ones too", [NOW, NOW - 290, NOW - 440], IDLE, NOW, 0),
    ("one a year ahead", [NOW, NOW - 60, NOW + YEAR], IDLE, NOW, 1),
    ("one a year behind", [NOW, NOW - 60, NOW - YEAR], IDLE, NOW, 1),
    ("one ahead and one behind", [NOW, NOW - 60, NOW + YEAR, NOW - YEAR], IDLE, NOW, 2),
    ("one an hour ahead", [NOW, NOW - 60, NOW + HOUR], IDLE, NOW, 1),
    ("one ten minutes ahead", [NOW, NOW - 60, NOW + 600], IDLE, NOW, 0),
    ("all ahead of each other, each by itself", [NOW, NOW + DAY, NOW + YEAR], NOW - 30, NOW, 2),
    ("two a year ahead of three", [NOW, NOW - 9, NOW - 20, NOW + YEAR, NOW + YEAR], IDLE, NOW, 2),
    ("two a year ahead of two", [NOW, NOW - 9, NOW + YEAR, NOW + YEAR], IDLE, NOW, 2),
    ("two a year behind two", [NOW, NOW - 9, NOW - YEAR, NOW - YEAR], IDLE, NOW, 2),
    ("a pair, one a year ahead", [NOW, NOW + YEAR], IDLE, NOW, 1),
    ("a pair, one a year behind", [NOW, NOW - YEAR], IDLE, NOW, 1),
    ("one node alone", [NOW], IDLE, NOW, 0),
    ("one node alone, a year behind the API server", [NOW - YEAR], NOW, NOW, 1),
    ("one node alone, without creation times", [NOW], 0, NOW, 0),
    ("objects created since the last report", [NOW - 200, NOW - 300], NOW, NOW, 0),
    ("kubelets that report rarely", [NOW - 2000, NOW - 2100], NOW, NOW, 0),
    ("one object from the future", [NOW, NOW - 60], NOW + YEAR, NOW, 1),
    ("no kubelet says anything", [], NOW, NOW, 0),
    ("no time at all", [], 0, 0, 0),
    ("an old file", [NOW - 3 * YEAR, NOW - 3 * YEAR - 60], NOW - 4 * YEAR, NOW - 3 * YEAR, 0),
]


@pytest.mark.parametrize(("says", "stamped", "at", "odd"), [row[1:] for row in CLOCKS], ids=[row[0] for row in CLOCKS])
def test_the_time_of_a_file_is_that_of_most_of_its_clocks(says: list[int], stamped: int, at: int, odd: int) -> None:
    reports = {f"n{number}": each for number, each in enumerate(says)}
    found = agreed_time(reports, stamped)
    assert (rfc3339(found), found) == (rfc3339(at), at)
    wrong = [name for name, each in reports.items() if abs(each - at) >= HOUR]
    said = odd_clocks(reports, stamped, found)
    assert len(said) == bool(odd)
    assert all(any(name in each for each in said) for name in wrong)
    assert len(wrong) == odd or "API server" in said[0]


def test_wrong_clocks_are_named_with_how_wrong_they_are() -> None:
    reports = {"n1": NOW, "n2": NOW - 10, "n3": NOW + YEAR}
    assert odd_clocks(reports, IDLE, NOW) == [
        "a clock is wrong, that of node n3 (365d ahead): most of the file is of 2026-11-01T00:00:00Z"
    ]
    many = {f"n{number}": NOW for number in range(9)} | {f"odd-{number}": NOW - number * HOUR for number in range(1, 6)}
    [said] = odd_clocks(many, IDLE, NOW)
    assert (
        "5 clocks are wrong, those of nodes odd-5 (5h behind), odd-4 (4h behind), odd-3 (3h behind) and 2 more" in said
    )


def reporting(name: str, at: int | None, ready: str = "True", **meta: Any) -> Json:
    found = node(name)
    found["metadata"].update({"creationTimestamp": rfc3339(IDLE), **meta})
    heard = {} if at is None else {"lastHeartbeatTime": rfc3339(at)}
    found["status"]["conditions"] = [{"type": "Ready", "status": ready, **heard}]
    return {"apiVersion": "v1", "kind": "Node", **found}


WRITTEN = [{"manager": "kubelet", "operation": "Update", "time": rfc3339(NOW - 60), "fieldsV1": {}}]

FILES: list[tuple[str, list[Json], int]] = [
    ("most nodes gone for a day", [reporting("a", NOW), *(reporting(n, NOW - DAY, "Unknown") for n in "bcd")], NOW),
    ("all nodes gone", [reporting(name, NOW - DAY, "Unknown") for name in "abc"], NOW - DAY),
    ("not ready, but reporting", [reporting("a", NOW, "False"), reporting("b", NOW - 9, "False")], NOW),
    ("a kubelet behind the API server", [reporting("a", NOW - YEAR, managedFields=WRITTEN)], NOW - 60),
    (
        "a pair, of which the API server knows one",
        [reporting("a", NOW - YEAR), reporting("b", NOW, managedFields=WRITTEN)],
        NOW,
    ),
    ("null for a time", [reporting("a", NOW), reporting("b", None)], NOW),
]


@pytest.mark.parametrize(("items", "at"), [row[1:] for row in FILES], ids=[row[0] for row in FILES])
def test_only_kubelets_that_still_report_tell_the_time(items: list[Json], at: int, tmp_path: Any) -> None:
    path = tmp_path / "nodes.json"
    path.write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": items}))
    assert rfc3339(read_files([path]).newest) == rfc3339(at)
