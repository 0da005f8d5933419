"""The off-peak cluster lies between the two thresholds."""

from __future__ import annotations

import json
import time
from pathlib import Path

import msgspec
import pytest

from node_compactor.cli import COMMAND
from tightship.files.snapshot_file import parse
from tightship.planning.cluster import Snapshot
from tightship.planning.utilization import utilization
from tightship_testkit.commands import call
from tightship_testkit.off_peak import off_peak


def shares(snapshot: Snapshot) -> list[float]:
    return [utilization(view, time.time()).highest for view in snapshot.nodes.values()]


@pytest.mark.parametrize("seed", range(2))
def test_only_the_higher_threshold_finds_nodes_to_spare(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes], seed: int
) -> None:
    def removed(limit: float) -> list[str]:
        """The nodes a compactor with this limit removes in the end."""
        arguments = ["plan", "-f", tmp_path / "cluster.json", "--until-stable", "--limit", str(limit), "-o", "json"]
        answer = call(COMMAND.name, COMMAND.command, capfdbinary.readouterr, arguments)
        assert answer.code == 0, answer.err
        return [entry["name"] for entry in json.loads(answer.out)["nodes"] if entry["decision"] == "remove"]

    cluster = msgspec.json.encode(off_peak({"general": 8, "memory": 6}, seed=seed))
    (tmp_path / "cluster.json").write_bytes(cluster)
    found = shares(parse(cluster, "off-peak"))
    assert len(found) == 14
    assert all(0.5 < share < 0.7 for share in found)
    assert removed(0.5) == []
    assert len(removed(0.75)) >= 3
