"""Where a pod can go: one test a filter, each both ways."""

from typing import Any

import pytest
from cluster_builder import HOST, ZONE, affinity, anti_affinity, node, one, pod, snapshot, spread

from tightship.objects import Pod
from tightship.scheduler.fitting import why_nowhere
from tightship.scheduler.space import Space


def open_to(newcomer: dict[str, Any], things: list[dict[str, Any]], have: tuple[str, ...] = ()) -> set[str]:
    """Names of the nodes a new pod could go to."""
    space = Space(snapshot([*things, newcomer], have=have))
    pending = one(newcomer)
    assert isinstance(pending, Pod)
    ask = space.demand_of(pending)
    assert ask.unknown is None, ask.unknown
    return {space.names[index] for index in space.feasible(ask).nonzero()[0]}


TWO = [node("a", zone="z1"), node("b", zone="z2")]


@pytest.mark.parametrize("cpu", ["3", "3001m"])
def test_resources_to_the_milli_cpu(cpu: str) -> None:
    assert open_to(pod("new", cpu=cpu), [node("a"), pod("old", "a")]) == ({"a"} if cpu == "3" else set())


def test_an_overcommitted_resource_the_pod_does_not_ask_for_is_no_obstacle() -> None:
    things = [node("a", memory="1Gi"), pod("old", "a", memory="2Gi")]
    assert open_to(pod("new", memory=""), things) == {"a"}
    assert open_to(pod("new", memory="1"), things) == set()


def test_extended_resources_and_the_pod_count() -> None:
    gpu = {"requests": {"example.com/gpu": "1"}}
    things = [node("a", example_gpu="1"), node("b", **{"example.com/gpu": "1"}), node("c", pods="1"), pod("old", "c")]
    assert open_to(pod("new", **gpu), things) == {"b"}
    assert open_to(pod("new"), things) == {"a", "b"}


@pytest.mark.parametrize(
    ("state", "receives"),
    [
        ({}, True),
        ({"unschedulable": True}, False),
        ({"ready": False}, False),
        ({"taints": [{"key": "k", "effect": "NoSchedule"}]}, False),
        ({"taints": [{"key": "k", "effect": "NoExecute"}]}, False),
        ({"taints": [{"key": "k", "effect": "PreferNoSchedule"}]}, True),
    ],
)
def test_node_state_and_taints(state: dict[str, Any], *, receives: bool) -> None:
    assert open_to(pod("new"), [node("a", **state)]) == ({"a"} if receives else set())


def test_node_selector_and_affinity_are_both_required() -> None:
    nodes = [node("a", labels={"disk": "ssd"}), node("b", labels={"disk": "ssd", "gen": "2"}), node("c")]
    required = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "gen", "operator": "Exists"}]}]}
    wants = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    assert open_to(pod("new", nodeSelector={"disk": "ssd"}), nodes) == {"a", "b"}
    assert open_to(pod("new", nodeSelector={"disk": "ssd"}, affinity=wants), nodes) == {"b"}


def test_anti_affinity_of_the_newcomer_keeps_it_from_those_it_matches() -> None:
    assert open_to(pod("new", affinity=anti_affinity()), [*TWO, pod("old", "a")]) == {"b"}


def test_anti_affinity_of_those_there_keeps_a_newcomer_they_match_away() -> None:
    assert open_to(pod("new"), [*TWO, pod("old", "a", affinity=anti_affinity())]) == {"b"}
    assert open_to(pod("new", labels={"app": "api"}), [*TWO, pod("old", "a", affinity=anti_affinity())]) == {"a", "b"}


def test_anti_affinity_reaches_over_the_whole_domain_but_not_over_namespaces() -> None:
    nodes = [node("a", zone="z1"), node("b", zone="z1"), node("c", zone="z2"), node("d")]
    there = pod("old", "a", affinity=anti_affinity(ZONE))
    assert open_to(pod("new"), [*nodes, there]) == {"c", "d"}
    assert open_to(pod("new", namespace="other"), [*nodes, there]) == {"a", "b", "c", "d"}


