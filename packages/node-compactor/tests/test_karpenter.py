"""What ``plan`` says where Karpenter consolidates its own nodes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from node_compactor.judge import CompactorJudge
from node_compactor.settings import CompactorSettings, load_settings
from tightship.cli.snapshot_file import read_file
from tightship.nodes.loop import EVERY, Unmanaged
from tightship.planning.evaluate import evaluate
from tightship_testkit.builders import DAY, NOW, node, pod, workload


def cluster(tmp_path: Path, *policies: str) -> str:
    """Write three nodes, n1 and n2 of NodePool spot, of which all but one may go; return the file's name."""
    karpenter = {"karpenter.sh/nodepool": "spot"}
    labels = {"n1": karpenter, "n2": karpenter, "n3": {"agentpool": "rest"}}
    items = [node(name, labels=each, age=DAY * 300) for name, each in labels.items()]
    items += [workload(), *(pod(f"web-{number}", on=f"n{number}") for number in (1, 2, 3))]
    for policy in policies:
        spec = {"disruption": {"consolidationPolicy": policy}}
        items.append({"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "spot"}, "spec": spec})
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": items}))
    return str(path)


@pytest.mark.parametrize(
    ("policies", "words"),
    [
        (("WhenEmptyOrUnderutilized",), "consolidates 2 nodes of NodePool spot itself; the plan leaves them to it"),
        ((), "may consolidate 2 nodes of NodePool spot, whose settings were not read; the plan leaves them to it"),
    ],
)
def test_a_plan_says_who_consolidates_and_what_would_be_possible(
    cli: Any, tmp_path: Path, policies: tuple[str, ...], words: str
) -> None:
    outcome = cli("plan", "-f", cluster(tmp_path, *policies))
    said = " ".join(outcome.out.split())
    assert f"Karpenter {words}" in said
    assert "asked as if it did not: 3 → 1 nodes, --disable-rule KarpenterManaged" in said
    given = json.loads(cli("plan", "-f", cluster(tmp_path, *policies), "-o", "json").out)["summary"]
    assert (given["nodes"]["after"], given["karpenter"]["nodesAfter"]) == (2, 1)


def test_a_pool_whose_empty_nodes_go_is_compacted_without_a_word(cli: Any, tmp_path: Path) -> None:
    outcome = cli("plan", "-f", cluster(tmp_path, "WhenEmpty"))
    assert "3 → 1" in outcome.out
    assert "Karpenter" not in outcome.out


async def test_a_running_controller_asks_too_and_not_at_every_pass(tmp_path: Path) -> None:
    pools = {"*": {"enabled": True, "scaleDownCPURequestRatioLimit": 0.75}}
    keys = {"nodePools": pools, "minimumNodeAge": 0, "neededMarkedTimeForRemoval": 0}
    settings = load_settings(keys)
    judged: list[CompactorSettings] = []

    def judge(given: CompactorSettings) -> CompactorJudge:
        judged.append(given)
        return CompactorJudge(given)

    async def asked(path: str, later: float) -> int | None:
        found = await as_if.plan(evaluate(read_file(path), CompactorJudge(settings), NOW + later), settings)
        return None if found is None else len(found.removals)

    as_if = Unmanaged(judge)
    managed = cluster(tmp_path, "WhenEmptyOrUnderutilized")
    assert [await asked(managed, later) for later in (0.0, EVERY - 1)] == [2, 2]
    assert len(judged) == 1
    assert await asked(managed, EVERY) == 2
    assert len(judged) == 2
    assert await asked(cluster(tmp_path, "WhenEmpty"), EVERY) is None
