"""What plans share changes no answer: random clusters, and random changes of them."""

import cluster_builder as build
import pytest

from tightship.objects.reasons import Reason
from tightship.planning.plan import Candidate, Placement, Planner, PlanStart
from tightship.rules.disruption import DisruptionLedger
from tightship.scheduler.fitting import feasible_each
from tightship.scheduler.space import Space
from tightship_simulator import random_cluster
from tightship_simulator.generate import off_peak_cluster
from tightship_testkit.changing import histories
from tightship_testkit.planning import judge, snapshot_of

SEEDS = (0, 1, 2, 3, 4, 5, 8, 9)


def test_whether_nodes_accept_a_pod_does_not_depend_on_how_many_are_asked_at_once() -> None:
    for history in histories(SEEDS):
        for snapshot in history:
            space = Space(snapshot)
            for view in snapshot.nodes.values():
                node, mark = space.index[view.name], space.mark()
                space.close(node)
                for pod in view.pods:
                    space.remove(space.demand_of(pod), node)
                asks = [*dict.fromkeys(map(space.demand_of, (*view.pods, *snapshot.unscheduled)))]
                for ask, mask in feasible_each(space, asks).items():
                    assert (mask == space.feasible(ask)).all(), ask.template
                    assert [space.accepts(ask, number) for number in range(len(mask))] == mask.tolist()
                space.rollback(mark)


@pytest.mark.parametrize("placement", ["possible", "likely"])
def test_plans_that_begin_in_one_space_are_those_that_begin_in_their_own(placement: Placement) -> None:
    for history in histories(SEEDS):
        for snapshot in history:
            candidates = judge(snapshot).candidates
            start = PlanStart(snapshot, candidates, placement)
            for _ in range(2):
                shared = Planner(snapshot, DisruptionLedger(snapshot), candidates, placement, start=start)
                own = Planner(snapshot, DisruptionLedger(snapshot), candidates, placement)
                for candidate in candidates:
                    assert shared.attempt(candidate) == own.attempt(candidate)
                assert shared.removals == own.removals


@pytest.mark.parametrize("placement", ["possible", "likely"])
def test_a_plan_remembers_what_nodes_offered_before_it(placement: Placement) -> None:
    remembered = ports = changed = 0
    for history in histories(SEEDS):
        for snapshot in history:
            candidates = judge(snapshot).candidates
            planner = Planner(snapshot, DisruptionLedger(snapshot), candidates, placement)
            for candidate in candidates:
                planner.attempt(candidate)
            space, fresh, unplanned = planner.space, Space(snapshot), planner.start.unplanned
            for pod in {each.template: each for view in snapshot.nodes.values() for each in view.pods}.values():
                demand = space.demand_of(pod)
                if demand.node_local:
                    before = fresh.feasible(fresh.demand_of(pod))
                    assert (unplanned.feasible(demand) == before).all(), pod.key
                    remembered += bool(demand.affinity.excluding)
                    ports += bool(demand.template.spec.host_ports)
                    changed += bool((space.feasible(demand) != before).any())
    assert remembered > 0
    assert ports > 0
    assert changed > 0


@pytest.mark.parametrize("seed", [21, 35, 72, 142])
def test_to_ask_what_fits_without_a_plan_leaves_no_host_port_in_use(seed: int) -> None:
    snapshot = snapshot_of(random_cluster(seed))
    candidates = judge(snapshot).candidates
    planner = Planner(snapshot, DisruptionLedger(snapshot), candidates, "possible")
    for candidate in candidates:
        planner.attempt(candidate)
    asked, fresh = planner.start.without_plan, Space(snapshot)
    for pod in (each for view in snapshot.nodes.values() for each in view.pods if each.spec.host_ports):
        assert (asked.feasible(asked.demand_of(pod)) == fresh.feasible(fresh.demand_of(pod))).all(), pod.key
    assert asked.constraints.taken()[1] == fresh.constraints.taken()[1]


@pytest.mark.parametrize("placement", ["possible", "likely"])
@pytest.mark.parametrize("step", [1, 2])
def test_a_plan_that_is_cut_is_one_that_tried_just_what_it_keeps(placement: Placement, step: int) -> None:
    cut = 0
    for history in histories(SEEDS):
        for snapshot in history:
            candidates = judge(snapshot).candidates
            whole, other = (Planner(snapshot, DisruptionLedger(snapshot), candidates, placement) for _ in range(2))
            for candidate in candidates:
                whole.attempt(candidate)
            keep = [each.node for each in whole.removals][: len(whole.removals) * step // 3 : step]
            cut += len(keep)
            found = whole.cut(keep, DisruptionLedger(snapshot))
            for name in keep:
                other.attempt(other.candidates[name])
            assert found.removals == other.removals
            assert (found.space.free == other.space.free).all()
            rest = [each for each in candidates if each.name not in {removal.node for removal in other.removals}]
            for candidate in rest:
                assert found.attempt(candidate, keep=False) == other.attempt(candidate, keep=False)
                assert found.pods_of(candidate) == other.pods_of(candidate)
    assert cut > len(SEEDS)


def test_an_attempt_that_explains_itself_leaves_the_scheduler_where_any_other_does() -> None:
    snapshot = snapshot_of(off_peak_cluster(1, 160, pods=2400, conflicts=4000))
    candidates = [
        Candidate(name, "", 0.0, tuple(pod for pod in view.pods if not pod.daemon))
        for name, view in snapshot.nodes.items()
    ]
    reported, untold = (
        Planner(snapshot, DisruptionLedger(snapshot), candidates, "likely", explain=explain)
        for explain in (True, False)
    )
    starts: set[int] = set()
    refused = 0
    for candidate in candidates:
        found, other = reported.attempt(candidate), untold.attempt(candidate)
        assert bool(found) == bool(other)
        assert reported.space.next_start == untold.space.next_start
        starts.add(reported.space.next_start)
        refused += any(each.reason is Reason.NO_PLACE_AFTER_PLAN for each in found)
    assert len(starts) > 1
    assert refused
    assert reported.removals == untold.removals


def test_a_refusal_that_is_sure_at_once_leaves_the_scheduler_where_a_search_does() -> None:
    nodes = [build.node(f"n{number:03}") for number in range(130)]
    lone = build.pod("lone", "n000", labels={"app": "lone"}, affinity=build.anti_affinity(app="lone"))
    huge = build.pod("huge", "n000", memory="12Gi")
    full = [build.pod(f"full-{number}", f"n{number:03}", memory="8Gi") for number in range(1, 130)]
    snapshot = build.snapshot([*nodes, lone, huge, *full])
    candidate = Candidate("n000", "", 0.0, snapshot.nodes["n000"].pods)
    for explain in (True, False):
        planner = Planner(snapshot, DisruptionLedger(snapshot), [candidate], "likely", explain=explain)
        assert [each.reason for each in planner.attempt(candidate)] == [Reason.NO_PLACE]
        assert planner.space.next_start == 101, explain  # 100 nodes looked at for the pod that is tried first
