"""How many nodes may be out at once, at the moment one is claimed."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tightship.objects.drain_record import DRAIN_ANNOTATION, DrainRecord, Phase, encode_record
from tightship.objects.reasons import Reason, Refusal
from tightship.planning.facts import FactRules, NodeFacts, count_at_claim, count_before_plan, gather, nodes_out
from tightship.process.settings.loading import Budget
from tightship.rules.limits import CLUSTER, claimable, node_budget
from tightship_testkit.builders import NOW, node, snapshot


def facts(*draining: str, nodes: int = 5, not_ready: tuple[str, ...] = ()) -> dict[str, NodeFacts]:
    names = [f"n{number}" for number in range(1, nodes + 1)]
    made = snapshot(*(node(name, ready="False" if name in not_ready else "True") for name in names))
    known = gather(made, FactRules(), NOW)
    return {name: msgspec.structs.replace(fact, draining=name in draining) for name, fact in known.items()}


def room(known: dict[str, NodeFacts], budget: Budget | None, claims: list[str]) -> Refusal | None:
    count = count_at_claim("n1", known, claims, lambda _: (CLUSTER,))
    return claimable("n1", claims, (node_budget(budget, CLUSTER, count).check(count, "n1"),))


@pytest.mark.parametrize(
    ("known", "claims", "budget", "why"),
    [
        ({}, [], None, None),
        ({}, ["n2"], None, "the cluster may have 1 node out at once (1), 1 is out"),
        ({"draining": ["n2"]}, [], None, "the cluster may have 1 node out at once (1), 1 is out"),
        ({"draining": ["n2"]}, ["n2"], Budget(count=2), None),
        ({"draining": ["n2"]}, ["n3"], Budget(count=2), "the cluster may have 2 nodes out at once (2), 2 are out"),
        ({"not_ready": ("n2",)}, [], None, "the cluster may have 1 node out at once (1), 1 is out"),
        ({"not_ready": ("n1",)}, [], None, None),
        ({}, ["gone"], None, None),
        ({"nodes": 10}, ["n2"], Budget(percent=20), None),
        (
            {"nodes": 10},
            ["n2", "n3"],
            Budget(percent=20),
            "the cluster may have 2 nodes out at once (20%), 2 are out",
        ),
        ({}, [], Budget(count=0), "the cluster may have 0 nodes out at once (0), 0 are out"),
    ],
    ids=[
        "nothing is out",
        "a sibling has claimed one",
        "one is in drain",
        "claimed and in drain is one",
        "one of each",
        "one is not Ready",
        "it is itself not Ready",
        "a claim on a node that is gone",
        "a percentage",
        "all of a percentage",
        "none at all",
    ],
)
def test_the_clusters_budget(known: dict[str, Any], claims: list[str], budget: Budget | None, why: str | None) -> None:
    draining = known.pop("draining", [])
    found = room(facts(*draining, **known), budget, claims)
    assert (found.detail if found is not None else None) == why
    assert found is None or (found.reason, found.subject) == (Reason.BUDGET_EXHAUSTED, "the cluster")


def test_a_node_that_is_claimed_is_claimed_by_nobody_else() -> None:
    found = room(facts(), Budget(count=5), ["n1"])
    assert found is not None
    assert (found.reason, found.subject) == (Reason.DRAIN_IN_PROGRESS, "n1")


def test_nodes_that_are_out_are_counted_once() -> None:
    known = facts("n1", "n2", not_ready=("n2", "n3"))
    assert nodes_out(known, ["n1", "n4", "gone"]) == {"n1", "n2", "n3", "n4"}


def test_a_budget_of_a_part_names_it() -> None:
    one, two = (count_before_plan(facts(*out.split()), lambda _: ("pool a",)) for out in ("n2", "n2 n3"))
    assert node_budget(Budget(count=2), "pool a", one).check(one, "n1").open
    found = node_budget(Budget(count=2), "pool a", two).check(two, "n1")
    assert (found.gate, found.open) == ("pool's budget", False)
    assert found.detail == "pool a may have 2 nodes out at once (2), 2 are out"


def test_a_node_that_others_took_and_never_finish_with_gives_its_place_back() -> None:
    def out(ago: float, deadline: float | None) -> frozenset[str]:
        record = DrainRecord(phase=Phase.YIELDED, op="a", since={"Yielded": NOW - ago}, deadline=deadline)
        made = snapshot(node("n1", notes={DRAIN_ANNOTATION: encode_record(record)}), node("n2"))
        return nodes_out(gather(made, FactRules(), NOW), ["n1"])

    assert out(10, NOW + 1) == {"n1"}
    assert out(10, NOW) == frozenset()
    # One that an older version has written.
    assert out(3599, None) == {"n1"}
    assert out(3600, None) == frozenset()
