"""What goes before all else says so: planned maintenance, and pods that are cheap to disrupt."""

from __future__ import annotations

from typing import Any

import pytest

from tightship.objects.reasons import Refusal
from tightship.planning.facts import FactRules, candidates_of, gather, judgement
from tightship.planning.plan import STRATEGIES, Candidate, Plan, Planner, SearchRules, make_plan
from tightship.planning.plan.model import Placement
from tightship.rules.disruption import DisruptionLedger
from tightship.rules.disruption_cost import MOST, cost_remarks, disruption_cost
from tightship.search.strategy import Searching
from tightship_testkit.builders import NOW, Json, node, pod, pod_of, snapshot, workload

SHARED = "node-autoscaling.kubernetes.io/disruption-cost"
DELETION = "controller.kubernetes.io/pod-deletion-cost"
KARPENTER = "karpenter.sh/disruption-cost"


class _Open:
    def refuses(self, candidate: Candidate, planner: Planner) -> list[Refusal]:
        del candidate, planner
        return []


def planned(*items: Json, strategy: str = "least-utilized", placement: Placement = "likely", search: int = 0) -> Plan:
    seen = snapshot(workload(), *items)
    facts = gather(seen, FactRules(), NOW)
    chosen = STRATEGIES[strategy]
    if search:
        chosen = Searching(chosen, SearchRules(iterations=search))
    return make_plan(seen, lambda _: judgement(seen, facts, _Open()), chosen, placement)


def removed(plan: Plan) -> list[str]:
    return [each.node for each in plan.removals]


def two_halves(a: Json, b: Json, **of_b: Any) -> list[Json]:
    """Two nodes alike of which either can go, a first by its name; *a* and *b* are the annotations of their pods."""
    one, other = pod("web-1", on="a", cpu="2", notes=a), pod("web-2", on="b", cpu="2", notes=b)
    return [node("a"), node("b", **of_b), one, other]


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("placement", ["possible", "likely"])
def test_the_node_whose_pods_are_cheap_to_disrupt_goes(strategy: str, placement: Placement) -> None:
    assert removed(planned(*two_halves({}, {}), strategy=strategy, placement=placement)) == ["a"]
    dear = two_halves({SHARED: "10"}, {SHARED: "9"})
    assert removed(planned(*dear, strategy=strategy, placement=placement)) == ["b"]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_node_with_planned_maintenance_goes_first_and_takes_nobody_in(strategy: str) -> None:
    items = two_halves({}, {SHARED: "9"}, true=("MaintenancePlanned",))
    found = planned(*items, strategy=strategy)
    assert removed(found) == ["b"]
    [move] = found.removals[0].moves
    assert move.target == "a"


def test_a_node_with_planned_maintenance_is_no_place_even_if_it_stays() -> None:
    kept = pod("stays", on="b", cpu="3", naked=True)
    found = planned(node("a"), node("b", true=("MaintenancePlanned",)), pod("web-1", on="a", cpu="500m"), kept)
    assert not found.removals


def test_a_search_prefers_among_equal_plans_planned_maintenance_and_cheap_pods() -> None:
    assert removed(planned(*two_halves({SHARED: "1"}, {}), placement="possible", search=200)) == ["b"]
    items = two_halves({}, {SHARED: "7"}, true=("MaintenancePlanned",))
    assert removed(planned(*items, placement="possible", search=200)) == ["b"]


def test_pods_that_arrive_make_a_node_dearer() -> None:
    seen = snapshot(workload(), *two_halves({SHARED: "3"}, {SHARED: "4"}))
    planner = Planner(seen, DisruptionLedger(seen), candidates_of(gather(seen, FactRules(), NOW)), "likely")
    assert planner.cost("b") == 4
    assert not planner.attempt(planner.candidates["a"])
    assert planner.cost("b") == 7


@pytest.mark.parametrize(
    ("notes", "cost"),
    [
        ({}, 0),
        ({SHARED: "7"}, 7),
        ({SHARED: str(MOST)}, MOST),
        ({DELETION: "7"}, 7),
        ({SHARED: "0", DELETION: "7"}, 0),
        ({KARPENTER: "7"}, 7),
        ({KARPENTER: "7", DELETION: "9"}, 7),
        ({KARPENTER: "dear", DELETION: "9"}, 0),
        ({KARPENTER: "-7", DELETION: "9"}, 0),
        ({SHARED: "8", KARPENTER: "7"}, 8),
        ({DELETION: "-7"}, 0),
        ({SHARED: "-7"}, 0),
        ({SHARED: str(MOST + 1)}, 0),
        ({SHARED: "9" * 5000}, 0),
        ({SHARED: "²"}, 0),
        ({SHARED: "10.5"}, 0),
        ({SHARED: ""}, 0),
    ],
)
def test_the_cost_of_a_pod(notes: Json, cost: int) -> None:
    assert disruption_cost(pod_of(snapshot(node(), pod(notes=notes)))) == cost


@pytest.mark.parametrize(
    ("notes", "reported"),
    [
        ({}, ""),
        ({DELETION: "-7"}, ""),
        ({KARPENTER: "-7"}, ""),
        ({SHARED: "0"}, ""),
        ({SHARED: "1200"}, "1,200 (shop/web-1 1,200); nodes that cost less go first"),
        ({SHARED: "-7"}, f"annotation {SHARED} of shop/web-1 is '-7'; allowed is a whole number from 0 to {MOST}"),
        (
            {KARPENTER: "dear", DELETION: "7"},
            f"annotation {KARPENTER} of shop/web-1 is 'dear'; allowed is a whole number from -{MOST} to {MOST}",
        ),
        (
            {DELETION: "dear"},
            f"annotation {DELETION} of shop/web-1 is 'dear'; allowed is a whole number from -{MOST} to {MOST}",
        ),
    ],
)
def test_costs_are_told_and_so_are_annotations_without_one(notes: Json, reported: str) -> None:
    [view] = snapshot(node(), pod(notes=notes)).nodes.values()
    assert [each.detail for each in cost_remarks(view.pods)] == ([reported] if reported else [])


def test_a_pending_pod_that_is_expendable_holds_no_room() -> None:
    items = [node("a"), node("b"), pod("web-1", on="a", cpu="1")]
    waiting: dict[str, Any] = {"on": "", "phase": "Pending", "cpu": "3500m"}
    assert removed(planned(*items, pod("w", **waiting))) == []
    assert removed(planned(*items, pod("w", **waiting, priority=-11))) != []


def test_pods_of_a_node_that_others_drain_hold_room_elsewhere() -> None:
    """n1 is drained by somebody else, so what is on it needs the room that the pod of n2 would take."""
    items = [node("n1", true=("DrainInProgress",)), node("n2"), node("n3"), pod("web-1", on="n1", cpu="3")]
    items += [pod("web-2", on="n2", cpu="2"), pod("web-3", on="n3", cpu="1", naked=True)]
    assert removed(planned(*items)) == []
    assert removed(planned(*(node("n1") if each["metadata"]["name"] == "n1" else each for each in items))) != []
