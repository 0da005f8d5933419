"""The charts' policies for landings on a real API server by themselves: which pods they change, how, and which not."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from tightship_charts.places import NODE_CONTROLLERS
from tightship_e2e import ControlPlane
from tightship_e2e.landings import (
    DEADLINE,
    LEAVING,
    PODS,
    POLICY,
    Landings,
    created,
    owned,
    policies,
    preferred,
    required,
    term,
    touched,
)
from tightship_e2e.plugin import require_programs
from tightship_e2e.reset import reset
from tightship_simulator.api.landing import drawn
from tightship_testkit.client import Client, Items, Json, wait_for

pytestmark = [pytest.mark.xdist_group("landings"), pytest.mark.takes(4)]

OWNER, OTHER = "6d0dd2a8-6f4c-4d2e-9a53-000000000001", "6d0dd2a8-6f4c-4d2e-9a53-000000000002"
TARGETS = ("node-1", "node-2.example.com")
ENTRY = {OWNER: ",".join(TARGETS)}
NAMESPACE = "landings"

Run = Callable[[Callable[[Client], Awaitable[None]]], None]


@pytest.fixture(scope="module")
def plane(control_plane: ControlPlane) -> ControlPlane:
    """The session's plane, emptied once for these tests."""
    require_programs("helm")
    control_plane.run(reset)
    return control_plane


@pytest.fixture(scope="module", params=NODE_CONTROLLERS)
def landings(
    request: pytest.FixtureRequest, plane: ControlPlane, charts: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Landings]:
    """A release of each chart that lands pods, without a replica."""
    made = Landings(plane, charts, tmp_path_factory.mktemp("helm"), request.param, NAMESPACE)
    made.install("hints")
    yield made
    made.uninstall()


def test_an_entry_changes_pods_of_its_owner_and_of_no_other_until_it_goes(
    plane: ControlPlane, landings: Landings
) -> None:
    async def work(api: Client) -> None:
        await landings.expect(api, ENTRY)
        mine = await created(api, owned("mine", OWNER))
        assert preferred(mine) == [term(each) for each in TARGETS]
        assert required(mine) == [{"matchExpressions": [AWAY]}]
        orphan = owned("orphan", OWNER)
        del orphan["metadata"]["ownerReferences"]
        two = owned("two", OTHER)
        two["metadata"]["ownerReferences"].append(
            {**owned("mine", OWNER, controller=False)["metadata"]["ownerReferences"][0], "name": "beside"}
        )
        for pod in (owned("other", OTHER), owned("held", OWNER, controller=False), orphan, two):
            assert not touched(await created(api, pod)), pod["metadata"]["name"]
        await landings.expect(api, {OTHER: "node-3"})
        assert not touched(await created(api, owned("mine", OWNER)))
        assert touched(await created(api, owned("other", OTHER)))

    plane.run(work)


def test_a_pod_with_a_node_and_pods_of_these_controllers_are_never_changed(
    plane: ControlPlane, landings: Landings
) -> None:
    async def work(api: Client) -> None:
        await landings.expect(api, ENTRY)
        assert not touched(await created(api, owned("bound", OWNER, nodeName="node-1")))
        ours = owned("ours", OWNER)
        ours["metadata"]["labels"]["app.kubernetes.io/part-of"] = "tightship"
        assert not touched(await created(api, ours))

    plane.run(work)


AWAY = {"key": LEAVING, "operator": "DoesNotExist"}
EXISTS = {"matchExpressions": [{"key": "disk", "operator": "Exists"}]}
OWN_TERM = {"weight": 7, "preference": EXISTS}
REQUIRED = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [EXISTS]}}
PREFERRED = {"preferredDuringSchedulingIgnoredDuringExecution": [OWN_TERM]}
APART = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "web"}}}
POD_TERMS = {
    "requiredDuringSchedulingIgnoredDuringExecution": [APART],
    "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 3, "podAffinityTerm": APART}],
}
FIELDS = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-9"]}]}
ZONE = {"key": "zone", "operator": "In", "values": ["a", "b"]}