def test_nodes_open_again_only_when_the_last_pod_that_excludes_the_newcomer_has_left() -> None:
    unlabelled = node("x")
    del unlabelled["metadata"]["labels"][HOST]
    # The two kinds exclude "new" by terms of their own, and "x" without the label shifts domains against nodes.
    kinds = [pod("one", "a", affinity=anti_affinity(app="new")), pod("two", "a", affinity=anti_affinity(app="new"))]
    kinds[1]["metadata"]["labels"]["tier"] = "front"
    newcomer = pod("new", labels={"app": "new"})
    shown = snapshot([unlabelled, *TWO, *kinds, newcomer])
    space = Space(shown)
    pending = one(newcomer)
    assert isinstance(pending, Pod)
    ask = space.demand_of(pending)

    def open_now() -> set[str]:
        return {space.names[index] for index in space.feasible(ask).nonzero()[0]}

    first, second = (space.demand_of(each) for each in shown.nodes["a"].pods)
    assert open_now() == {"x", "b"}
    space.place(first, space.index["b"])
    assert open_now() == {"x"}
    space.remove(first, space.index["a"])
    assert open_now() == {"x"}
    space.remove(second, space.index["a"])
    assert open_now() == {"x", "a"}
    space.rollback(0)
    assert open_now() == {"x", "b"}


def test_affinity_wants_a_pod_that_matches_all_terms() -> None:
    both = affinity(ZONE)
    terms = both["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    terms.append({"topologyKey": ZONE, "labelSelector": {"matchLabels": {"tier": "front"}}})
    there = [*TWO, pod("web", "a"), pod("front", "b", labels={"app": "web", "tier": "front"})]
    assert open_to(pod("new", affinity=both), there) == {"b"}


def test_the_first_pod_of_a_group_may_start_it_where_the_key_is() -> None:
    nodes = [node("a", zone="z1"), node("b")]
    assert open_to(pod("new", affinity=affinity(ZONE)), nodes) == {"a"}
    assert open_to(pod("new", affinity=affinity(ZONE), labels={"app": "api"}), nodes) == set()


@pytest.mark.parametrize(
    ("constraint", "expected"),
    [
        pytest.param({}, {"b"}, id="the fuller zone is closed"),
        pytest.param({"skew": 2}, {"a", "b"}, id="a larger skew opens it"),
        pytest.param({"minDomains": 3}, {"b"}, id="below minDomains the minimum counts as zero"),
        pytest.param({"key": "rack"}, set(), id="nodes without the key are closed"),
        pytest.param({"labelSelector": {"matchLabels": {"app": "api"}}}, {"a", "b"}, id="others are not counted"),
        pytest.param({"matchLabelKeys": ["version"]}, {"a", "b"}, id="only the same version is counted"),
    ],
)
def test_topology_spread(constraint: dict[str, Any], expected: set[str]) -> None:
    newcomer = pod("new", labels={"app": "web", "version": "2"}, topologySpreadConstraints=spread(**constraint))
    assert open_to(newcomer, [*TWO, pod("old", "a", labels={"app": "web", "version": "1"})]) == expected


def test_a_terminating_pod_is_not_counted_by_spread_but_holds_its_room() -> None:
    leaving = pod("old", "a", cpu="3", deletionTimestamp="2026-01-02T00:00:00Z")
    assert open_to(pod("new", topologySpreadConstraints=spread()), [*TWO, leaving]) == {"a", "b"}
    assert open_to(pod("new", cpu="2"), [*TWO, leaving]) == {"b"}


@pytest.mark.parametrize(
    ("policy", "expected"), [({}, {"a"}), ({"nodeAffinityPolicy": "Ignore"}, set())], ids=["honor", "ignore"]
)
def test_spread_looks_only_at_nodes_the_pod_could_use_unless_told_otherwise(
    policy: dict[str, str], expected: set[str]
) -> None:
    nodes = [node("a", zone="z1", labels={"disk": "ssd"}), node("b", zone="z2")]
    newcomer = pod("new", nodeSelector={"disk": "ssd"}, topologySpreadConstraints=spread(**policy))
    assert open_to(newcomer, [*nodes, pod("old", "a")]) == expected


def test_the_drained_node_stays_a_domain_as_a_ghost() -> None:
    things = [node("a"), node("b"), node("c"), pod("one", "a"), pod("two", "b"), pod("three", "c")]
    for each in things[3:]:
        each["spec"]["topologySpreadConstraints"] = spread(HOST)
    seen = snapshot(things)
    space = Space(seen)
    ask = space.demand_of(seen.nodes["a"].pods[0])
    space.close(0)
    space.remove(ask, 0)
    assert not space.feasible(ask).any(), "the empty, cordoned node keeps the minimum at zero"


def test_the_ghost_is_no_domain_where_taints_are_honoured() -> None:
    things = [node("a"), node("b"), node("c"), pod("one", "a"), pod("two", "b"), pod("three", "c")]
    for each in things[3:]:
        each["spec"]["topologySpreadConstraints"] = spread(HOST, nodeTaintsPolicy="Honor")
    seen = snapshot(things)
    space = Space(seen)
    ask = space.demand_of(seen.nodes["a"].pods[0])
    mark = space.mark()
    space.close(0)
    space.remove(ask, 0)
    assert [space.names[index] for index in space.feasible(ask).nonzero()[0]] == ["b", "c"]
    space.rollback(mark)
    assert space.feasible(ask).all(), "all three domains count again"


def port(ip: str, number: int = 80, protocol: str = "TCP") -> dict[str, Any]:
    return {"ports": [{"containerPort": 8080, "hostPort": number, "hostIP": ip, "protocol": protocol}]}


@pytest.mark.parametrize(
    ("there", "newcomer", "fits"),
    [
        (port("10.0.0.1"), port("10.0.0.1"), False),
        (port("10.0.0.1"), port("10.0.0.2"), True),
        (port("0.0.0.0"), port("10.0.0.2"), False),
        (port("10.0.0.1"), port(""), False),
        (port(""), port("", 81), True),
        (port(""), port("", 80, "UDP"), True),
    ],
)
def test_host_ports(there: dict[str, Any], newcomer: dict[str, Any], *, fits: bool) -> None:
    things = [node("a"), pod("old", "a", container=there)]
    assert open_to(pod("new", container=newcomer), things) == ({"a"} if fits else set())


CLAIM = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}
PVC = {
    "kind": "PersistentVolumeClaim",
    "metadata": {"name": "data", "namespace": "default"},
    "spec": {"volumeName": "pv"},
}


