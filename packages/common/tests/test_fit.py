"""``tightship.fit``: what it answers carries every pod, for no less than is proven, and bad questions are refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
import pytest

from tightship.cluster import Snapshot
from tightship.cluster.owners import owners_of
from tightship.fit import fit
from tightship.fit import program as programs
from tightship.fit.answering import Fitting
from tightship.fit.demands import with_recommended
from tightship.fit.machines import Market, pools_of
from tightship.fit.model import MODES, Advised, Asked, FitError
from tightship.fit.program import Program, solve
from tightship.fit.shapes import allocatable, cloud_of, clouds, family, shape_of, shared, type_labels
from tightship.objects.resources import POD_COUNT
from tightship.objects.vertical import Recommended
from tightship.prices import prices
from tightship.scheduler.space import Space
from tightship_simulator.generate import off_peak_cluster
from tightship_testkit.planning import snapshot_of

Json = dict[str, Any]
PRICES = prices(None, None)
GIB = 2**30


def cluster(seed: int, nodes: int = 24) -> Snapshot:
    return snapshot_of(off_peak_cluster(seed, nodes))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_all_pods_have_a_place_by_the_schedulers_model(seed: int, mode: str) -> None:
    asked = Asked(snapshot=cluster(seed), prices=PRICES, modes=(mode,))
    pools, _ = pools_of(asked)
    fitting = Fitting(asked, pools, Market(asked), asked.snapshot)
    filled, solved, offer = fitting.filled(mode)
    assert filled.unplaced() == []
    assert set(offer.misfits) == {"team-quote/oversized"}
    packed = filled.nodes()
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
    cost = sum(offer.machines[each].price.hourly for each in filled.machines)
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
        group=np.array([-1]),
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
        group=np.array([-1]),
    )
    assert solve(program, 5.0).bound == pytest.approx(5.0)


def test_pods_that_exclude_each_other_are_counted_one_for_each_machine() -> None:
    """Replicas of a StatefulSet are kinds of their own, by their volumes, and still have a machine each."""
    program = Program(
        cost=np.array([1.0]),
        room=np.array([[8.0]]),
        request=np.array([[1.0], [1.0], [1.0]]),
        count=np.array([1.0, 1.0, 5.0]),
        allowed=np.ones((1, 3), dtype=np.bool_),
        group=np.array([0, 0, -1]),
    )
    assert solve(program, 5.0).bound == pytest.approx(2.0)


def test_a_large_program_leaves_limits_out_and_never_proves_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two replicas that exclude each other, and pods of which a machine takes six of seven pieces."""
    program = Program(
        cost=np.array([1.0]),
        room=np.array([[6.9]]),
        request=np.array([[0.1], [1.0]]),
        count=np.array([2.0, 60.0]),
        allowed=np.ones((1, 2), dtype=np.bool_),
        group=np.array([0, -1]),
    )
    monkeypatch.setattr(programs, "WHOLE", 0)
    exact = solve(program, 5.0).bound
    monkeypatch.setattr(programs, "FINE", 0)
    assert solve(program, 5.0).bound == pytest.approx((60 + 0.2) / 6.9)
    assert exact == pytest.approx(10.0)


@pytest.mark.parametrize(
    ("kind", "pods", "cpu", "memory"),
    [
        # as kubectl shows nodes of GKE and EKS: allocatable milli-CPU, GiB
        ("e2-standard-4", 110, 3920, 13.0),
        ("m5.large", 29, 1930, 6.8),
        # learn.microsoft.com/azure/aks/node-resource-reservations: 650 MB, 2250 MB, and a quarter of 16 GiB
        ("Standard_D2s_v5", 30, 1900, 8 - (650 + 100 + 240) / 1024),
        ("Standard_D4s_v5", 110, 3860, 16 - (2250 + 100 + 368) / 1024),
        ("Standard_D4s_v5", 250, 3860, 12 - (100 + 368) / 1024),
        ("Standard_D64s_v5", 110, 63260, 256 - (2250 + 100 + 4208) / 1024),
    ],
)
def test_kubelets_keep_what_the_clouds_document(kind: str, pods: int, cpu: int, memory: float) -> None:
    cloud = cloud_of(kind)
    assert cloud is not None
    offers = allocatable(cloud.cloud, cloud.types[kind], pods)
    assert offers["cpu"] == cpu
    assert offers["memory"] / GIB == pytest.approx(memory, rel=0.04 if cloud.cloud == "AWS" else 0.01)
    assert offers[POD_COUNT] == pods


