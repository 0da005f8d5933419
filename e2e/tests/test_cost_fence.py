"""The fence around the right to write deletion costs: what the controller's account may change of a pod, and what not.

The account gets every right on pods here, so that only the fence is in the way.
"""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from msgspec import Struct

from tightship.deletion_costs.costs import notes_of, removal
from tightship.rules.disruption_cost import DELETION_COST
from tightship_charts.places import NODE_CONTROLLERS
from tightship_e2e import ControlPlane
from tightship_e2e.landings import DEADLINE, Landings
from tightship_e2e.plugin import require_programs
from tightship_e2e.reset import reset
from tightship_testkit.client import RESOURCES, Client, Json, wait_for

pytestmark = [pytest.mark.xdist_group("landings"), pytest.mark.takes(5)]

NAMESPACE = "fenced"
POD = "priced"
FOREIGN = ("a.example.com/first", "z.example.com/last")
WIDE: Json = {
    "apiGroups": [""],
    "resources": ["pods", "pods/status", "pods/ephemeralcontainers", "pods/resize"],
    "verbs": ["get", "patch", "update"],
}
CONTAINER: Json = {"name": "main", "image": "none", "resources": {"requests": {"cpu": "1"}}}
MOVED = {"metadata": {"labels": {"app": "other"}}}


class Try(Struct, frozen=True):
    """A patch of a pod: *body* by *kind* of patch to the pod, or to its part *to*."""

    body: object
    to: str = ""
    kind: str = "merge"


def _add(path: str, value: object, to: str = "") -> Try:
    return Try([{"op": "add", "path": path, "value": value}], to, "json")


def _gates(*gates: object, **more: object) -> Try:
    return Try({"spec": {"schedulingGates": gates, **more}}, kind="strategic-merge")


def _status(**status: object) -> Try:
    return Try({"status": status}, "status")


CONDITION = {"type": "Ready", "status": "True"}
STATUS: Json = {"name": "main", "image": "none", "imageID": "", "ready": True, "restartCount": 1}

REFUSED: dict[str, Try] = {
    "a label": Try(MOVED),
    "no label": Try({"metadata": {"labels": {"app": None}}}),
    "a label by the status": Try(MOVED, "status"),
    "an annotation": Try({"metadata": {"annotations": {"example.com/a": "b"}}}),
    "no annotation": Try({"metadata": {"annotations": {"example.com/kept": None}}}),
    "an annotation by the status": Try({"metadata": {"annotations": {"example.com/a": "b"}}}, "status"),
    "a finalizer": Try({"metadata": {"finalizers": ["example.com/mine"]}}),
    "a finalizer by the status": Try({"metadata": {"finalizers": ["example.com/mine"]}}, "status"),
    "no owner": Try({"metadata": {"ownerReferences": None}}),
    "an owner that controls no more": _add("/metadata/ownerReferences/0/controller", value=False),
    "an image": _add("/spec/containers/0/image", "evil"),
    "a toleration": _add("/spec/tolerations/-", {"key": "example.com/a", "operator": "Exists"}),
    "a deadline": Try({"spec": {"activeDeadlineSeconds": 1}}),
    "no grace": Try({"spec": {"terminationGracePeriodSeconds": 1}}),
    "a node selector": Try({"spec": {"nodeSelector": {"disk": "ssd"}}}),
    "an affinity": Try({"spec": {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{"matchExpressions": [{"key": "disk", "operator": "Exists"}]}]}}}}}),
    "a node": Try({"spec": {"nodeName": "node-1"}}),
    "a gate of others": _gates({"name": FOREIGN[0], "$patch": "delete"}),
    "every gate": Try({"spec": {"schedulingGates": None}}),
    "a nomination": _status(nominatedNodeName="node-1"),
    "another gate": _add("/spec/schedulingGates/-", {"name": "example.com/new"}),
    "a phase": _status(phase="Succeeded"),
    "a condition": Try({"status": {"conditions": [CONDITION]}}, "status", "strategic-merge"),
    "an address": _status(podIP="192.0.2.1", podIPs=[{"ip": "192.0.2.1"}]),
    "a host": _status(hostIP="192.0.2.1"),
    "a message": _status(message="mine", reason="Mine"),
    "a start": _status(startTime="2026-01-01T00:00:00Z"),
    "a container's status": _status(containerStatuses=[STATUS]),
    "a nomination, and a phase": _status(nominatedNodeName="node-1", phase="Failed"),
    "a nomination, and a label": Try({"status": {"nominatedNodeName": "node-1"}, **MOVED}, "status"),
    "a resize": Try({"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "2"}}}]}}, "resize",
                    "strategic-merge"),
    "a container to look in": Try({"spec": {"ephemeralContainers": [{"name": "look", "image": "evil"}]}},
                                  "ephemeralcontainers", "strategic-merge"),
}  # fmt: skip
"""What nobody may do with the account, beside what a controller does."""

IGNORED: dict[str, Try] = {
    "a phase by the pod": Try({"status": {"phase": "Succeeded", "nominatedNodeName": "node-9"}}),
    "a version of its own": Try({"metadata": {"generation": 77}}),
    "nothing": Try({}),
}
"""What the API server takes and does not do."""


@pytest.fixture(scope="module", params=NODE_CONTROLLERS)
def landings(
    request: pytest.FixtureRequest, control_plane: ControlPlane, charts: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Landings]:
    """A release of each chart with the fence, whose account has far more rights than the chart gives."""
    require_programs("helm")
    control_plane.run(reset)
    made = Landings(control_plane, charts, tmp_path_factory.mktemp("helm"), request.param, NAMESPACE)
    made.install("taints", rbac={"additionalRules": [WIDE]}, config={"deletionCost": True})
    yield made
    made.uninstall()