def volume(**spec: Any) -> dict[str, Any]:
    return {"kind": "PersistentVolume", "metadata": {"name": "pv"}, "spec": spec}


def csi(node_name: str, count: int) -> dict[str, Any]:
    drivers = [{"name": "disk.csi", "nodeID": node_name, "topologyKeys": [], "allocatable": {"count": count}}]
    return {"kind": "CSINode", "metadata": {"name": node_name}, "spec": {"drivers": drivers}}


def test_a_volume_keeps_its_pod_where_it_can_be_reached() -> None:
    term = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["z2"]}]}
    local = volume(local={"path": "/d"}, nodeAffinity={"required": {"nodeSelectorTerms": [term]}})
    assert open_to(pod("new", **CLAIM), [*TWO, PVC, local]) == {"b"}


def test_attach_limits_count_what_is_attached_and_a_node_without_the_driver_takes_none() -> None:
    disk = volume(csi={"driver": "disk.csi", "volumeHandle": "h-new"})
    other_claim = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "other"}}]}
    other = [
        {**PVC, "metadata": {"name": "other", "namespace": "default"}, "spec": {"volumeName": "pv2"}},
        {**volume(csi={"driver": "disk.csi", "volumeHandle": "h-old"}), "metadata": {"name": "pv2"}},
        pod("old", "a", **other_claim),
    ]
    nodes = [node("a"), node("b"), node("c")]
    assert open_to(pod("new", **CLAIM), [*nodes, PVC, disk, *other, csi("a", 1), csi("b", 1)]) == {"b"}
    assert open_to(pod("new", **CLAIM), [*nodes, PVC, disk, *other, csi("a", 2), csi("b", 1)]) == {"a", "b"}


@pytest.mark.parametrize(
    ("spec", "things", "reason", "word"),
    [
        (CLAIM, [], "UnknownVolume", "could not be read"),
        ({"resourceClaims": [{"name": "gpu"}]}, [], "ResourceClaims", "resource claims"),
    ],
)
def test_what_cant_be_judged_says_so(
    spec: dict[str, Any], things: list[dict[str, Any]], reason: str, word: str
) -> None:
    seen = snapshot([*TWO, *things, pod("p", "a", **spec)])
    unknown = Space(seen).demand_of(seen.nodes["a"].pods[0]).unknown
    assert unknown is not None
    assert unknown[0] == reason
    assert word in unknown[1]