def test_karpenter_on_azure_keeps_what_aks_kept_before() -> None:
    cloud = cloud_of("Standard_D4s_v5")
    assert cloud is not None
    offers = allocatable(cloud.cloud, cloud.types["Standard_D4s_v5"], 30, karpenter=True)
    assert offers["memory"] / GIB == pytest.approx(16 - 2.6 - (750 + 368) / 1024, rel=0.001)


SHAPES = [
    # type, vCPUs, GiB, GPUs and their name: cloud.google.com/compute/docs/machine-resource and docs/gpus,
    # learn.microsoft.com/azure/virtual-machines/sizes, aws.amazon.com/ec2/instance-types
    ("n1-standard-4", 4, 15, 0, ""),
    ("n1-highcpu-16", 16, 14.4, 0, ""),
    ("n2-highmem-128", 128, 864, 0, ""),
    ("n2d-highcpu-8", 8, 8, 0, ""),
    ("n4-highcpu-4", 4, 8, 0, ""),
    ("c2-standard-60", 60, 240, 0, ""),
    ("c3-standard-22", 22, 88, 0, ""),
    ("c3d-highcpu-360", 360, 708, 0, ""),
    ("c4-standard-8", 8, 30, 0, ""),
    ("c4-highmem-48", 48, 372, 0, ""),
    ("c4d-highcpu-96", 96, 180, 0, ""),
    ("m3-ultramem-32", 32, 976, 0, ""),
    ("h3-standard-88", 88, 352, 0, ""),
    ("a2-highgpu-4g", 48, 340, 4, "nvidia-tesla-a100"),
    ("a2-ultragpu-1g", 12, 170, 1, "nvidia-a100-80gb"),
    ("a3-highgpu-8g", 208, 1872, 8, "nvidia-h100-80gb"),
    ("g2-standard-32", 32, 128, 1, "nvidia-l4"),
    ("g4-standard-48", 48, 180, 1, "nvidia-rtx-pro-6000"),
    ("g4-standard-6", 6, 22, 0, ""),
    ("m7i.large", 2, 8, 0, ""),
    ("g4ad.xlarge", 4, 16, 1, "amd"),
    ("g6f.large", 2, 8, 0, ""),
    ("Standard_NV36ads_A10_v5", 36, 440, 1, "nvidia"),
    ("Standard_NV6ads_A10_v5", 6, 55, 0, ""),
    ("Standard_NP10s", 10, 168, 0, ""),
]


@pytest.mark.parametrize(("kind", "cpu", "memory", "gpus", "gpu"), SHAPES, ids=[each[0] for each in SHAPES])
def test_types_have_the_shape_that_the_clouds_document(kind: str, cpu: int, memory: float, gpus: int, gpu: str) -> None:
    cloud = cloud_of(kind)
    assert cloud is not None
    shape = cloud.types[kind]
    assert (shape.cpu, shape.memory, shape.gpus, shape.gpu) == (cpu, round(memory * 1024), gpus, gpu)


@pytest.mark.parametrize(
    "kind",
    [
        *("t3.large", "m7i-flex.large", "g6f.large", "inf2.xlarge", "trn1.2xlarge", "f2.6xlarge", "e2-medium"),
        *("g4-standard-6", "Standard_B2s", "Standard_NV6ads_A10_v5", "Standard_NV28adms_V710_v5", "Standard_NP10s"),
    ],
)
def test_types_without_whole_cpus_and_gpus_are_for_those_who_name_them(kind: str) -> None:
    assert shared(kind)


