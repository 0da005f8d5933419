"""Who deletes the nodes of a NodePool: one row for each way in which Karpenter consolidates or doesn't."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from tightship.core.cron import CronError, parse_schedule
from tightship.core.reasons import Reason, Refusal
from tightship.planning.cluster import Snapshot
from tightship.planning.facts import FactRules, Gatherer
from tightship.planning.nodes import NodeRules, judge_node, opt_outs
from tightship.report.warnings import warnings_of
from tightship_testkit.builders import NOW, node, snapshot

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
    assert opt_outs(view.node, pools=found.node_pools) == []


def test_facts_follow_the_hours_and_the_pools() -> None:
    gather, found = Gatherer(), seen(pool(OFFICE))

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