def of_terms(*terms: Json, **more: object) -> Json:
    return {"affinity": {"nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}, **more}}}  # fmt: skip


AFFINITIES: dict[str, Json] = {
    "none": {},
    "empty": {"affinity": {}},
    "pods": {"affinity": {"podAffinity": POD_TERMS}},
    "apart from pods": {"affinity": {"podAntiAffinity": POD_TERMS}},
    "empty to nodes": {"affinity": {"nodeAffinity": {}}},
    "required": {"affinity": {"nodeAffinity": REQUIRED}},
    "no preference": {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}},
    "preferred": {"affinity": {"nodeAffinity": PREFERRED}},
    "all": {"affinity": {
        "nodeAffinity": {**REQUIRED, **PREFERRED}, "podAffinity": POD_TERMS, "podAntiAffinity": POD_TERMS}},
    "fields alone": of_terms(FIELDS),
    "fields and expressions": of_terms({**FIELDS, **EXISTS}),
    "several terms": of_terms(EXISTS, FIELDS, {"matchExpressions": [ZONE, *EXISTS["matchExpressions"]]}),
    "an empty term": of_terms({}),
    "an empty term among others": of_terms(EXISTS, {}, FIELDS),
    "lists that are empty": of_terms({"matchExpressions": [], "matchFields": []}, EXISTS),
    "100 terms": of_terms(*({"matchExpressions": [{**ZONE, "values": [f"z{number}"]}]} for number in range(100))),
    "100 expressions": of_terms({"matchExpressions": [{**ZONE, "key": f"k{number}"} for number in range(100)]}),
    "100 terms, 100 preferences": of_terms(
        *[FIELDS] * 100, preferredDuringSchedulingIgnoredDuringExecution=[OWN_TERM] * 100),
    "a node selector": {"nodeSelector": {"disk": "ssd"}},
}  # fmt: skip


def bare(term_of_pod: Json) -> Json:
    """A required term without what the policy adds."""
    left = [each for each in term_of_pod.get("matchExpressions") or [] if each != AWAY]
    rest = {key: value for key, value in term_of_pod.items() if key != "matchExpressions"}
    return {**rest, **({"matchExpressions": left} if left else {})}


def without_hints(pod: Json) -> Json:
    """The affinity of a pod but for what a hint has added."""
    affinity = {**(pod["spec"].get("affinity") or {})}
    nodes = {**(affinity.pop("nodeAffinity", None) or {})}
    own = [each for each in preferred(pod) if "matchFields" not in each["preference"]]
    nodes.pop("preferredDuringSchedulingIgnoredDuringExecution", None)
    terms = nodes.pop("requiredDuringSchedulingIgnoredDuringExecution", {}).get("nodeSelectorTerms")
    if terms is not None and terms != [{"matchExpressions": [AWAY]}]:
        nodes["required"] = [bare(each) for each in terms]
    nodes |= {"preferredDuringSchedulingIgnoredDuringExecution": own} if own else {}
    return affinity | ({"nodeAffinity": nodes} if nodes else {})


def test_a_hint_is_added_to_affinity_of_every_kind(plane: ControlPlane, landings: Landings) -> None:
    async def work(api: Client) -> None:
        await landings.expect(api, ENTRY)
        for name, spec in AFFINITIES.items():
            hinted, plain = [await created(api, owned("pod", each, **spec)) for each in (OWNER, OTHER)]
            assert preferred(hinted) == [*preferred(plain), *(term(each) for each in TARGETS)], name
            assert without_hints(hinted) == without_hints(plain), name
            assert hinted["spec"]["affinity"] == drawn(plain["spec"].get("affinity"), TARGETS), name
            for own, led in zip(required(plain) or [{"any": "node"}], required(hinted) or [], strict=True):
                # A term that matches no node must not come to match some.
                assert (AWAY in led.get("matchExpressions", [])) == bool(own), (name, led)

    plane.run(work)


MENTIONS: dict[str, Json] = {
    "to such nodes alone": {"nodeSelector": {LEAVING: "node-compactor.00000000"}},
    "off them": of_terms({"matchExpressions": [AWAY]}),
    "one term of several": of_terms(EXISTS, {"matchExpressions": [ZONE, {"key": LEAVING, "operator": "Exists"}]}),
    "a preference": {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
        {"weight": 1, "preference": {"matchExpressions": [AWAY]}}]}}},
}  # fmt: skip


def test_a_pod_whose_own_terms_mention_the_label_is_left_alone(plane: ControlPlane, landings: Landings) -> None:
    async def work(api: Client) -> None:
        await landings.expect(api, ENTRY)
        for name, spec in MENTIONS.items():
            hinted, plain = [await created(api, owned("pod", each, **spec)) for each in (OWNER, OTHER)]
            assert hinted["spec"].get("affinity") == plain["spec"].get("affinity"), name

    plane.run(work)


def test_what_the_api_server_refuses_it_still_refuses(plane: ControlPlane, landings: Landings) -> None:
    async def work(api: Client) -> None:
        await landings.expect(api, ENTRY)
        for owner in (OWNER, OTHER):
            body = owned("pod", owner, **of_terms())
            status, _ = await api.request("POST", PODS, body=body, params={"dryRun": "All"})
            assert status == 422, owner

    plane.run(work)


BAD = ("", ",", "a b", "Node", "a..b", "-a", "a-", ".a", "a,", ",a", "a,,b", "a_b", "a\n", "a, b", "x" * 254, "ä")


