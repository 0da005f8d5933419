"""Proof that controllers have seen what was written, where guessing by time would race.

Controllers act on caches that trail the API server, one watch per kind. A ReplicaSet that
is seen before its pods makes new ones; one that is seen as deleted after its pods makes
them again. Both are avoided by waiting until the cache of a kind holds what was written
last: its watch delivers in order, so then it holds everything before.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterable, Mapping

from tightship_testkit.client import RESOURCES, ApiError, Client, Json, wait_for

NAMESPACE = "tightship-e2e"
DEADLINE = 120.0  # seconds; the controller-manager may have much to catch up with
LABEL = "e2e.tightship.dev/marker"
TOUCHED = "e2e.tightship.dev/touched"


async def pods_seen(client: Client) -> None:
    """Wait until the controller-manager's cache holds every pod written so far.

    A ReplicaSet of none adopts and deletes a marker pod as soon as it sees it.
    """
    name = await _marker(client, "ReplicaSet", pod=True)

    async def gone() -> bool:
        pods = await client.list("Pod", NAMESPACE, fieldSelector=f"metadata.name={name}")
        return not pods

    await wait_for(gone, DEADLINE, "the controller-manager sees the pods")
    await client.delete("ReplicaSet", name, NAMESPACE)


async def owners_seen(client: Client, kinds: Iterable[str]) -> None:
    """Wait until the controller of each kind has seen all writes to objects of that kind."""

    async def one(kind: str) -> None:
        name = await _marker(client, kind)

        async def noticed() -> bool:
            status = (await client.get(kind, name, NAMESPACE)).get("status") or {}
            return bool(status.get("observedGeneration") or status.get("conditions"))

        await wait_for(noticed, DEADLINE, f"the controller of {kind} sees the changes")
        await client.delete(kind, name, NAMESPACE)

    await asyncio.gather(*(one(kind) for kind in kinds))


async def priorities_seen(client: Client, values: Mapping[str, int | None]) -> None:
    """Wait until pods of these PriorityClasses get these values; None: are refused.

    The API server itself looks classes up in a cache, so it refuses pods of a class that
    was made a moment ago, and gives the old value of one that was made anew.
    """
    path = RESOURCES["Pod"].path("default")

    async def one(name: str) -> None:
        spec = {"containers": [{"name": "none", "image": "none"}], "priorityClassName": name}
        probe = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "probe"}, "spec": spec}

        async def seen() -> bool:
            params = {"dryRun": "All"}
            status, answer = await client.request("POST", path, body=probe, params=params)
            value = answer["spec"]["priority"] if status < 400 else None
            return bool(value == values[name])

        await wait_for(seen, DEADLINE, f"the API server sees PriorityClass {name}")

    await client.each(one, values)


async def rights_seen(client: Client, user: str, namespace: str, rules: Iterable[Json]) -> None:
    """Wait until the API server, which looks roles up in a cache, allows *user* what *rules* say in *namespace*."""
    path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    asked = [
        {"namespace": namespace, "verb": verb, "group": group, "resource": resource, "subresource": sub, "name": name}
        for rule in rules
        for group in rule["apiGroups"]
        for resource, _, sub in (each.partition("/") for each in rule["resources"])
        for verb in rule["verbs"]
        for name in rule.get("resourceNames", [""])
    ]

    async def one(attributes: Json) -> None:
        async def allowed() -> bool:
            review = await client.call("POST", path, body={"spec": {"user": user, "resourceAttributes": attributes}})
            return bool(review["status"]["allowed"])

        await wait_for(allowed, DEADLINE, f"{user} may {attributes}")

    await client.each(one, asked)


async def attended(client: Client, *nodes: str) -> None:
    """Wait until kwok attends to the pods of new nodes: of one that comes before that it may never take notice."""

    async def one(node: str) -> None:
        name = f"probe-{secrets.token_hex(6)}"
        spec = {"nodeName": node, "containers": [{"name": "none", "image": "none"}]}
        await _create(client, {"kind": "Pod", "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec})

        async def runs() -> bool:
            return bool((await touch(client, name, NAMESPACE))["status"].get("phase") == "Running")

        await wait_for(runs, DEADLINE, f"kwok attends to {node}")
        await client.delete("Pod", name, NAMESPACE, grace=0)

    await client.each(one, nodes)


async def touch(client: Client, pod: str, namespace: str) -> Json:
    """Change a pod so that kwok looks at it once more, and return it."""
    return await client.patch("Pod", pod, {"metadata": {"annotations": {TOUCHED: secrets.token_hex(6)}}}, namespace)


async def ensure_namespace(client: Client, name: str) -> None:
    """Create a namespace unless it is there."""
    try:
        await client.create({"kind": "Namespace", "metadata": {"name": name}})
    except ApiError as error:
        if error.reason != "AlreadyExists":
            raise


async def _marker(client: Client, kind: str, *, pod: bool = False) -> str:
    """Create an owner that wants no pods, and a pod that it would adopt."""
    name = f"marker-{secrets.token_hex(6)}"
    labels = {LABEL: name}
    container = {"name": "none", "image": "none"}
    body: Json = {"containers": [container], "schedulingGates": [{"name": LABEL}]}
    metadata = {"name": name, "namespace": NAMESPACE}
    if pod:
        metadata_of_pod = {**metadata, "labels": labels}
        await _create(client, {"kind": "Pod", "metadata": metadata_of_pod, "spec": body})
    spec: Json = {"template": {"metadata": {"labels": labels}, "spec": body}}
    if kind != "Job":
        spec["selector"] = {"matchLabels": labels}
    match kind:
        case "ReplicaSet" | "Deployment":
            spec["replicas"] = 0
        case "ReplicationController":
            spec |= {"replicas": 0, "selector": labels}
        case "StatefulSet":
            spec |= {"replicas": 0, "serviceName": name}
        case "DaemonSet":
            # No node has the marker's label, so none of them is wanted.
            body["nodeSelector"] = labels
            del body["schedulingGates"]
        case "Job":
            spec["suspend"] = True
            body["restartPolicy"] = "Never"
    await _create(client, {"kind": kind, "metadata": metadata, "spec": spec})
    return name


async def _create(client: Client, manifest: Json) -> None:
    try:
        await client.create(manifest)
    except ApiError as error:
        if error.status != 404:
            raise
        await ensure_namespace(client, NAMESPACE)
        await client.create(manifest)
