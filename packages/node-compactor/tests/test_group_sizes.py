"""Plans of node-compactor end at the minimum size of the autoscaler's node groups, and say where it is unknown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tightship_testkit.builders import DAY, node, pod, workload

NAMES = ("n1", "n2", "n3", "n4", "n5", "n6")


def files(tmp_path: Path, minimum: int | None) -> list[str]:
    """Write four idle nodes of group small and two of other; of the status's groups only small is known."""
    items = [node(name, labels={"agentpool": "small" if name < "n5" else "other"}, age=300 * DAY) for name in NAMES]
    items += [workload(), *(pod(f"web-{name}", on=name) for name in NAMES)]
    (tmp_path / "cluster.json").write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": items}))
    if minimum is None:
        return ["-f", str(tmp_path / "cluster.json")]
    text = f"nodeGroups:\n- name: small\n  health:\n    minSize: {minimum}\n"
    meta = {"name": "cluster-autoscaler-status", "namespace": "kube-system"}
    status = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"status": text}}
    (tmp_path / "status.json").write_text(json.dumps(status))
    return ["-f", str(tmp_path / "cluster.json"), "-f", str(tmp_path / "status.json")]


def removed(given: Any, pool: str) -> int:
    return sum(each["decision"] == "remove" and each["pool"] == pool for each in given["nodes"])


@pytest.mark.parametrize(("minimum", "small"), [(0, 4), (3, 1), (4, 0), (9, 0)])
@pytest.mark.parametrize("more", [(), ("--until-stable",), ("--strategy", "fewest-nodes")])
def test_a_plan_keeps_the_least_size_of_a_group(
    cli: Any, tmp_path: Path, minimum: int, small: int, more: tuple[str, ...]
) -> None:
    given = json.loads(cli("plan", *files(tmp_path, minimum), *more, "-o", "json").out)
    # Somewhere the pods have to be.
    assert removed(given, "small") == small if minimum else removed(given, "small") >= 3
    kept = [each for each in given["nodes"] if each["pool"] == "small" and each["decision"] == "keep"]
    if minimum:
        assert {"NodeGroupMinSize"} == {reason for each in kept for reason in each["reasons"]}


def test_explain_shows_the_group_with_its_size(cli: Any, tmp_path: Path) -> None:
    outcome = cli("explain", *files(tmp_path, 4), "n1")
    assert "node group small would keep 3 nodes, its minimum size is 4" in " ".join(outcome.out.split())


def test_a_group_of_which_nothing_is_known_is_told_in_one_warning(cli: Any, tmp_path: Path) -> None:
    def warned(*arguments: str) -> list[str]:
        given = json.loads(cli("plan", *arguments, "-o", "json").out)
        return [each for each in given["warnings"] if "minimum size" in each]

    [both] = warned(*files(tmp_path, None))
    assert "unknown for pools other, small" in both
    assert "kubectl get configmap -n kube-system cluster-autoscaler-status -o json" in both
    [one] = warned(*files(tmp_path, 0))
    assert "unknown for pool other" in one
    assert warned(*files(tmp_path, 0), "--min-nodes", "0") == []
