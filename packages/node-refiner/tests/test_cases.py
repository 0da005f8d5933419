"""Clusters from public reports: what may not go there for node-compactor may not go for node-refiner either."""

from __future__ import annotations

from typing import Any

import pytest

from tightship_testkit.cases import CASES, Case, wrong

EAGER = ("--threshold", "0", "--min-nodes", "0", "--min-non-tainted-nodes", "0", "--count-tainted")
"""Settings with which only the shared rules keep a node."""


@pytest.mark.parametrize("case", [case for case in CASES if case.stays], ids=lambda case: case.file)
def test_what_may_not_go_stays_here_too(case: Case, cli: Any) -> None:
    assert wrong(case, cli, *EAGER, whole=False) == []
