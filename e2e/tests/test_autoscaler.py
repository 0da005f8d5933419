"""The off-peak cluster lies between the two thresholds, offline and on a real control plane, and can be drained."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from tightship.cluster import Snapshot
from tightship.kube.cache import read_cluster
from tightship.kube.connection import connect
from tightship.kube.files import parse
from tightship.utilization import utilization
from tightship_e2e import ControlPlane, load
from tightship_e2e.draining import cordon, evict_all, settled
from tightship_testkit.client import Client, Json
from tightship_testkit.off_peak import off_peak

POOLS = {"general": 5, "memory": 4}


def shares(snapshot: Snapshot) -> list[float]:
    return [utilization(view, time.time()).highest for view in snapshot.nodes.values()]


def removed(path: Path, limit: float) -> list[str]:
    """The nodes a compactor with this limit removes in the end."""
    arguments = ["plan", "-f", str(path), "--until-stable", "--limit", str(limit), "-o", "json"]
    answer = subprocess.run(
        [sys.executable, "-m", "node_compactor.cli", *arguments], capture_output=True, timeout=120, check=True
    )
    return [entry["name"] for entry in json.loads(answer.stdout)["nodes"] if entry["decision"] == "remove"]


@pytest.mark.parametrize("seed", range(5))
def test_only_the_higher_threshold_finds_nodes_to_spare(tmp_path: Path, seed: int) -> None:
    cluster = msgspec.json.encode(off_peak({"general": 8, "memory": 6}, seed=seed))
    (tmp_path / "cluster.json").write_bytes(cluster)
    found = shares(parse(cluster, "off-peak").snapshot)
    assert len(found) == 14
    assert all(0.5 < share < 0.7 for share in found)
    assert removed(tmp_path / "cluster.json", 0.5) == []
    assert len(removed(tmp_path / "cluster.json", 0.75)) >= 3


def test_bounds_without_a_step_between_them_are_refused() -> None:
    with pytest.raises(ValueError, match="no multiple of 50m"):
        off_peak(POOLS, low=0.5, high=0.51)


def test_it_loads_as_it_is_and_a_node_can_be_drained(empty_plane: ControlPlane) -> None:
    async def work(api: Client) -> None:
        report = await load(api, off_peak(POOLS))
        assert report.problems == []
        async with await connect(empty_plane.kubeconfig) as connection:
            snapshot = await read_cluster(connection)
        assert len(snapshot.nodes) == 9
        assert all(0.5 < share < 0.7 for share in shares(snapshot))
        assert {budget.disruptions_allowed for budget in snapshot.budgets} == {1}
        pods = await api.list("Pod", "shop", fieldSelector="spec.nodeName=general-0")
        await cordon(api, "general-0")
        begin = time.monotonic()
        await evict_all(api, pods)
        assert await settled(api, empty_plane) == ""
        print(f"{len(pods)} pods left general-0 in {time.monotonic() - begin:.1f} s")
        left: list[Json] = await api.list("Pod", fieldSelector="spec.nodeName=general-0")
        assert left == []

    empty_plane.run(work)