def test_an_entry_that_is_no_list_of_nodes_leaves_pods_as_they_are(plane: ControlPlane, landings: Landings) -> None:
    """A pod that the API server refuses because of a hint would be worse than one without a hint."""

    async def work(api: Client) -> None:
        owners = {f"{OWNER[:-3]}{number}": value for number, value in enumerate(BAD, 100)}
        await landings.expect(api, {**owners, OTHER: "node-1", "nonsense": "node-1", "Non_sense": "y"})
        for owner, value in owners.items():
            assert not touched(await created(api, owned("pod", owner))), value
        assert touched(await created(api, owned("pod", OTHER)))

    plane.run(work)


def test_an_entry_of_many_nodes_leaves_pods_to_be_made(plane: ControlPlane, landings: Landings) -> None:
    async def work(api: Client) -> None:
        nodes = [f"ip-10-0-{number // 250}-{number % 250}.eu-west-1.compute.internal" for number in range(500)]
        await landings.expect(api, {OWNER: ",".join(nodes)})
        found = await created(api, owned("pod", OWNER))
        assert len(preferred(found)) == 500

    plane.run(work)


def test_an_upgrade_leaves_the_controllers_entries_alone(plane: ControlPlane, landings: Landings) -> None:
    async def work(api: Client) -> None:
        await landings.expect(api, ENTRY)
        before = await api.get("ConfigMap", landings.name, NAMESPACE)
        assert before["metadata"]["annotations"][POLICY] == "hints/2"
        landings.install("hints", podAnnotations={"example.com/rolled": str(len(before["data"]))})
        after = await api.get("ConfigMap", landings.name, NAMESPACE)
        assert after["data"] == before["data"]
        assert after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]

    plane.run(work)


def test_a_release_without_hints_has_no_policy_left(plane: ControlPlane, landings: Landings) -> None:
    async def work(api: Client) -> None:
        landings.install("hints")
        mutation = {"mutatingadmissionpolicies", "mutatingadmissionpolicybindings"}
        assert await policies(api, landings.policy) == mutation
        landings.install("taints")
        assert await policies(api, landings.policy) == set()
        assert await api.list("ConfigMap", NAMESPACE, fieldSelector=f"metadata.name={landings.name}") == []

    plane.run(work)


def test_a_hinted_pod_lands_on_the_node_of_that_name(plane: ControlPlane, landings: Landings) -> None:
    """On the fullest node, which the scheduler would choose last, and whose label for its host is another name. Once
    that leaves, on none that leaves.
    """
    landings.install("hints")
    room = {"cpu": "4", "memory": "8Gi", "pods": "110"}

    def node(name: str) -> Json:
        meta = {"name": name, "labels": {"kubernetes.io/hostname": f"host-of-{name}", "kubernetes.io/os": "linux"}}
        status = {"capacity": room, "allocatable": room, "conditions": [{"type": "Ready", "status": "True"}]}
        return {"kind": "Node", "metadata": meta, "status": status}

    async def work(api: Client) -> None:
        for name in ("node-1", "node-2", "node-3"):
            await api.create(node(name))
        requests = {"resources": {"requests": {"cpu": "3"}}}
        full = {"nodeName": "node-2", "containers": [{"name": "none", "image": "none", **requests}]}
        await api.create({"kind": "Pod", "metadata": {"name": "full", "namespace": "default"}, "spec": full})
        template = {
            "metadata": {"labels": {"app": "landed"}},
            "spec": {"containers": [{"name": "none", "image": "none"}]},
        }
        spec = {"replicas": 0, "selector": {"matchLabels": {"app": "landed"}}, "template": template}
        meta = {"name": "landed", "namespace": "default"}
        made = await api.create({"kind": "ReplicaSet", "metadata": meta, "spec": spec})
        await landings.expect(api, {made["metadata"]["uid"]: "node-2"})
        await api.patch("ReplicaSet", "landed", {"spec": {"replicas": 4}}, "default")

        async def bound() -> Items:
            pods = await api.list("Pod", "default", labelSelector="app=landed")
            return pods if len(pods) == 4 and all(each["spec"].get("nodeName") for each in pods) else []

        landed = await wait_for(bound, DEADLINE, "four pods have a node")
        assert {each["spec"]["nodeName"] for each in landed} == {"node-2"}
        for name in ("node-1", "node-2"):
            await api.patch("Node", name, {"metadata": {"labels": {LEAVING: "node-compactor.00000000"}}})
        await api.patch("ReplicaSet", "landed", {"spec": {"replicas": 0}}, "default")

        async def none() -> bool:
            return not await api.list("Pod", "default", labelSelector="app=landed")

        await wait_for(none, DEADLINE, "the pods are gone")
        await api.patch("ReplicaSet", "landed", {"spec": {"replicas": 4}}, "default")
        landed = await wait_for(bound, DEADLINE, "four pods have a node")
        assert {each["spec"]["nodeName"] for each in landed} == {"node-3"}

    try:
        plane.run(work)
    finally:
        plane.run(reset)
