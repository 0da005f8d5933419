"""What evictions buy by node-refiner: within what its threshold lets go."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest


@pytest.mark.parametrize("threshold", ["0", "1", "4"])
def test_no_plan_removes_more_nodes_than_the_threshold_allows(cli: Any, cluster: Path, threshold: str) -> None:
    rules = ("-f", cluster, "--threshold", threshold, "--min-nodes", "0", "-o", "json", "--advice-time", "0")
    own = json.loads(cli("plan", *rules, "--placement", "possible").out)["summary"]["nodes"]["removed"]
    points = json.loads(cli("plan", *rules, "--frontier").out)["points"]
    assert max((each["removed"] for each in points), default=0) == own
    for most in (1, 2, 100):
        few = json.loads(cli("plan", *rules, "--evictions", str(most)).out)
        assert few["summary"]["evictions"] <= most
        assert few["summary"]["nodes"]["removed"] <= own
        assert all(node["reasons"] for node in few["nodes"] if node["decision"] == "keep")