KARPENTER = "karpenter.k8s.aws/instance-"


@pytest.mark.parametrize(
    ("kind", "labels"),
    [
        # aws/karpenter-provider-aws website/content/en/preview/reference/instance-types.md
        ("m7i.large", {f"{KARPENTER}category": "m", f"{KARPENTER}generation": "7", f"{KARPENTER}memory": "8192"}),
        ("im4gn.xlarge", {f"{KARPENTER}category": "im", f"{KARPENTER}family": "im4gn", f"{KARPENTER}size": "xlarge"}),
        ("u-6tb1.56xlarge", {f"{KARPENTER}category": "u", f"{KARPENTER}generation": "1", f"{KARPENTER}cpu": "224"}),
        ("Standard_D4s_v5", {"karpenter.azure.com/sku-name": "Standard_D4s_v5", "karpenter.azure.com/sku-cpu": "4"}),
        ("n2d-standard-4", {"cloud.google.com/machine-family": "n2d"}),
        ("a2-highgpu-1g", {"cloud.google.com/gke-accelerator": "nvidia-tesla-a100"}),
    ],
)
def test_nodes_of_a_type_have_the_labels_that_pods_select(kind: str, labels: Mapping[str, str]) -> None:
    cloud, shape = cloud_of(kind), shape_of(kind)
    assert cloud is not None
    assert shape is not None
    assert type_labels(cloud.cloud, kind, shape).items() >= labels.items()


@pytest.mark.parametrize("kind", ["m7i.large", "c7gn.large", "g6.xlarge", "t2d-standard-4", "g4-standard-48"])
def test_other_types_are_for_everybody(kind: str) -> None:
    assert not shared(kind)


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
    owner = owners_of(pod.template, snapshot.workloads)[-1]
    wanted = Advised("krr.json", {owner: {container: Recommended({"cpu": "1m"})}})
    fitted = fit(Asked(snapshot=snapshot, prices=PRICES, modes=("same-types",), recommended=wanted))
    now, then = fitted.answers
    assert (now.demand, then.demand) == ("now", "recommended")
    assert then.told.startswith("what runs, if you did what krr.json recommends for ")
    assert then.cpu_milli < now.cpu_milli


@pytest.mark.parametrize(("kind", "heeded"), [("Deployment", True), ("Rollout", True), ("StatefulSet", False)])
def test_recommendations_are_for_workloads_of_their_kind(kind: str, heeded: bool) -> None:
    """The ReplicaSet of a Rollout is known by its name alone, as a Deployment's is."""
    snapshot = cluster(1)
    pod = next(pod for view in snapshot.nodes.values() for pod in view.pods if pod.owner and not pod.daemon)
    space, _, name = owners_of(pod.template, snapshot.workloads)[-1]
    container = pod.spec.resources.containers[0].name
    advised = Advised("krr.json", {(space, kind, name): {container: Recommended({"cpu": "1m"})}})
    _, then, remarks = with_recommended(snapshot, advised)
    assert (then.nodes[pod.node].pods == snapshot.nodes[pod.node].pods) is not heeded
    assert remarks == (() if heeded else ("krr.json recommends nothing for any container of these pods",))


def node(at: int, kind: str, labels: Json, taints: list[Json], **amounts: str) -> Json:
    usual = {"node.kubernetes.io/instance-type": kind, "topology.kubernetes.io/zone": "us-east-1a"}
    arch = {"kubernetes.io/arch": "arm64" if kind.startswith("m6g") else "amd64"}
    status = {"allocatable": {"cpu": "3920m", "memory": "14Gi", "pods": "58"} | amounts}
    meta = {"name": f"n{at}", "labels": usual | arch | labels}
    return {"kind": "Node", "metadata": meta, "spec": {"taints": taints}, "status": status}


