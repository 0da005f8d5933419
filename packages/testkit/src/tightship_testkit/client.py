"""A small asynchronous client for the Kubernetes API: plain dicts in and out."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, TypeVar

import aiohttp
import msgspec

from tightship.kube.connector import connector
from tightship.kube.host import monotonic

Json = dict[str, Any]
Items = list[Json]
Propagation = Literal["Background", "Orphan"]
T = TypeVar("T")

PAGE = 1000  # objects per page of a list
NO_LINGER = struct.pack("ii", 1, 0)  # close() then sends RST, as a broken peer does, instead of FIN
TIMEOUT = aiohttp.ClientTimeout(total=120)  # seconds for one request


class ApiError(Exception):
    """The API server refused a request: `status` is the HTTP status, `reason` its word."""

    def __init__(self, method: str, path: str, status: int, answer: Json) -> None:
        self.status = status
        self.reason: str = answer.get("reason", "")
        super().__init__(f"{method} {path}: {status} {answer.get('message', self.reason)}")


@dataclass(frozen=True)
class Resource:
    """Where objects of a kind live."""

    group_version: str
    plural: str
    namespaced: bool = True

    def path(self, namespace: str | None = None, name: str | None = None, sub: str = "") -> str:
        root = "api" if self.group_version == "v1" else "apis"
        parts = [root, self.group_version]
        if self.namespaced and namespace:
            parts += ["namespaces", namespace]
        parts += [part for part in (self.plural, name, sub) if part]
        return "/" + "/".join(parts)


RESOURCES: dict[str, Resource] = {
    "APIService": Resource("apiregistration.k8s.io/v1", "apiservices", False),
    "ClusterRole": Resource("rbac.authorization.k8s.io/v1", "clusterroles", False),
    "ConfigMap": Resource("v1", "configmaps"),
    "CronJob": Resource("batch/v1", "cronjobs"),
    "CSIDriver": Resource("storage.k8s.io/v1", "csidrivers", False),
    "CSINode": Resource("storage.k8s.io/v1", "csinodes", False),
    "CSIStorageCapacity": Resource("storage.k8s.io/v1", "csistoragecapacities"),
    "DaemonSet": Resource("apps/v1", "daemonsets"),
    "Deployment": Resource("apps/v1", "deployments"),
    "Event": Resource("v1", "events"),
    "HorizontalPodAutoscaler": Resource("autoscaling/v2", "horizontalpodautoscalers"),
    "Job": Resource("batch/v1", "jobs"),
    "Lease": Resource("coordination.k8s.io/v1", "leases"),
    "Namespace": Resource("v1", "namespaces", False),
    "Node": Resource("v1", "nodes", False),
    "PersistentVolume": Resource("v1", "persistentvolumes", False),
    "PersistentVolumeClaim": Resource("v1", "persistentvolumeclaims"),
    "Pod": Resource("v1", "pods"),
    "PodDisruptionBudget": Resource("policy/v1", "poddisruptionbudgets"),
    "PriorityClass": Resource("scheduling.k8s.io/v1", "priorityclasses", False),
    "ReplicaSet": Resource("apps/v1", "replicasets"),
    "ReplicationController": Resource("v1", "replicationcontrollers"),
    "RuntimeClass": Resource("node.k8s.io/v1", "runtimeclasses", False),
    "Secret": Resource("v1", "secrets"),
    "Service": Resource("v1", "services"),
    "ServiceAccount": Resource("v1", "serviceaccounts"),
    "StatefulSet": Resource("apps/v1", "statefulsets"),
    "StorageClass": Resource("storage.k8s.io/v1", "storageclasses", False),
    "VolumeAttachment": Resource("storage.k8s.io/v1", "volumeattachments", False),
}


class Client:
    """Requests to one API server, at most `concurrency` in flight; use it in `async with`.

    The embedded cluster asks for neither a token nor TLS: then there is no `ca_file`.

    Methods that read or write one object raise ApiError for any status from 400 on.
    """

    def __init__(
        self, server: str, headers: Mapping[str, str], trust: ssl.SSLContext | None, *, concurrency: int = 32
    ) -> None:
        self.server = server
        self.headers = dict(headers)
        """What shows who asks."""
        self.trust = trust
        """Whose server is believed, and a certificate of ours if there is one; None for plain HTTP."""
        self.concurrency = concurrency
        self._session: aiohttp.ClientSession | None = None

    @classmethod
    def by_token(cls, server: str, token: str, ca_file: Path, *, concurrency: int = 32) -> Self:
        """Return a client that shows a bearer token, and believes a server with a certificate of *ca_file*."""
        trust = ssl.create_default_context(cafile=str(ca_file))
        return cls(server, {"Authorization": f"Bearer {token}"}, trust, concurrency=concurrency)

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            self.server,
            connector=connector(tls=self.trust, limit=self.concurrency),
            headers={**self.headers, "User-Agent": "tightship-e2e"},
            timeout=TIMEOUT,
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._session:
            await self._session.close()

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: object = None,
        params: Mapping[str, str] | None = None,
        content_type: str = "application/json",
    ) -> tuple[int, Json]:
        """Send one request; returns the status, also an error's, and the decoded answer."""
        data = None if body is None else msgspec.json.encode(body)
        async with self._open().request(
            method, path, data=data, params=params, headers={"Content-Type": content_type} if data else None
        ) as answer:
            content = await answer.read()
            if answer.content_type != "application/json":
                return answer.status, {"message": content.decode(errors="replace")}
            return answer.status, msgspec.json.decode(content)

    async def text(self, path: str, **params: str) -> tuple[int, str]:
        """Get what is no object, such as a log, or an answer of a pod; returns the status, also an error's."""
        async with self._open().get(path, params=params) as answer:
            return answer.status, (await answer.read()).decode(errors="replace")

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            raise RuntimeError("use the client in `async with`")
        return self._session

    async def call(self, method: str, path: str, **options: Any) -> Json:
        """Like `request`, but a status from 400 on raises ApiError."""
        status, answer = await self.request(method, path, **options)
        if status >= 400:
            raise ApiError(method, path, status, answer)
        return answer

    async def get(self, kind: str, name: str, namespace: str | None = None) -> Json:
        return await self.call("GET", RESOURCES[kind].path(namespace, name))

    async def pages(
        self, kind: str, namespace: str | None = None, *, page: int = PAGE, **selectors: str
    ) -> AsyncIterator[Items]:
        """Pages of a list; `labelSelector` and `fieldSelector` are the usual parameters."""
        params = {"limit": str(page), **selectors}
        while True:
            answer = await self.call("GET", RESOURCES[kind].path(namespace), params=params)
            yield answer.get("items") or []
            token = answer.get("metadata", {}).get("continue")
            if not token:
                return
            params["continue"] = token

    async def list(self, kind: str, namespace: str | None = None, **selectors: str) -> Items:
        """All objects of a kind, of one namespace or of all."""
        found: Items = []
        async for items in self.pages(kind, namespace, page=PAGE, **selectors):
            found += items
        return found

    async def create(self, manifest: Json) -> Json:
        """Create an object; its kind, namespace and name are in the manifest."""
        resource = RESOURCES[manifest["kind"]]
        named = {"apiVersion": resource.group_version, **manifest}
        path = resource.path(manifest["metadata"].get("namespace", "default"))
        return await self.call("POST", path, body=named)

    async def patch(
        self,
        kind: str,
        name: str,
        body: object,
        namespace: str | None = None,
        *,
        patch_type: str = "merge",
        subresource: str = "",
    ) -> Json:
        """Patch an object; `patch_type` is merge, strategic-merge or json (operations)."""
        content_type = f"application/{patch_type}-patch+json"
        path = RESOURCES[kind].path(namespace, name, subresource)
        return await self.call("PATCH", path, body=body, content_type=content_type)

    async def delete(
        self,
        kind: str,
        name: str,
        namespace: str | None = None,
        *,
        grace: int | None = None,
        dependents: Propagation = "Background",
    ) -> bool:
        """Delete an object; False when it was gone already.

        `grace` is in seconds; None leaves it to the object.
        """
        path = RESOURCES[kind].path(namespace, name)
        status, answer = await self.request("DELETE", path, body=_deletion(grace, dependents))
        if status >= 400 and status != 404:
            raise ApiError("DELETE", path, status, answer)
        return status != 404

    async def delete_all(
        self,
        kind: str,
        namespace: str | None = None,
        *,
        grace: int | None = None,
        dependents: Propagation = "Background",
    ) -> None:
        """Delete all objects of a kind, in one namespace if the kind has namespaces."""
        await self.call("DELETE", RESOURCES[kind].path(namespace), body=_deletion(grace, dependents))

    async def evict(self, namespace: str, name: str, *, grace: int | None = None) -> int:
        """Ask for an eviction and return the status: 201 granted, 429 refused by a budget."""
        body: Json = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"namespace": namespace, "name": name},
        }
        if grace is not None:
            body["deleteOptions"] = {"gracePeriodSeconds": grace}
        path = RESOURCES["Pod"].path(namespace, name, "eviction")
        status, _ = await self.request("POST", path, body=body)
        return status

    async def bind(self, namespace: str, name: str, node: str) -> None:
        """Bind a pod to a node as a scheduler would."""
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"namespace": namespace, "name": name},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        await self.call("POST", RESOURCES["Pod"].path(namespace, name, "binding"), body=body)

    async def each(self, work: Callable[[T], Awaitable[object]], items: Iterable[T]) -> None:
        """Run `work` for every item, `concurrency` at a time; the first error ends it."""
        queue = iter(items)

        async def worker() -> None:
            for item in queue:
                await work(item)

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(self.concurrency):
                    group.create_task(worker())
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None


