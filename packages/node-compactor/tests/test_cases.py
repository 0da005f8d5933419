"""Clusters from public reports, each with the right answer."""

from __future__ import annotations

from typing import Any

import pytest

from tightship_testkit.cases import CASES, Case, wrong


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.file)
def test_a_cluster_of_a_public_report_is_answered_rightly(case: Case, cli: Any) -> None:
    assert wrong(case, cli) == []