def pod(at: int, on: int, spec: Json, **requests: str) -> Json:
    owner = {"kind": "ReplicaSet", "name": "web", "uid": "web", "controller": True}
    asked = {"cpu": "500m", "memory": "1Gi"} | requests
    container = {"name": "a", "resources": {"requests": asked, "limits": asked}}
    return {
        "kind": "Pod",
        "metadata": {"name": f"p{at}", "namespace": "shop", "labels": {"app": "web"}, "ownerReferences": [owner]},
        "spec": {"nodeName": f"n{on}", "containers": [container], **spec},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    }


def required(key: str, operator: str, *values: str) -> Json:
    term = {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}
    wanted = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    return {"affinity": {"nodeAffinity": wanted}}


NVME, GENERATION = "karpenter.k8s.aws/instance-local-nvme", "karpenter.k8s.aws/instance-generation"

ANY: set[str] = set()

POOLS: dict[str, tuple[list[str], Json, Json, set[str]]] = {
    # types of nodes; what else nodes have; what else pods have, three on each node; the only families of `any`
    "plain": (["m5.xlarge"] * 4, {}, {}, ANY),
    "two architectures": (["m5.xlarge", "m6g.xlarge", "m6g.xlarge"], {}, {}, {"m5", "c6g"}),
    "GPUs": (["g4dn.xlarge"] * 3, {"nvidia.com/gpu": "1"}, {"nvidia.com/gpu": "1", "pods": 1}, {"g4dn"}),
    "GPUs that share time": (["g4dn.xlarge"] * 3, {"nvidia.com/gpu": "4"}, {"nvidia.com/gpu": "1"}, {"g4dn"}),
    "local disks as ephemeral storage": (
        ["i3.xlarge"] * 3,
        {"ephemeral-storage": "900Gi"},
        {"ephemeral-storage": "250Gi"},
        {"i3"},
    ),
    "local disks by a label": (["i3.xlarge"] * 3, {"labels": {NVME: "950"}}, required(NVME, "Gt", "100"), {"i3"}),
    "a type by name": (
        ["m5.xlarge"] * 3,
        {},
        {"nodeSelector": {"node.kubernetes.io/instance-type": "m5.xlarge"}},
        {"m5"},
    ),
    "a label of Karpenter": (
        ["m5.xlarge"] * 3,
        {"labels": {GENERATION: "5"}},
        required(GENERATION, "Gt", "5"),
        ANY,
    ),
    "burstable": (["t3.large"] * 3, {}, {}, {"t3"}),
    "huge pages": (["m5.xlarge"] * 3, {"hugepages-2Mi": "2Gi"}, {"hugepages-2Mi": "512Mi"}, {"m5"}),
    "a device plugin": (["m5.xlarge"] * 3, {"smarter-devices/fuse": "20"}, {"smarter-devices/fuse": "1"}, ANY),
    "many pods by prefixes": (["m5.xlarge"] * 3, {"pods": "110"}, {"cpu": "1m", "pods": 100}, ANY),
    "no requests": (["m5.xlarge"] * 3, {}, {"cpu": "0", "memory": "0"}, ANY),
    "no pods": (["m5.xlarge"] * 3, {}, {"pods": 0}, ANY),
    "nodes that Karpenter replaces": (
        ["m5.xlarge"] * 3,
        {"taints": [{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}]},
        {},
        ANY,
    ),
    "capacity by its label": (
        ["m5.xlarge"] * 3,
        {"labels": {"karpenter.sh/capacity-type": "spot"}},
        {"nodeSelector": {"karpenter.sh/capacity-type": "spot"}},
        ANY,
    ),
}