def _deletion(grace: int | None, dependents: Propagation) -> Json:
    options: Json = {"propagationPolicy": dependents}
    if grace is not None:
        options["gracePeriodSeconds"] = grace
    return options


def break_off(transport: asyncio.BaseTransport | None) -> None:
    """End a connection at once: a polite end of TLS waits up to half a minute for the other side's farewell."""
    if isinstance(transport, asyncio.Transport) and not transport.is_closing():
        held: Any = transport.get_extra_info("socket")
        if held is not None:
            held.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER)
        transport.abort()


async def wait_for(condition: Callable[[], Awaitable[T]], deadline: float, what: str = "the condition") -> T:
    """Ask until the answer is true and return it; TimeoutError after `deadline` seconds.

    The pauses between the questions grow from 40 ms to half a second, so that small
    clusters are not kept waiting and large ones are not asked too often.
    """
    until = monotonic() + deadline
    pause = 0.04
    while not (answer := await condition()):
        if monotonic() > until:
            raise TimeoutError(f"{what}: not within {deadline:.0f} s; last answer {answer!r}")
        await asyncio.sleep(pause)
        pause = min(pause * 1.3, 0.5)
    return answer


async def wait_while(obstacle: Callable[[], Awaitable[str]], deadline: float, what: str) -> None:
    """Like `wait_for`, for a function that says what is still in the way; empty is done."""
    last = ""

    async def clear() -> bool:
        nonlocal last
        last = await obstacle()
        return not last

    try:
        await wait_for(clear, deadline)
    except TimeoutError:
        raise TimeoutError(f"{what}: not within {deadline:.0f} s; {last}") from None