@asynccontextmanager
async def fenced(landings: Landings, api: Client) -> AsyncIterator[Client]:
    """A client of the account, once its rights and the fence are seen."""
    await landings.rights_seen(api, WIDE)
    async with await landings.by_account(api) as account:

        async def stands() -> bool:
            await anew(api)
            status, _ = await tried(account, REFUSED["a label"])
            return status == 422

        await wait_for(stands, DEADLINE, "the fence is up")
        yield account


async def anew(api: Client, **metadata: object) -> Json:
    """Make the pod anew: gated by others, with an owner that is there."""
    await api.delete("Pod", POD, "default", grace=0)
    owner = await api.get("ConfigMap", "kube-root-ca.crt", "default")
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": owner["metadata"]["name"], "controller": True}
    meta = {
        "name": POD,
        "namespace": "default",
        "labels": {"app": "web"},
        "annotations": {"example.com/kept": "yes"},
        "ownerReferences": [{**reference, "uid": owner["metadata"]["uid"]}],
        **metadata,
    }
    waiting = [{"name": each} for each in FOREIGN]
    tolerations = [{"key": "example.com/own", "operator": "Exists"}]
    spec = {"containers": [CONTAINER], "schedulingGates": waiting, "tolerations": tolerations}
    return await api.create({"kind": "Pod", "metadata": meta, "spec": spec})


async def tried(account: Client, what: Try, **metadata: object) -> tuple[int, Json]:
    """Do *what* with the pod, and return the answer."""
    body = what.body
    if metadata and isinstance(body, dict):
        body = {**body, "metadata": metadata}
    path = RESOURCES["Pod"].path("default", POD, what.to)
    return await account.request("PATCH", path, body=body, content_type=f"application/{what.kind}-patch+json")


def reported(pod: Json) -> Json:
    """Everything about a pod that is not written by the API server itself."""
    found = copy.deepcopy(pod)
    for key in ("managedFields", "resourceVersion"):
        found["metadata"].pop(key, None)
    return found


async def now(api: Client) -> Json:
    return reported(await api.get("Pod", POD, "default"))


def test_the_account_may_change_nothing_else_of_a_pod(control_plane: ControlPlane, landings: Landings) -> None:
    assert len(REFUSED) > 30

    async def work(api: Client) -> None:
        async with fenced(landings, api) as account:
            await anew(api)
            before, by_fence = await now(api), set()
            for name, what in REFUSED.items():
                status, answer = await tried(account, what)
                assert status in (403, 422), f"{name}: {status}"
                assert await now(api) == before, name
                by_fence |= {name} if landings.policy in answer["message"] else set()
            # The rest has already been refused by the API server itself, whoever asks.
            others = {"a node", "another gate", "no grace"}
            assert by_fence >= REFUSED.keys() - others
            for name, what in IGNORED.items():
                assert (await tried(account, what))[0] == 200, name
                assert await now(api) == before, name

    control_plane.run(work)


def test_the_account_may_not_replace_a_pod(control_plane: ControlPlane, landings: Landings) -> None:
    def image(pod: Json) -> None:
        pod["spec"]["containers"][0]["image"] = "evil"

    def label(pod: Json) -> None:
        pod["metadata"]["labels"]["app"] = "other"

    def phase(pod: Json) -> None:
        pod["status"]["phase"] = "Failed"

    changes: dict[str, tuple[Callable[[Json], None], ...]] = {"": (image, label), "status": (label, phase)}

    async def work(api: Client) -> None:
        async with fenced(landings, api) as account:
            pod = await anew(api)
            before = await now(api)
            for part, several in changes.items():
                for change in several:
                    body = copy.deepcopy(pod)
                    change(body)
                    path = RESOURCES["Pod"].path("default", POD, part)
                    status, answer = await account.request("PUT", path, body={**body, "apiVersion": "v1"})
                    assert status == 422, change
                    assert landings.policy in answer["message"]
                    assert await now(api) == before, change

    control_plane.run(work)


def test_the_fence_is_about_this_account_alone(control_plane: ControlPlane, landings: Landings) -> None:
    async def work(api: Client) -> None:
        async with fenced(landings, api):
            await anew(api)
            assert (await tried(api, REFUSED["a label"]))[0] == 200
            assert (await tried(api, REFUSED["every gate"]))[0] == 200

    control_plane.run(work)


def test_the_account_may_write_and_remove_a_cost_of_its_own(control_plane: ControlPlane, landings: Landings) -> None:
    ours = notes_of("node-toy", -5)
    write = Try({"metadata": {"annotations": ours}})
    take = Try(removal({"example.com/kept": "yes", **ours}), kind="json")
    theirs = {"annotations": {DELETION_COST: "7", "example.com/kept": "yes"}}

    async def work(api: Client) -> None:
        async with fenced(landings, api) as account:
            await anew(api)
            assert (await tried(account, write))[0] == 200
            before = await now(api)
            for name, what in REFUSED.items():
                assert (await tried(account, what))[0] in (403, 422), name
                assert await now(api) == before, name
            assert (await tried(account, take))[0] == 200
            assert (await now(api))["metadata"]["annotations"] == {"example.com/kept": "yes"}
            assert (await tried(account, Try({"metadata": {"annotations": ours}}, "status")))[0] == 422
            await anew(api, **theirs)
            for change in ({DELETION_COST: "-1"}, ours, {DELETION_COST: None}):
                assert (await tried(account, Try({"metadata": {"annotations": change}})))[0] == 422
            assert (await now(api))["metadata"]["annotations"] == theirs["annotations"]

    control_plane.run(work)
