"""Who deletes the nodes of a NodePool: one row for each way in which Karpenter consolidates or doesn't."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from tightship.cluster import Snapshot
from tightship.documents.build import karpenter_summary
from tightship.documents.warnings import warnings_of
from tightship.objects.cron import CronError, parse_schedule
from tightship.objects.karpenter import DisruptionBudget
from tightship.objects.reasons import Reason, Refusal
from tightship.planning.facts import FactRules, gather
from tightship.rules.nodes import NodeRules, judge_node, opt_outs, undeletable
from tightship_testkit.builders import NOW, budget, controller, node, pod, snapshot

Json = dict[str, Any]
MANAGED, OFF = Reason.KARPENTER_MANAGED, Reason.KARPENTER_CONSOLIDATION_OFF
EMPTY = {"consolidationPolicy": "WhenEmpty"}


def pool(disruption: Json | None = None, **spec: Any) -> Json:
    given = spec if disruption is None else {"disruption": disruption, **spec}
    return {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "spot"}, "spec": given}


def seen(*pools: Json) -> Snapshot:
    return snapshot(node(labels={"karpenter.sh/nodepool": "spot"}), *pools)


def judged(*pools: Json, now: float = NOW, rules: NodeRules = NodeRules()) -> list[Refusal]:
    found = seen(*pools)
    [view] = found.nodes.values()
    return judge_node(view, now, rules, found.node_pools)


def test_a_budget_is_read_with_its_reasons_and_its_schedule() -> None:
    nightly = {"nodes": "3", "reasons": ["Empty"], "schedule": "0 9 * * *", "duration": "8h30m"}
    found = seen(pool({"budgets": [{}, nightly]})).node_pools["spot"]
    assert found.budgets == (
        DisruptionBudget("10%"),
        DisruptionBudget("3", ("Empty",), parse_schedule("0 9 * * *"), 8.5 * 3600, "0 9 * * *"),
    )


@pytest.mark.parametrize(
    ("disruption", "reasons"),
    [
        (None, [MANAGED]),
        ({}, [MANAGED]),
        ({"consolidationPolicy": "WhenEmptyOrUnderutilized"}, [MANAGED]),
        ({"consolidationPolicy": "WhenUnderutilized"}, [MANAGED]),
        ({"consolidationPolicy": "Balanced", "consolidateAfter": "5m"}, [MANAGED]),
        (EMPTY, []),
        ({**EMPTY, "consolidateAfter": "1m30s"}, []),
        ({**EMPTY, "consolidateAfter": "Never"}, [OFF]),
        ({"consolidateAfter": "Never"}, [OFF]),
        ({**EMPTY, "budgets": [{"nodes": "0"}]}, [OFF]),
        ({**EMPTY, "budgets": [{"nodes": "10%"}, {"nodes": "0%"}]}, [OFF]),
        ({**EMPTY, "budgets": [{"nodes": "1%"}]}, []),
        ({**EMPTY, "budgets": [{"nodes": "0", "reasons": ["Drifted", "Underutilized"]}]}, []),
        ({**EMPTY, "budgets": [{"nodes": "0", "reasons": ["Empty"]}]}, [OFF]),
        ({"budgets": [{"nodes": "0"}]}, [OFF]),
        ({"budgets": [{"nodes": "0", "reasons": ["Underutilized"]}]}, []),
        ({"budgets": [{"nodes": "0", "reasons": ["Empty"]}]}, [MANAGED, OFF]),
    ],
)
def test_only_a_node_that_karpenter_deletes_once_empty_may_go(disruption: Json | None, reasons: list[str]) -> None:
    assert [refusal.reason for refusal in judged(pool(disruption))] == reasons


def test_a_static_pool_gets_its_nodes_back() -> None:
    [refusal] = judged(pool({}, replicas=3))
    assert refusal.reason is OFF
    assert "static, with 3 replicas" in refusal.detail


def test_nodes_of_a_pool_that_is_not_known_are_left_to_karpenter() -> None:
    [refusal] = judged()
    assert (refusal.reason, refusal.fix) == (MANAGED, "let Tightship read nodepools.karpenter.sh")


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"consolidateAfter": "soon"}, "'soon' is not a duration"),
        ({"consolidateAfter": 5}, 'spec.disruption.consolidateAfter: 5 is not text; put the value in quotes: "5"'),
        ({"budgets": [{"nodes": "some"}]}, "nodes is some; allowed is a number or a percentage"),
        ({"budgets": [{"nodes": "0", "schedule": "at night", "duration": "1h"}]}, "'at night' is not a schedule"),
    ],
)
def test_a_malformed_pool_keeps_its_own_nodes_and_is_named_once(spec: Json, problem: str) -> None:
    bad, other = pool(spec), node("n2", labels={"karpenter.sh/nodepool": "other"})
    good = {**pool(EMPTY), "metadata": {"name": "other"}}
    found = snapshot(node("n1", labels={"karpenter.sh/nodepool": "spot"}), other, bad, good)
    assert found.unreadable == ()
    said = {name: judge_node(view, NOW, pools=found.node_pools) for name, view in found.nodes.items()}
    assert [refusal.reason for refusal in said["n1"]] == [MANAGED]
    assert problem in said["n1"][0].detail
    assert said["n2"] == []
    [warning] = [each for each in warnings_of(found) if "NodePool" in each]
    assert warning.startswith("NodePool spot can't be read")


def test_pools_that_were_not_read_are_told_where_karpenter_has_nodes() -> None:
    without = msgspec.structs.replace(seen(), missing={"NodePool": "not in the file"})
    assert any("NodePools are not in the file" in each for each in warnings_of(without))
    assert not any("NodePool" in each for each in warnings_of(snapshot(node())))


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


OFFICE = {**EMPTY, "budgets": [{"nodes": "0", "schedule": "0 9 * * mon-fri", "duration": "8h"}]}


@pytest.mark.parametrize(
    ("time", "kept"),
    [
        ("2026-11-23T08:59:59", False),
        ("2026-11-23T09:00:00", True),
        ("2026-11-23T16:59:59", True),
        ("2026-11-23T17:00:00", False),
        ("2026-11-22T12:00:00", False),
    ],
)
def test_a_budget_of_zero_counts_in_its_hours(time: str, kept: bool) -> None:
    assert [refusal.reason for refusal in judged(pool(OFFICE), now=at(time))] == [OFF] * kept


def test_a_budget_that_lasts_for_ages_always_counts() -> None:
    ages = {**EMPTY, "budgets": [{"nodes": "0", "schedule": "@daily", "duration": f"{'9' * 12}h"}]}
    assert [refusal.reason for refusal in judged(pool(ages), now=at("2026-11-22T12:00:00"))] == [OFF]


def test_hours_end_no_drain_that_has_begun() -> None:
    found = seen(pool(OFFICE))
    [view] = found.nodes.values()
    assert opt_outs(view, pools=found.node_pools) == []


def test_facts_follow_the_hours_and_the_pools() -> None:
    found = seen(pool(OFFICE))

    def reasons(current: Snapshot, time: str) -> list[Reason]:
        [fact] = gather(current, FactRules(), at(time)).values()
        return [refusal.reason for refusal in fact.refusals if refusal.reason in (MANAGED, OFF)]

    assert reasons(found, "2026-11-23T08:00:00") == []
    assert reasons(found, "2026-11-23T10:00:00") == [OFF]
    assert reasons(seen(pool({})), "2026-11-23T10:00:00") == [MANAGED]


def test_both_rules_can_be_switched_off() -> None:
    off = NodeRules(frozenset({MANAGED, OFF}))
    assert judged(pool({"budgets": [{"nodes": "0", "reasons": ["Empty"]}]}), rules=off) == []


@pytest.mark.parametrize(
    ("schedule", "time", "hours", "within"),
    [
        ("@daily", "2026-03-01T05:00:00", 5, False),
        ("@daily", "2026-03-01T05:00:00", 5.1, True),
        ("*/15 * * * *", "2026-03-01T05:16:00", 0.02, True),
        ("*/15 * * * *", "2026-03-01T05:14:00", 0.02, False),
        ("0 0 1 * *", "2026-03-03T00:00:00", 49, True),
        ("0 0 13 * fri", "2026-03-06T01:00:00", 2, True),  # a Friday, though not the 13th: either counts
        ("0 0 13 * fri", "2026-03-07T01:00:00", 2, False),
        # robfig/cron, spec_test.go: with a step both fields choose days, and either counts.
        ("0 0 */10 * sun", "2012-07-15T01:00:00", 2, True),
        ("0 0 1,15 * sun", "2012-06-15T01:00:00", 2, True),
        ("0 0 1,15 * *", "2012-07-09T01:00:00", 2, False),
        ("0 0 */1 * mon", "2012-07-15T01:00:00", 2, False),
        ("30 8 ? jul sun", "2012-07-16T09:00:00", 2, False),
        ("0 22 * dec-dec ?", "2026-03-07T22:30:00", 2, False),
        ("0 22 * * *", "2026-03-07T02:30:00", 8, True),
        ("@hourly", "2026-03-07T02:30:00", 24 * 400, True),
    ],
)
def test_a_schedule_says_whether_its_window_is_open(schedule: str, time: str, hours: float, within: bool) -> None:
    assert parse_schedule(schedule).began_within(hours * 3600, at(time)) is within


@pytest.mark.parametrize("text", ["", "@never", "* * * *", "60 * * * *", "5-1 * * * *", "a * * * *", "*/0 * * * *"])
def test_what_is_no_schedule_is_refused(text: str) -> None:
    with pytest.raises(CronError, match="is not a schedule"):
        parse_schedule(text)


# What stays on an emptied node. A row is a pod or several, with the text that names it, empty if Karpenter deletes.

KEEP = "karpenter.sh/do-not-disrupt"
AGENT = controller("DaemonSet", "agent")
STATIC = {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "uid-n1", "controller": True}
KRUISE = {**AGENT, "apiVersion": "apps.kruise.io/v1alpha1"}
CLOSED = {"disruptionsAllowed": 0}
EVERY_TAINT = [{"operator": "Exists"}]


def agent(notes: Json | None = None, **spec: Any) -> Json:
    return pod("agent-1", **{"owner": AGENT, "notes": notes, **spec})


def static(**notes: str) -> Json:
    return pod("static-n1", owner=STATIC, notes={"kubernetes.io/config.mirror": "x", **notes})


STAYING: list[tuple[str, list[Json], str, bool]] = [
    # (situation, pods and budgets, what the detail says, whether a drain that has begun ends)
    ("a plain DaemonSet pod", [agent()], "", False),
    ("a DaemonSet's pod that opts out", [agent({KEEP: "true"})], f"shop/agent-1 has the annotation {KEEP}=true", True),
    ("a mirror pod that opts out", [static(**{KEEP: "true"})], f"shop/static-n1 has the annotation {KEEP}=true", True),
    ("a duration that is not over", [agent({KEEP: "25h"})], f"{KEEP}=25h", False),
    ("a duration that is over", [agent({KEEP: "23h"})], "", False),
    ("a value that is neither", [agent({KEEP: "yes"})], "", False),
    ("false", [agent({KEEP: "false"})], "", False),
    ("the word of other autoscalers", [agent({"node-autoscaling.kubernetes.io/do-not-disrupt": "true"})], "", False),
    ("a finished pod that opts out", [agent({KEEP: "true"}, phase="Succeeded")], "", False),
    ("a terminating pod that opts out", [agent({KEEP: "true"}, deletion=NOW + 10)], "", False),
    ("a budget that allows none now", [agent(), budget(status=CLOSED)], "shop/web (minAvailable 1) allows no", False),
    ("a budget that never allows any", [agent(), budget(maxUnavailable=0, status=CLOSED)], "maxUnavailable 0", False),
    ("a budget that allows one", [agent(), budget()], "", False),
    ("a budget that can't be computed", [agent(), budget(status=CLOSED, failed="no scale")], ": no scale", False),
    ("a budget with an older status", [agent(), budget(generation=2)], "", False),
    ("a pod that starts", [agent(ready=False, phase="Pending"), budget(status=CLOSED)], "shop/web", False),
    ("two budgets", [agent(), budget(), budget("other")], "2 PodDisruptionBudgets select pod shop/agent-1", False),
    ("a closed budget elsewhere", [agent(), budget(namespace="other", status=CLOSED)], "", False),
    ("a pod that tolerates every taint", [agent(tolerations=EVERY_TAINT), budget(status=CLOSED)], "", False),
    (
        "a pod that tolerates Karpenter's taint",
        [agent(tolerations=[{"key": "karpenter.sh/disrupted", "operator": "Exists"}]), budget(status=CLOSED)],
        "",
        False,
    ),
    (
        "a pod that tolerates evictions by other taints",
        [agent(tolerations=[{"operator": "Exists", "effect": "NoExecute"}]), budget(status=CLOSED)],
        "shop/web",
        False,
    ),
    (
        "an unhealthy pod that may always go",
        [agent(ready=False), budget(status=CLOSED, unhealthyPodEvictionPolicy="AlwaysAllow")],
        "",
        False,
    ),
    ("an unhealthy pod", [agent(ready=False), budget(status=CLOSED)], "shop/web", False),
    ("a mirror pod under a closed budget", [static(), budget(status=CLOSED)], "", False),
    ("a DaemonSet of another API group", [agent(owner=KRUISE)], "pod shop/agent-1 stays on it", True),
    ("a pod that goes with the node", [pod("cheap-1", priority=-20)], "pod shop/cheap-1 stays on it", True),
    (
        "a pod that Cluster Autoscaler takes for a DaemonSet's",
        [pod("as-daemon", notes={"cluster-autoscaler.kubernetes.io/daemonset-pod": "true"})],
        "pod shop/as-daemon stays on it",
        True,
    ),
    ("a pod that is evicted first", [pod(), budget(status=CLOSED)], "", False),
]


@pytest.mark.parametrize(("items", "said", "lasts"), [row[1:] for row in STAYING], ids=[row[0] for row in STAYING])
def test_a_node_that_karpenter_would_keep_for_a_pod_that_stays_is_not_emptied(
    items: list[Json], said: str, lasts: bool
) -> None:
    found = snapshot(node(labels={"karpenter.sh/nodepool": "spot"}), pool(EMPTY), *items)
    [fact] = gather(found, FactRules(), NOW).values()
    reported = [each.detail for each in fact.refusals if each.reason is OFF]
    assert len(reported) == bool(said)
    assert all(said in each for each in reported)
    during = undeletable(found, fact.view.node, NodeRules())
    assert bool(during) == lasts
    assert undeletable(found, fact.view.node, NodeRules(frozenset({OFF})), NOW) == []


@pytest.mark.parametrize("items", [row[1] for row in STAYING], ids=[row[0] for row in STAYING])
def test_what_stays_on_a_node_that_karpenter_has_not_made_keeps_nothing(items: list[Json]) -> None:
    found = snapshot(node(), *items)
    [view] = found.nodes.values()
    assert undeletable(found, view.node, NodeRules(), NOW) == []


@pytest.mark.parametrize(
    ("labels", "taints", "kept"),
    [
        ({"karpenter.sh/registered": "true", "karpenter.sh/initialized": "true"}, [], False),
        ({"karpenter.sh/registered": "true"}, [], True),
        ({"karpenter.sh/registered": "true", "karpenter.sh/initialized": "false"}, [], True),
        ({}, [{"key": "karpenter.sh/unregistered", "effect": "NoExecute"}], True),
        ({}, [], False),
    ],
)
def test_a_node_that_karpenter_has_not_initialized_stays(labels: Json, taints: list[Json], kept: bool) -> None:
    found = snapshot(node(labels={"karpenter.sh/nodepool": "spot", **labels}, taints=taints), pool(EMPTY))
    [view] = found.nodes.values()
    reported = undeletable(found, view.node, NodeRules(), NOW)
    assert [each.reason for each in reported] == [OFF] * kept
    assert undeletable(found, view.node, NodeRules()) == []


def test_facts_follow_durations_and_budgets_of_pods_that_stay() -> None:
    made = node(labels={"karpenter.sh/nodepool": "spot"})
    found = snapshot(made, pool(EMPTY), agent({KEEP: "25h"}))

    def kept(current: Snapshot, now: float) -> bool:
        [fact] = gather(current, FactRules(), now).values()
        return any(each.reason is OFF for each in fact.refusals)

    assert kept(found, NOW)
    assert not kept(found, NOW + 2 * 3600)


def test_a_node_of_a_provisioner_is_left_to_karpenter_and_counted() -> None:
    found = snapshot(node(labels={"karpenter.sh/provisioner-name": "default"}))
    [fact] = gather(found, FactRules(), NOW).values()
    [refusal] = fact.refusals
    assert refusal.reason is MANAGED
    assert "Provisioner default of a Karpenter before 0.33" in refusal.detail
    assert fact.pool == "default"
    summary = karpenter_summary(found, {"n1": fact.refusals}, None)
    assert summary is not None
    assert (summary.nodes, summary.node_pools) == (1, ("default",))


def test_a_node_that_has_moved_to_a_nodepool_goes_by_that() -> None:
    labels = {"karpenter.sh/provisioner-name": "default", "karpenter.sh/nodepool": "spot"}
    found = snapshot(node(labels=labels), pool(EMPTY))
    [view] = found.nodes.values()
    assert judge_node(view, NOW, pools=found.node_pools) == []


@pytest.mark.parametrize(
    ("disruption", "reasons"),
    [
        ({"consolidationPolicy": "WhenUnderutilized", "expireAfter": "720h"}, [MANAGED]),
        ({"consolidationPolicy": "WhenEmpty", "consolidateAfter": "30s", "expireAfter": "Never"}, []),
        ({"consolidationPolicy": "WhenEmpty", "consolidateAfter": "Never"}, [OFF]),
        ({"expireAfter": "720h"}, [MANAGED]),
    ],
)
def test_a_nodepool_of_v1beta1_is_read(disruption: Json, reasons: list[str]) -> None:
    old = {**pool(disruption), "apiVersion": "karpenter.sh/v1beta1"}
    assert [refusal.reason for refusal in judged(old)] == reasons