@pytest.mark.parametrize("case", POOLS)
def test_pools_of_others_have_machines_for_every_pod(case: str) -> None:
    types, of_nodes, of_pods, families = POOLS[case]
    amounts = {key: value for key, value in of_nodes.items() if key not in ("labels", "taints")}
    nodes = [
        node(at, kind, of_nodes.get("labels", {}), of_nodes.get("taints", []), **amounts)
        for at, kind in enumerate(types)
    ]
    spec = {key: each for key, each in of_pods.items() if key in ("affinity", "nodeSelector")}
    asks = {key: each for key, each in of_pods.items() if key not in (*spec, "pods")}
    pods = [pod(at, at % len(types), spec, **asks) for at in range(of_pods.get("pods", 3) * len(types))]
    found = fit(Asked(snapshot=snapshot_of({"items": [*nodes, *pods]}), prices=PRICES)).answers[0].alternatives
    for each in found:
        if not (case == "a label of Karpenter" and each.mode != "any"):
            assert each.unplaced == {}
            assert bool(each.machines) == bool(pods)
        assert each.micros_per_hour <= 1.05 * each.bound_micros_per_hour
    assert not families or {family(each.type) for each in found[-1].machines} <= families


def test_machines_are_bought_for_volumes_that_few_attach_to_one() -> None:
    """By amounts alone one machine had room for all, and others were bought for the pods that were left over."""
    modes = ["ReadWriteOnce"]
    items: list[Json] = []
    for at in range(9):
        claim = {"name": f"c{at}", "namespace": "shop"}
        disk = {"csi": {"driver": "ebs.csi.aws.com", "volumeHandle": f"v{at}"}, "accessModes": modes, "claimRef": claim}
        items += [
            {"kind": "PersistentVolume", "metadata": {"name": f"v{at}"}, "spec": disk},
            {
                "kind": "PersistentVolumeClaim",
                "metadata": claim | {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
                "spec": {"volumeName": f"v{at}", "accessModes": modes},
                "status": {"phase": "Bound"},
            },
            pod(at, at % 6, {"volumes": [{"name": "a", "persistentVolumeClaim": {"claimName": f"c{at}"}}]}, cpu="10m"),
        ]
    for at in range(6):
        drivers = [{"name": "ebs.csi.aws.com", "nodeID": "n", "allocatable": {"count": 2}}]
        csi = {"kind": "CSINode", "metadata": {"name": f"n{at}"}, "spec": {"drivers": drivers}}
        items += [node(at, "m5.xlarge", {}, []), csi]
    asked = Asked(snapshot=snapshot_of({"items": items}), prices=PRICES, modes=("same-types",))
    (found,) = fit(asked).answers[0].alternatives
    assert found.unplaced == {}
    assert found.nodes == 5
    assert found.micros_per_hour <= 1.001 * found.bound_micros_per_hour


def test_a_broken_node_says_nothing_of_its_type() -> None:
    nodes = [node(at, "m5.xlarge", {}, [], **({"cpu": "0", "memory": "0"} if at == 0 else {})) for at in range(3)]
    asked = Asked(snapshot=snapshot_of({"items": [*nodes, pod(0, 1, {})]}), prices=PRICES, modes=("same-types",))
    (found,) = fit(asked).answers[0].alternatives
    assert found.unplaced == {}


@pytest.mark.parametrize(
    ("own", "offered", "kept_out"),
    [
        ("m5.large", "m5.xlarge", "m5.metal"),
        ("m5.metal", "m5.xlarge", "t3.large"),
        ("t3.large", "t3.xlarge", "m5.metal"),
        ("c7i.large", "m7i.large", "m7i-flex.large"),
        ("m5.large", "m6i.large", "c1.medium"),
    ],
)
def test_a_family_brings_bare_metal_and_shared_cpus_only_to_pools_that_have_some(
    own: str, offered: str, kept_out: str
) -> None:
    labels = {"node.kubernetes.io/instance-type": own, "topology.kubernetes.io/zone": "us-east-1a"}
    status = {"allocatable": {"cpu": "1", "memory": "1Gi", "pods": "29"}}
    node = {"kind": "Node", "metadata": {"name": "n", "labels": labels}, "spec": {}, "status": status}
    asked = Asked(snapshot=snapshot_of({"items": [node]}), prices=PRICES)
    ((pool,), _) = pools_of(asked)
    found = {each.type for each in Market(asked).machines(pool, None, gpus=False)}
    assert {own, offered} <= found
    assert kept_out not in found
