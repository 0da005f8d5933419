"""Which pods carry our deletion costs, that nobody else's is touched, and that none outlives its controller."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tightship.cluster import Snapshot
from tightship.cluster.installations import Beside
from tightship.deletion_costs import costs as deletion_costs
from tightship.deletion_costs.costs import LOWEST, OURS, Costs, ScaleIns, notes_of, removal, share_costs
from tightship.objects.reasons import Reason
from tightship.rules.disruption_cost import DELETION_COST
from tightship_testkit.builders import controller, node, pod, snapshot
from tightship_testkit.faults import Answer, Call, Fault
from tightship_testkit.simulated import UNHEARD, until

from .conftest import Start
from .toy import NAME, Cluster

Json = dict[str, Any]
ME = "node-toy"
WE = Beside(ME)
DRAINED = [{"key": "tightship.dev/draining", "value": "op", "effect": "NoSchedule"}]


def on(name: str, place: str, *, kind: str = "ReplicaSet", cost: str = "", ours: str = "") -> Json:
    notes = {key: text for key, text in ((DELETION_COST, cost), (OURS, ours)) if text}
    return pod(name, on=place, owner=controller(kind, "web"), notes=notes)


def held(*pods: Json, **taints: list[Json]) -> Snapshot:
    return snapshot(*(node(name, taints=taints.get(name, [])) for name in ("n1", "n2", "n3")), *pods)


def names(costs: Costs) -> tuple[dict[str, int], list[str]]:
    return {each.name: cost for each, cost in costs.add}, [each.name for each in costs.remove]


def test_the_first_node_of_the_plan_gets_the_lowest_cost_and_all_its_pods_share_it() -> None:
    now = held(on("a", "n1"), on("b", "n1"), on("c", "n2"), on("d", "n3"))
    assert names(share_costs(now, ("n2", "n1"), WE)) == ({"c": LOWEST, "a": LOWEST + 1, "b": LOWEST + 1}, [])


def test_a_node_keeps_its_cost_and_later_ones_come_after_it() -> None:
    carried = notes_of(ME, LOWEST)
    now = held(on("a", "n1", cost=carried[DELETION_COST], ours=carried[OURS]), on("b", "n1"), on("c", "n2"))
    assert names(share_costs(now, ("n2", "n1"), WE)) == ({"c": LOWEST + 1, "b": LOWEST}, [])


def test_no_cost_makes_karpenter_call_a_node_empty() -> None:
    # A pod without a priority costs 1 + cost / 2^27 there, and a node is empty on which nothing costs more than 0.
    assert 1 + LOWEST / 2**27 > 0.99
    edited = notes_of(ME, -(2**31) + 1)
    now = held(on("a", "n1", cost=edited[DELETION_COST], ours=edited[OURS]), on("b", "n1"), on("c", "n2"))
    assert names(share_costs(now, ("n1",), WE)) == ({"b": LOWEST}, [])


def test_pods_whose_controller_does_not_go_by_costs_get_none() -> None:
    now = held(
        on("a", "n1", kind="StatefulSet"), pod("bare", on="n1", naked=True), on("b", "n1", kind="ReplicationController")
    )
    assert names(share_costs(now, ("n1",), WE)) == ({"b": LOWEST}, [])


@pytest.mark.parametrize(
    "notes", [{"cost": "5"}, {"cost": "-1", "ours": "node-sibling=-1"}, {"ours": "node-sibling=-1"}]
)
def test_a_cost_of_somebody_else_is_neither_replaced_nor_removed(notes: dict[str, str]) -> None:
    now = held(on("a", "n1", **notes))
    assert names(share_costs(now, ("n1",), WE)) == ({}, [])
    assert names(share_costs(now, (), WE)) == ({}, [])


def test_costs_are_removed_from_nodes_that_stay_but_not_from_those_that_are_going_anyhow() -> None:
    ours = {"cost": "-9", "ours": f"{ME}=-9"}
    being_deleted = [{"key": "ToBeDeletedByClusterAutoscaler", "value": "1", "effect": "NoSchedule"}]
    pods = [on("a", "n1", **ours), on("b", "n2", **ours), on("c", "n3", **ours)]
    now = held(*pods, n2=DRAINED, n3=being_deleted)
    assert names(share_costs(now, (), WE)) == ({}, ["a"])


def test_no_more_pods_than_allowed_carry_costs_but_for_those_of_the_first_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deletion_costs, "MOST_PODS", 2)
    now = held(*(on(f"p{number}", "n1") for number in range(3)), on("c", "n2"))
    assert set(names(share_costs(now, ("n1", "n2"), WE))[0]) == {"p0", "p1", "p2"}
    assert set(names(share_costs(now, ("n2", "n1"), WE))[0]) == {"c"}


@pytest.mark.parametrize("mark", [f"{ME}=", f"{ME}=x", f"{ME}=--1", f"{ME}=-{'9' * 5000}", f"{ME}=5"])
def test_an_odd_mark_of_ours_does_no_harm(mark: str) -> None:
    now = held(on("a", "n1", cost="5", ours=mark), on("b", "n1"))
    assert names(share_costs(now, ("n1",), WE)) == ({"b": LOWEST}, [])
    assert names(share_costs(now, (), WE)) == ({}, ["a"])


def test_what_is_removed_is_our_mark_and_the_cost_only_if_that_is_still_ours() -> None:
    def paths(cost: str) -> set[str]:
        return {each["path"].rpartition("/")[2] for each in removal({DELETION_COST: cost, OURS: f"{ME}=-7"})}

    assert paths("-7") == {"controller.kubernetes.io~1pod-deletion-cost", "tightship.dev~1deletion-cost"}
    assert paths("12") == {"tightship.dev~1deletion-cost"}


def test_a_node_waits_until_no_pod_has_left_for_a_while_and_those_behind_wait_too() -> None:
    rides, pods = ScaleIns(), frozenset({"a", "b"})
    first = rides.waiting(("n1", "n2"), {"n1": pods}, 60, 0.0)
    assert {name: each.reason for name, each in first.items()} == dict.fromkeys(("n1", "n2"), Reason.SCALE_IN_EXPECTED)
    assert rides.waiting(("n1",), {"n1": pods}, 60, 59.0)
    assert rides.waiting(("n1",), {"n1": frozenset({"a"})}, 60, 70.0), "one has left, at the earliest just now"
    assert rides.waiting(("n1",), {"n1": frozenset({"a"})}, 60, 129.0)
    assert not rides.waiting(("n1", "n2"), {"n1": frozenset({"a"})}, 60, 130.0)
    assert not ScaleIns().waiting(("n1",), {"n1": frozenset()}, 60, 0.0), "nothing may leave"


# As the process does it.


def carried(cluster: Cluster) -> dict[str, str]:
    """The costs of all pods, by name."""
    notes = {raw["metadata"]["name"]: raw["metadata"].get("annotations") or {} for raw in cluster.api.store.list("Pod")}
    assert all((OURS in each) == (DELETION_COST in each) for each in notes.values())
    return {name: each[DELETION_COST] for name, each in notes.items() if DELETION_COST in each}


@pytest.mark.virtual_time
async def test_costs_come_with_the_setting_and_go_with_it_and_with_the_node_that_goes_no_more(
    cluster: Cluster, start: Start
) -> None:
    cluster.configure(goes="n1", deletionCost=True)
    process = start()
    await until(lambda: bool(carried(cluster)))
    found = carried(cluster)
    assert set(found.values()) == {str(LOWEST)}
    places = {raw["metadata"]["name"]: raw["spec"].get("nodeName") for raw in cluster.api.store.list("Pod")}
    assert {places[name] for name in found} == {"n1"}
    written = cluster.writes()
    await process.passes(3)
    assert [each for each in cluster.writes()[len(written) :] if "/pods" in each] == [], "nothing is written twice"
    cluster.configure(goes="", deletionCost=True)
    await until(lambda: not carried(cluster))
    cluster.configure(goes="n1", deletionCost=True)
    await until(lambda: carried(cluster) == found)
    cluster.configure(goes="n1", held="n1")
    await until(lambda: not carried(cluster))


@pytest.mark.virtual_time
@pytest.mark.parametrize("end", ["stopped", "switched off"])
async def test_costs_do_not_outlive_their_controller(cluster: Cluster, start: Start, end: str) -> None:
    cluster.configure(goes="n1", deletionCost=True)
    process = start()
    await until(lambda: bool(carried(cluster)))
    if end == "stopped":
        await process.ended()
    else:
        cluster.configure(on=False, goes="n1", deletionCost=True)
        await until(lambda: cluster.holder == "")
    assert carried(cluster) == {}
    assert cluster.phase() is None


@pytest.mark.virtual_time
async def test_what_a_crash_has_left_is_removed_by_the_next_start_without_the_setting(
    cluster: Cluster, start: Start
) -> None:
    [first, second, *_] = cluster.api.store.list("Pod")

    def left(raw: Json) -> None:
        raw["metadata"].setdefault("annotations", {}).update(notes_of(NAME, -5))

    def foreign(raw: Json) -> None:
        raw["metadata"].setdefault("annotations", {})[DELETION_COST] = "-5"

    for raw, change in ((first, left), (second, foreign)):
        cluster.api.store.modify("Pod", raw["metadata"]["name"], raw["metadata"]["namespace"], change)
    cluster.configure(goes="")
    start()

    def notes(raw: Json) -> Json:
        found = cluster.api.store.get("Pod", raw["metadata"]["name"], raw["metadata"]["namespace"])
        return dict(found["metadata"].get("annotations") or {})

    await until(lambda: OURS not in notes(first))
    assert DELETION_COST not in notes(first)
    assert notes(second)[DELETION_COST] == "-5"


def patches_pods(call: Call) -> bool:
    return call.verb == "PATCH" and "/pods/" in call.path


@pytest.mark.virtual_time
@pytest.mark.parametrize("answer", [Answer(403, "Forbidden", "no"), Answer(422, "Invalid", "denied by a policy")])
async def test_where_costs_are_refused_that_is_said_once_and_nodes_go_without_them(
    cluster: Cluster, start: Start, caplog: pytest.LogCaptureFixture, answer: Answer
) -> None:
    process = start()

    async def hook(call: Call) -> Fault | None:
        return answer if patches_pods(call) else None

    process.api.hooks[process.name] = hook
    cluster.configure(goes="n1", held="n1", deletionCost=True)
    await until(lambda: "deletion costs can't be written" in caplog.text)
    await process.passes(5)
    assert caplog.text.count("deletion costs can't be written") == 1
    said = json.loads((await process.get("/status"))[1])["problems"]
    assert any("Deletion costs of pods can't be written" in each for each in said)
    cluster.configure(goes="n1", deletionCost=True, scaleInTimeout="100h")
    await until(lambda: cluster.api.node("n1") is None)


@pytest.mark.virtual_time
async def test_an_answer_that_is_lost_leaves_no_cost_behind(cluster: Cluster, start: Start) -> None:
    process = start()
    met: list[Call] = []

    async def hook(call: Call) -> Fault | None:
        if not patches_pods(call) or met:
            return None
        met.append(call)
        return UNHEARD

    process.api.hooks[process.name] = hook
    cluster.api.freeze("Pod")
    cluster.configure(goes="n1", held="n1", deletionCost=True)
    await until(lambda: bool(met and carried(cluster)))
    cluster.configure(on=False, goes="n1", held="n1", deletionCost=True)
    await until(lambda: cluster.holder == "")
    assert carried(cluster) == {}


@pytest.mark.virtual_time
async def test_a_pod_that_changed_before_its_cost_was_written_gets_it_in_a_later_pass(
    cluster: Cluster, start: Start
) -> None:
    process = start()
    met: list[Call] = []

    async def hook(call: Call) -> Fault | None:
        if not patches_pods(call) or met:
            return None
        met.append(call)
        return Answer(409, "Conflict", "changed")

    process.api.hooks[process.name] = hook
    cluster.configure(goes="n1", held="n1", deletionCost=True)
    await until(lambda: bool(met))
    name = met[0].path.rpartition("/")[2]
    await until(lambda: name in carried(cluster))
