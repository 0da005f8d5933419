"""``tightship.fit``: what it answers carries every pod, for no less than is proven, and bad questions are refused."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import numpy as np
import pytest

from tightship.cluster import Snapshot
from tightship.fit import fit
from tightship.fit.answering import _Fitting
from tightship.fit.demands import workload
from tightship.fit.machines import Market, pools_of
from tightship.fit.model import MODES, Asked, FitError, Recommended
from tightship.fit.program import Program, solve
from tightship.fit.shapes import allocatable, cloud_of, clouds, family
from tightship.objects.resources import POD_COUNT
from tightship.prices import prices
from tightship.scheduler.space import Space
from tightship_simulator.generate import off_peak_cluster
from tightship_testkit.planning import snapshot_of

PRICES = prices(None, None)
GIB = 2**30


def cluster(seed: int, nodes: int = 24) -> Snapshot:
    return snapshot_of(off_peak_cluster(seed, nodes))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_all_pods_have_a_place_by_the_schedulers_model(seed: int, mode: str) -> None:
    asked = Asked(snapshot=cluster(seed), prices=PRICES, modes=(mode,))
    pools, _ = pools_of(asked)
    fitting = _Fitting(asked, pools, Market(asked), asked.snapshot)
    estate, solved, offer = fitting.estate(mode)
    assert estate.unplaced() == []
    assert set(offer.misfits) == {"team-quote/oversized"}
    packed = estate.nodes()
    assert sum(len(pods) for _, pods in packed) + 1 == len(fitting._pods)
    # Filled anew, one pod after another: the scheduler's filters accept each where it is.
    limits = next(iter(asked.snapshot.csi_nodes.values()))
    views = {view.name: view for view, _ in packed}
    attach = {name: msgspec.structs.replace(limits, name=name) for name in views}
    space = Space(msgspec.structs.replace(fitting._around, nodes=views, csi_nodes=attach))
    left = [(pod, space.index[view.name]) for view, pods in packed for pod in pods]
    while True:
        rest = []
        for pod, node in left:
            demand = space.demand_of(pod)
            if space.accepts(demand, node):
                space.place(demand, node)
            else:
                rest.append((pod, node))
        if len(rest) == len(left):
            break
        left = rest
    assert rest == []
    cost = sum(offer.machines[each].price.hourly for each in estate.machines)
    assert 0 < solved.bound <= cost


def test_an_answer_is_cheaper_than_an_off_peak_cluster_and_not_below_its_bound() -> None:
    fitted = fit(Asked(snapshot=cluster(1), prices=PRICES))
    answer = fitted.answers[0]
    assert [each.mode for each in answer.alternatives] == list(MODES)
    for each in answer.alternatives:
        assert each.bound_micros_per_hour <= each.micros_per_hour < fitted.present.micros_per_hour
        assert each.nodes == sum(chosen.count for chosen in each.machines)
        assert list(each.unplaced) == ["team-quote/oversized"]
    same, _, free = (each.micros_per_hour for each in answer.alternatives)
    assert free <= same


def test_at_most_so_many_types_are_used() -> None:
    asked = Asked(snapshot=cluster(2), prices=PRICES, pools=frozenset({"general"}), modes=("any",), at_most=1)
    (found,) = fit(asked).answers[0].alternatives
    assert len({each.type for each in found.machines}) == 1
    assert found.unplaced == {} or list(found.unplaced) == ["team-quote/oversized"]


def test_only_named_types_and_families_are_used() -> None:
    asked = Asked(snapshot=cluster(2), prices=PRICES, pools=frozenset({"small"}), types=("n2d", "c2-standard-8"))
    (found,) = fit(asked).answers[0].alternatives
    assert found.machines
    assert {family(each.type) for each in found.machines} <= {"n2d", "c2"}


def test_nobody_gets_machines_that_share_their_cpus_unasked() -> None:
    found = fit(Asked(snapshot=cluster(3), prices=PRICES, modes=("any",))).answers[0].alternatives[0]
    assert not {"e2-micro", "e2-small", "e2-medium"} & {each.type for each in found.machines}


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"pools": frozenset({"nope"})}, "no node is in pool 'nope'; the pools are general, gpu, memory, small"),
        ({"types": ("m9x",)}, "--types 'm9x' is no machine type and no family that Google Cloud has by our list"),
        ({"at_most": 0}, "--at-most 0 is no number of machine types; allowed is 1 or more"),
    ],
)
def test_a_question_without_an_answer_names_the_value_and_what_is_allowed(
    given: Mapping[str, object], told: str
) -> None:
    asked = msgspec.structs.replace(Asked(snapshot=cluster(1, 40), prices=PRICES), **given)
    with pytest.raises(FitError) as error:
        fit(asked)
    assert str(error.value).startswith(told)
    assert "\n" not in str(error.value)


def test_a_region_without_prices_is_named() -> None:
    with pytest.raises(FitError, match="no machine type has a price in region europe-west4"):
        fit(Asked(snapshot=cluster(1)))


def test_volume_proves_no_more_than_machines_cost() -> None:
    """Two machines of 4 and 8 CPUs for 1 and 3: eight pods of a CPU cost 2, whatever is believed."""
    program = Program(
        cost=np.array([1.0, 3.0]),
        room=np.array([[4.0], [8.0]]),
        request=np.array([[1.0]]),
        count=np.array([8.0]),
        allowed=np.ones((2, 1), dtype=np.bool_),
        alone=np.zeros(1, dtype=np.bool_),
        twins=np.arange(2),
    )
    solved = solve(program, 5.0)
    assert solved.bound == pytest.approx(2.0)
    assert solved.machines.tolist() == pytest.approx([2.0, 0.0])


def test_the_bound_counts_whole_pods_on_whole_machines() -> None:
    """Pods of three CPUs on machines of five: one on each, though in pieces three machines carry five pods."""
    program = Program(
        cost=np.array([1.0]),
        room=np.array([[5.0]]),
        request=np.array([[3.0]]),
        count=np.array([5.0]),
        allowed=np.ones((1, 1), dtype=np.bool_),
        alone=np.zeros(1, dtype=np.bool_),
        twins=np.zeros(1, dtype=np.intp),
    )
    assert solve(program, 5.0).bound == pytest.approx(5.0)


@pytest.mark.parametrize(
    ("kind", "cpu", "memory"),
    [
        # as kubectl shows nodes of GKE, EKS and AKS: allocatable milli-CPU, GiB
        ("e2-standard-4", 3920, 13.0),
        ("m5.large", 1930, 6.8),
        ("Standard_D4s_v5", 3860, 12.3),
    ],
)
def test_kubelets_keep_what_the_clouds_document(kind: str, cpu: int, memory: float) -> None:
    cloud = cloud_of(kind)
    assert cloud is not None
    offers = allocatable(cloud.cloud, cloud.types[kind])
    assert offers["cpu"] == cpu
    assert offers["memory"] / GIB == pytest.approx(memory, rel=0.04)
    assert offers[POD_COUNT] == cloud.types[kind].pods


def test_most_priced_types_have_a_shape() -> None:
    assert {each.cloud: len(each.types) > 500 and bool(each.date and each.source) for each in clouds()} == {
        "AWS": True,
        "Azure": True,
        "Google Cloud": True,
    }


def test_recommended_requests_are_told_beside_the_present_ones() -> None:
    snapshot = cluster(1)
    pod = next(pod for view in snapshot.nodes.values() for pod in view.pods if pod.owner and not pod.daemon)
    container = pod.spec.resources.containers[0].name
    wanted = Recommended("krr.json", {(pod.namespace, workload(snapshot, pod), container): {"cpu": "1m"}})
    fitted = fit(Asked(snapshot=snapshot, prices=PRICES, modes=("same-types",), recommended=wanted))
    now, then = fitted.answers
    assert (now.demand, then.demand) == ("now", "recommended")
    assert then.told.startswith("what runs, if you did what krr.json recommends for ")
    assert then.cpu_milli < now.cpu_milli