def test_namespaces_by_label_block_where_namespaces_are_unknown() -> None:
    wants = anti_affinity()
    term = wants["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][0]
    term["namespaceSelector"] = {"matchLabels": {"team": "x"}}
    things = [*TWO, pod("p", "a", affinity=wants)]
    unread = snapshot(things)
    assert Space(unread).demand_of(unread.nodes["a"].pods[0]).unknown is not None
    space = {"kind": "Namespace", "metadata": {"name": "other", "labels": {"team": "x"}}}
    assert open_to(pod("new", namespace="other"), [*things, space]) == {"b"}


def test_a_node_with_an_unreadable_pod_receives_nothing() -> None:
    from tightship.cluster import ClusterState
    from tightship.objects import ObjectError

    state = ClusterState()
    for each in TWO:
        state.upsert("Node", one(each))
    state.mark_unreadable(ObjectError("Pod", "default", "x", "broken"), "a")
    assert Space(state.snapshot()).open.tolist() == [False, True]


def with_features(name: str, *features: str) -> dict[str, Any]:
    made = node(name)
    made["status"]["declaredFeatures"] = list(features)
    return made


RESTARTS = {"container": {"restartPolicyRules": [{"action": "RestartAllContainers"}]}}


@pytest.mark.parametrize(
    ("needs", "feature"),
    [
        (RESTARTS, "RestartAllContainersOnContainerExits"),
        ({"hostNetwork": True, "hostUsers": False}, "UserNamespacesHostNetworkSupport"),
        ({"container": {"volumeMounts": [{"bindMountOptions": ["noexec"]}]}}, "VolumeBindMountOptions"),
        ({"initContainers": [{"name": "i", **RESTARTS["container"]}]}, "RestartAllContainersOnContainerExits"),
    ],
)
def test_a_pod_goes_only_where_the_kubelet_declares_the_feature_that_it_needs(
    needs: dict[str, Any], feature: str
) -> None:
    nodes = [with_features("a", feature, "Other"), with_features("b", "Other"), node("c")]
    assert open_to(pod("new", **needs), nodes) == {"a"}


@pytest.mark.parametrize(
    "plain",
    [
        {"hostNetwork": True},
        {"hostUsers": False},
        {"container": {"volumeMounts": [{"name": "data", "mountPath": "/data"}]}},
        {"container": {"restartPolicyRules": [{"action": "Restart"}]}},
    ],
)
def test_a_pod_that_needs_no_feature_goes_anywhere(plain: dict[str, Any]) -> None:
    assert open_to(pod("new", **plain), [node("a"), with_features("b", "Other")]) == {"a", "b"}


def test_the_missing_feature_is_told() -> None:
    space = Space(snapshot([with_features("a", "Other"), node("b"), needing := pod("new", **RESTARTS)]))
    pending = one(needing)
    assert isinstance(pending, Pod)
    detail, _ = why_nowhere(space, space.demand_of(pending))
    assert detail == "fits on 0 of 2 nodes: 2 not declaring RestartAllContainersOnContainerExits"


def why(newcomer: dict[str, Any], nodes: list[dict[str, Any]]) -> tuple[str, str]:
    pending = one(newcomer)
    assert isinstance(pending, Pod)
    space = Space(snapshot([*nodes, newcomer]))
    return why_nowhere(space, space.demand_of(pending))


def test_the_pod_s_own_rule_that_keeps_it_from_nodes_with_room_is_told() -> None:
    picky = pod("new", cpu="1", nodeSelector={"disk": "ssd"})
    full = [node("full", cpu="500m")]
    assert why(picky, [*full, node("a"), node("b")])[1] == (
        "widen the node selector or affinity of the pod: 2 nodes that don't match have room"
    )
    tainted = node("a", taints=[{"key": "k", "effect": "NoSchedule"}])
    assert why(pod("new", cpu="1"), [*full, tainted])[1] == "let the pod tolerate a taint: 1 node with one has room"
    assert why(picky, full)[1] == ""


def test_of_many_causes_the_most_frequent_are_told() -> None:
    nodes = [node(f"n{each}", taints=[{"key": f"k{each}", "effect": "NoSchedule"}]) for each in range(9)]
    assert why(pod("new"), nodes)[0].endswith(", 1 untolerated taint k4:NoSchedule, 4 by 4 other causes")
