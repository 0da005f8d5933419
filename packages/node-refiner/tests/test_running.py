"""What the refiner brings to the process that controllers of nodes share."""

from __future__ import annotations

from typing import Any

import msgspec

from node_refiner.controller import REFINER
from node_refiner.judge import CONTROLLER, RefinerJudge
from node_refiner.settings import RefinerSettings
from tightship.cluster.installations import Beside
from tightship.documents.document import Generator, SettingsView
from tightship.nodes.soft_taints import steer
from tightship.nodes.status import Situation, show
from tightship.objects.drain_record import DrainRecord, Phase, encode_record
from tightship.objects.reasons import Reason, Refusal
from tightship.planning.evaluate import Evaluation, evaluate
from tightship_testkit.builders import NOW, controller, node, pod, snapshot, workload

Json = dict[str, Any]


def decided(nodes: int = 5, **settings: Any) -> Evaluation:
    items = [
        *(node(f"n{each}") for each in range(1, nodes + 1)),
        *(pod(f"p{each}", on=f"n{each}", cpu="1") for each in range(1, nodes + 1)),
        workload(),
    ]
    given = {"time_since_last_addition": 0.0, **settings}
    return evaluate(snapshot(*items), RefinerJudge(RefinerSettings(**given)), NOW)


def room(found: Evaluation, *claimed: str, **settings: Any) -> Refusal | None:
    """Why the first node of the plan may not be claimed beside *claimed*."""
    judge = RefinerJudge(RefinerSettings(**settings))
    return judge.room(found.plan.removals[0].node, found.facts, claimed)


def test_a_claim_is_refused_while_a_sibling_has_the_only_place() -> None:
    found = decided()
    assert room(found) is None
    other = room(found, "n5")
    assert other is not None
    assert other.reason is Reason.BUDGET_EXHAUSTED
    same = room(found, found.plan.removals[0].node)
    assert same is not None
    assert same.reason is Reason.DRAIN_IN_PROGRESS


def test_what_a_sibling_has_claimed_is_no_node_that_the_minimums_count() -> None:
    settings: Json = {"minimum_nodes": 4, "minimum_non_tainted_nodes": 2, "cluster_budget": "3"}
    found = decided(nodes=5, **settings)
    assert room(found, **settings) is None
    refusal = room(found, "n5", **settings)
    assert refusal is not None
    assert refusal.reason is Reason.MIN_NODES
    assert "3 nodes would be left, minimumNodeCount is 4" in refusal.detail


def kept(*others: Json, taints: tuple[Json, ...] = (), labels: Json | None = None, **settings: Any) -> list[Reason]:
    """Return what keeps n1, in drain, by what a drain is told of the settings."""
    note = encode_record(DrainRecord(phase=Phase.EVICTING, op="op", since={"Claimed": NOW}))
    ours = {"key": "tightship.dev/draining", "value": "op", "effect": "NoSchedule"}
    mine = node("n1", labels=labels, notes={"tightship.dev/drain": note}, taints=[ours, *taints], unschedulable=True)
    found = snapshot(mine, *others)
    node_refusals = REFINER.drain_settings(RefinerSettings(**settings)).node_refusals(found, found.nodes["n1"].node)
    return sorted(each.reason for each in node_refusals)


def test_a_node_in_drain_is_kept_by_what_would_have_kept_it_before() -> None:
    rest = [node("n2"), node("n3")]
    assert kept(*rest, minimum_nodes=2, minimum_non_tainted_nodes=2) == []
    assert kept(*rest, minimum_nodes=3, minimum_non_tainted_nodes=1) == [Reason.MIN_NODES]
    assert kept(rest[0], node("n3", ready="False"), minimum_nodes=2) == [Reason.MIN_NODES]
    etcd = pod("etcd-n1", naked=True, notes={"kubernetes.io/config.mirror": "0123"})
    assert kept(*rest, etcd, minimum_nodes=2, minimum_non_tainted_nodes=2) == [Reason.CONTROL_PLANE]
    theirs = {"key": "dedicated", "value": "db", "effect": "NoSchedule"}
    assert kept(*rest, taints=(theirs,), minimum_nodes=1, minimum_non_tainted_nodes=1) == [Reason.TAINTED]


def test_a_drain_ends_once_karpenter_would_keep_the_emptied_node() -> None:
    spec = {"disruption": {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "30s"}}
    karpenter = {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "a"}, "spec": spec}
    agent = pod("agent", owner=controller("DaemonSet", "agent"), notes={"karpenter.sh/do-not-disrupt": "true"})
    rest, labels = [node("n2"), node("n3"), karpenter], {"karpenter.sh/nodepool": "a"}
    assert kept(*rest, labels=labels, minimum_nodes=2, minimum_non_tainted_nodes=2) == []
    settings: Json = {"minimum_nodes": 2, "minimum_non_tainted_nodes": 2}
    assert kept(*rest, agent, labels=labels, **settings) == [Reason.KARPENTER_CONSOLIDATION_OFF]


def test_nodes_that_go_next_carry_the_soft_taint() -> None:
    found = decided()
    goes = tuple(each.node for each in found.plan.removals)
    marks = steer(found.snapshot, found.plan, 300, enabled=True, beside=Beside(CONTROLLER))
    assert tuple(name for name, wanted in marks.items() if wanted.taint) == goes
    assert steer(found.snapshot, found.plan, 300, enabled=False, beside=Beside(CONTROLLER)) == {}


def test_status_and_page_have_the_figures_that_it_goes_by() -> None:
    found = decided()
    reported = REFINER.figures(found, RefinerSettings())
    assert reported == (
        ("could go", "3 nodes, pod by pod; the threshold is 2"),
        ("free room", "3.75 nodes like the next one: 3.75 by CPU, 4.96 by memory"),
    )
    situation = Situation(
        generator=Generator("node-refiner", "1"),
        settings=SettingsView("", {}),
        kind="RefinerStatus",
        cluster="c",
        leader="me",
        dry_run=False,
        switched_off=False,
        figures=reported,
        excess=REFINER.excess(found, RefinerSettings()),
    )
    status = msgspec.json.decode(show(found, situation).json())
    assert status["kind"] == "RefinerStatus"
    assert status["plan"]["summary"]["excess"]["couldGo"] == 3


def test_a_failed_drain_is_tried_again_after_the_gap() -> None:
    settings = REFINER.configured({"time_gap": "7"}, {})
    assert REFINER.drain_settings(settings).rules.backoff == 7 * 60
    assert REFINER.drain_settings(settings).rules.node_timeout == 510
    assert REFINER.acts(settings)
    assert not REFINER.acts(REFINER.configured({"drainer_enabled": "False"}, {}))
    assert not REFINER.acts(REFINER.switched_off(settings))
