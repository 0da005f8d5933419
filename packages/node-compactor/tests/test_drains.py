"""What drains are told of the settings, what plans do about pods that end by themselves, and strategies by pool."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from node_compactor.controller import COMPACTOR
from node_compactor.judge import CompactorJudge
from node_compactor.settings import CompactorSettings, load_settings
from tightship.cluster import Snapshot
from tightship.drain.machine import DrainRules
from tightship.objects.drain_record import DrainRecord, Phase, encode_record
from tightship.objects.reasons import Reason
from tightship.planning.evaluate import Facts, evaluate
from tightship.planning.facts import FactRules, gather, plannable
from tightship.planning.plan import PerPool, Plan, Strategy
from tightship.process.settings.loading import SettingsError
from tightship.rules.evictability import ENDS_BY_ITSELF
from tightship_testkit.builders import NOW, budget, controller, node, pod, snapshot, when, workload

Json = dict[str, Any]
OPEN: Json = {
    "nodePools": {"*": {"enabled": True, "scaleDownCPURequestRatioLimit": 0.5}},
    "neededMarkedTimeForRemoval": 0,
}


def test_a_drain_goes_by_the_settings_and_the_rules_of_the_plan_before_it() -> None:
    values: Json = {"settleTime": "1s", "awaitCompletionFor": "4m", "placement": "possible"}
    found = COMPACTOR.drain_settings(
        load_settings({**values, "disabledRules": ["LocalStorage"], "blockingSystemPodTimeout": "12s"})
    )
    assert (found.rules.settle, found.rules.await_timeout) == (1, 240)
    assert (found.eviction.awaited, found.eviction.system_pod_timeout) == (ENDS_BY_ITSELF, 12)
    assert found.eviction.disabled == {Reason.LOCAL_STORAGE}
    assert found.placement == "possible"
    plain = COMPACTOR.drain_settings(load_settings({}))
    assert plain.rules == DrainRules(workload_pause=600)
    assert (plain.eviction.awaited, plain.placement) == (frozenset(), "likely")


def test_a_rollout_gives_a_node_in_drain_back_unless_the_drain_has_begun_it_itself() -> None:
    """Make-before-break restarts the Deployments on the node, and ``notBefore`` asks about rollouts."""
    meta = {"creationTimestamp": when(NOW - 60), "ownerReferences": [controller("Deployment", "web")]}
    fresh = workload(replicas=1)
    fresh["metadata"] |= meta
    found = snapshot(node("n1"), node("n2"), pod(on="n1"), fresh)
    settings = load_settings({**OPEN, "windows": {"notBefore": "30m"}, "makeBeforeBreak": "all"})
    refusals = COMPACTOR.drain_settings(settings, lambda: NOW).node_refusals
    for restarts, reasons in (
        ({}, [Reason.OUTSIDE_WINDOW]),
        ({"shop/web": 3}, []),
        ({"shop/db": 3}, [Reason.OUTSIDE_WINDOW]),
    ):
        record = DrainRecord(phase=Phase.CLAIMED, since={"Claimed": NOW - 90}, restarts=restarts)
        mine = {"tightship.dev/drain": encode_record(record)}
        at = msgspec.structs.replace(found.nodes["n1"].node, annotations=mine)
        assert [each.reason for each in refusals(found, at)] == reasons


def in_drain(since: float) -> Json:
    return {
        "notes": {"tightship.dev/drain": encode_record(DrainRecord(phase=Phase.EVICTING, since={"Claimed": since}))},
        "taints": [{"key": "tightship.dev/draining", "value": "op", "effect": "NoSchedule"}],
        "unschedulable": True,
    }


def kept(values: Json, *nodes: Json) -> list[Reason]:
    """Return what keeps n1 by what a drain is told of the settings."""
    found = snapshot(*nodes)
    node_refusals = COMPACTOR.drain_settings(load_settings({"nodePoolLabels": ["pool"], **values})).node_refusals(
        found, found.nodes["n1"].node
    )
    return sorted(each.reason for each in node_refusals)


def of_pool(name: str, pool: str = "a", **more: Any) -> Json:
    return node(name, labels={"pool": pool}, **more)


def pool_of(**values: Any) -> Json:
    return {"nodePools": {"a": {"enabled": True, "scaleDownCPURequestRatioLimit": 0.5, **values}}}


def test_a_node_in_drain_is_kept_by_what_would_have_kept_it_before() -> None:
    mine = of_pool("n1", **in_drain(NOW))
    assert kept(pool_of(), mine) == []
    assert kept(pool_of(enabled=False), mine) == [Reason.POOL_DISABLED]
    assert kept({"nodePools": {"b": {"enabled": True}}}, mine) == [Reason.POOL_NOT_CONFIGURED]
    said = of_pool("n1", **{**in_drain(NOW), "notes": {"karpenter.sh/do-not-disrupt": "true"}})
    assert kept(pool_of(), said) == [Reason.NODE_DO_NOT_DISRUPT]
    assert kept({**pool_of(), "disabledRules": ["NodeDoNotDisrupt"]}, said) == []
    etcd = pod("etcd-n1", naked=True, notes={"kubernetes.io/config.mirror": "0123"})
    assert kept(pool_of(), mine, etcd) == [Reason.CONTROL_PLANE]


def test_a_drain_ends_once_karpenter_would_keep_the_emptied_node() -> None:
    mine = of_pool("n1", **in_drain(NOW))
    mine["metadata"]["labels"]["karpenter.sh/nodepool"] = "a"
    spec = {"disruption": {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "30s"}}
    karpenter = {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "a"}, "spec": spec}
    agent = pod("agent", owner=controller("DaemonSet", "agent"), notes={"karpenter.sh/do-not-disrupt": "true"})
    assert kept(pool_of(), mine, karpenter) == []
    assert kept(pool_of(), mine, karpenter, agent) == [Reason.KARPENTER_CONSOLIDATION_OFF]
    assert kept({**pool_of(), "disabledRules": ["KarpenterConsolidationOff"]}, mine, karpenter, agent) == []


def test_a_pool_at_its_minimum_keeps_the_nodes_that_were_claimed_last() -> None:
    two = pool_of(minimumNodeCount=2)
    mine, rest = of_pool("n1", **in_drain(NOW)), [of_pool("n2"), of_pool("n3")]
    assert kept(two, mine, *rest) == []
    assert kept(two, mine, rest[0], of_pool("x", "b")) == [Reason.POOL_MIN_SIZE]
    assert kept(two, mine, rest[0], of_pool("n3", ready="False")) == [Reason.POOL_MIN_SIZE]
    assert kept(two, mine, rest[0], of_pool("later", **in_drain(NOW + 1))) == []
    assert kept(two, mine, rest[0], of_pool("earlier", **in_drain(NOW - 1))) == [Reason.POOL_MIN_SIZE]
    assert kept(two, of_pool("n1"), rest[0], of_pool("later", **in_drain(NOW + 1))) == [Reason.POOL_MIN_SIZE]


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"evictionMethod": "kill"}, "evictionMethod: 'kill': allowed is 'evict' or 'delete'"),
        ({"whenNotTaken": "drop"}, "whenNotTaken: 'drop': allowed is 'restore' or 'keep'"),
        ({"backoff": "60s", "backoffLimit": "30s"}, "backoffLimit: '30s': is below backoff; allowed is 60 s or more"),
        ({"backoff": "7h"}, "backoffLimit: 21600.0: is below backoff; allowed is 25200 s or more"),
        ({"maximumEvictionsInFlight": 0}, "maximumEvictionsInFlight: 0: allowed is 1 or more"),
        ({"settleTime": "soon"}, "settleTime: 'soon' is not a duration"),
        (
            {"maximumNotReadyNodePercentage": "101%"},
            "maximumNotReadyNodePercentage: '101%': is not a ratio; allowed is",
        ),
        ({"maximumNotReadyNodePercentage": 10}, "maximumNotReadyNodePercentage: 10: is not a ratio; allowed is"),
        ({"nodePools": {"p": {"strategy": "best"}}}, "nodePools.p.strategy: 'best': allowed is 'least-utilized'"),
        ({"steering": "maybe"}, "steering: 'maybe': allowed are off, taints, hints"),
    ],
)
def test_a_bad_value_is_named_with_what_is_allowed(values: Json, says: str) -> None:
    with pytest.raises(SettingsError) as refused:
        load_settings(values)
    [problem] = refused.value.problems
    assert problem.startswith(says)


# -- pods that end by themselves, and deletion past budgets

JOB = {"owner": controller("Job", "batch"), "restartPolicy": "Never"}
ON_COMPLETION = {"notes": {"cluster-autoscaler.kubernetes.io/safe-to-evict": "on-completion"}}


def planned(cluster: Snapshot, **settings: object) -> tuple[Plan, Facts]:
    loaded = load_settings({**OPEN, **settings})
    found = evaluate(cluster, CompactorJudge(loaded), NOW)
    return found.plan, found.facts


@pytest.mark.parametrize("given", [JOB, ON_COMPLETION], ids=["a Job's pod", "on completion"])
def test_a_pod_that_ends_by_itself_keeps_its_node_unless_drains_wait_for_it(given: Json) -> None:
    cluster = snapshot(node(), node("n2"), pod(**given), workload(), workload("Job", "batch"))
    plan, facts = planned(cluster, maximumNodesInPlan=2)
    assert [each.node for each in plan.removals] == ["n2"]
    assert facts["n1"].awaits == ()
    plan, facts = planned(cluster, awaitCompletionFor="1h", maximumNodesInPlan=1)
    assert [each.node for each in plan.removals] == ["n2"]
    plan, facts = planned(cluster, awaitCompletionFor="1h")
    assert {each.node for each in plan.removals} == {"n1", "n2"}
    assert [each.name for each in facts["n1"].awaits] == ["web-1"]
    assert facts["n1"].evict == ()
    assert facts["n1"].refusals == ()


def test_another_blocker_still_keeps_the_node() -> None:
    cluster = snapshot(node(), node("n2"), pod(naked=True), pod("web-2", **ON_COMPLETION), workload())
    plan, _ = planned(cluster, awaitCompletionFor="1h")
    assert "n1" in plan.refusals


def test_a_budget_keeps_a_node_unless_pods_are_deleted_past_it() -> None:
    blocked = budget(status={"disruptionsAllowed": 0})
    cluster = snapshot(node(), node("n2"), pod(), pod("web-2", on="n2", cpu="1"), workload(), blocked)
    plan, _ = planned(cluster)
    assert plan.removals == ()
    plan, _ = planned(cluster, evictionMethod="delete")
    assert [each.node for each in plan.removals] == ["n1"]


def test_a_plan_that_keeps_budgets_is_made_on_the_whole_snapshot() -> None:
    cluster = snapshot(node(), budget())
    assert plannable(cluster, CompactorJudge(load_settings({})).rules) is cluster


# -- strategies


def strategy_of(settings: CompactorSettings) -> Strategy:
    """The strategy for one node in each of the pools a, b and c."""
    cluster = snapshot(*(node(pool, labels={"nodepool": pool}) for pool in "abc"))
    return CompactorJudge(settings).strategy(gather(cluster, FactRules(), NOW))


def pools(**strategies: str | None) -> Json:
    return {
        "nodePools": {
            name: {"enabled": True, **({} if strategy is None else {"strategy": strategy})}
            for name, strategy in strategies.items()
        }
    }


@pytest.mark.parametrize(
    ("values", "name"),
    [
        (pools(a=None, b=None), "least-utilized"),
        (pools(a=None, b=None) | {"strategy": "fewest-nodes"}, "fewest-nodes"),
        (pools(a="fewest-nodes", b="fewest-nodes"), "fewest-nodes"),
        (pools(a="fewest-nodes", b=None), "per-pool"),
        (pools(a=None, other="fewest-nodes"), "least-utilized"),
        ({}, "least-utilized"),
    ],
    ids=["none has its own", "the common one", "all the same", "different", "of a pool without nodes", "no pools"],
)
def test_the_strategy_of_a_cluster(values: Json, name: str) -> None:
    assert strategy_of(load_settings(values)).name == name


def test_a_disabled_pool_has_no_say() -> None:
    values = pools(a=None, b="fewest-nodes")
    values["nodePools"]["b"]["enabled"] = False
    assert strategy_of(load_settings(values)).name == "least-utilized"


def test_a_strategy_given_as_a_flag_overrules_that_of_a_pool(tmp_path: Any) -> None:
    config = tmp_path / "c.yaml"
    config.write_text('{"nodePools": {"a": {"enabled": true, "strategy": "fewest-nodes"}}}')
    assert strategy_of(COMPACTOR.planned(str(config), {})).name == "fewest-nodes"
    flagged = COMPACTOR.planned(str(config), {}, {"strategy": "least-utilized"})
    assert strategy_of(flagged).name == "least-utilized"
    assert isinstance(strategy_of(load_settings(pools(a=None, b="fewest-nodes"))), PerPool)
