"""An API server under test, embedded or real, and what a test needs on it: a namespace, nodes, pods that run."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Protocol

from tightship.kube.connection import Connection, connect
from tightship_simulator.api.errors import Refused
from tightship_simulator.api.objects import timestamp
from tightship_simulator.api.store import Store
from tightship_simulator.life.horizontal import HorizontalAutoscaler
from tightship_simulator.life.living import PARTS, Living, apply
from tightship_simulator.serve import EmbeddedCluster
from tightship_testkit.client import RESOURCES, Client, wait_for

Json = dict[str, Any]

DEADLINE = 60.0
EXIT_AFTER = "e2e.tightship.dev/exit-after"
PHASE = "e2e.tightship.dev/phase"
SUFFIX = 8
SYNC = 0.2
"""Seconds between two looks of the HPA controller; a second on the real one."""
HISTORY = 200
"""Changes that the embedded cluster remembers here: few enough for a test to outrun."""


@asynccontextmanager
async def nobody() -> AsyncIterator[None]:
    """The real cluster has its own."""
    yield


class RealCluster(Protocol):
    """What is asked of a real cluster besides its API."""

    @property
    def kubeconfig(self) -> Path: ...

    def client(self) -> Client: ...

    def paused_budgets(self) -> AbstractContextManager[None]: ...

    async def attended(self, client: Client, node: str) -> None: ...

    async def forget(self, version: str) -> None: ...


class Api:
    """One API server, a namespace of its own on it, and both clients: the tests' and the controllers'."""

    def __init__(
        self,
        name: str,
        client: Client,
        connection: Connection,
        kubeconfig: Path,
        paused: Callable[[], AbstractContextManager[None]],
        forget: Callable[[], Awaitable[None]],
        attended: Callable[[str], Awaitable[None]],
        scheduler: Callable[[], AbstractAsyncContextManager[None]] = nobody,
    ) -> None:
        self.name = name
        self.client = client
        self.connection = connection
        self.kubeconfig = kubeconfig
        self.paused_budgets = paused
        self.forget = forget
        self.scheduler = scheduler
        self._attended = attended
        self.namespace = unique("contract")
        self.nodes: list[str] = []

    # Paths.

    def path(self, kind: str, name: str = "", sub: str = "", namespace: str = "") -> str:
        return RESOURCES[kind].path(namespace or self.namespace, name or None, sub)

    # Making.

    async def node(self, **spec: object) -> str:
        name = unique("node")
        room = {"cpu": "4", "memory": "8Gi", "pods": "50"}
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
        status = {"capacity": room, "allocatable": room, "conditions": [ready]}
        meta = {"name": name, "labels": {"kubernetes.io/hostname": name}}
        await self.client.create({"kind": "Node", "metadata": meta, "spec": spec, "status": status})
        self.nodes.append(name)
        await self._attended(name)
        return name

    async def pod(
        self,
        name: str = "web-0",
        *,
        node: str | None = None,
        phase: str = "",
        notes: Json | None = None,
        waits: bool = True,
        namespace: str = "",
        meta: Json | None = None,
        **spec: object,
    ) -> Json:
        """Make a pod that takes its time to end, on a node of its own unless told; wait until it is as it will be."""
        at = await self.node() if node is None else node
        annotations = {EXIT_AFTER: "3600s", **({PHASE: phase} if phase else {}), **(notes or {})}
        metadata = {"name": name, "namespace": namespace or self.namespace, "labels": {"app": "web"}}
        body = {"containers": [{"name": "c", "image": "i"}], **({"nodeName": at} if at else {}), **spec}
        manifest = {"kind": "Pod", "metadata": metadata | {"annotations": annotations} | (meta or {}), "spec": body}
        made = await self.client.create(manifest)
        if not at or not waits or phase == "Pending":
            return made
        wanted = phase if phase in {"Succeeded", "Failed"} else "Running"
        return await self.until("Pod", name, lambda pod: pod["status"].get("phase") == wanted, namespace)

    async def web(self, count: int = 2, **pods: Any) -> None:
        """Make pods web-0, web-1, ... on one node."""
        at = await self.node()
        for number in range(count):
            await self.pod(f"web-{number}", node=at, **pods)

    async def budget(self, name: str = "web", *, counted: bool = True, namespace: str = "", **spec: object) -> Json:
        """Make a budget for the pods of :meth:`web`, and wait until it is computed."""
        metadata = {"name": name, "namespace": namespace or self.namespace}
        selector = {"selector": {"matchLabels": {"app": "web"}}}
        manifest = {"kind": "PodDisruptionBudget", "metadata": metadata, "spec": {**selector, **spec}}
        made = await self.client.create(manifest)
        if not counted:
            return made
        return await self.until("PodDisruptionBudget", name, observed, namespace)

    async def allows(self, count: int, name: str = "web") -> Json:
        """Wait until a budget allows so many."""

        def does(budget: Json) -> bool:
            return observed(budget) and bool(budget["status"].get("disruptionsAllowed") == count)

        return await self.until("PodDisruptionBudget", name, does)

    async def until(self, kind: str, name: str, done: Callable[[Json], bool], namespace: str = "") -> Json:
        """Wait until an object is as it should be, and return it."""
        last: Json = {}

        async def is_done() -> bool:
            nonlocal last
            code, last = await self.client.request("GET", self.path(kind, name, namespace=namespace))
            return code == 200 and done(last)

        await wait_for(is_done, DEADLINE, f"{kind} {name}")
        return last

    # Asking.

    async def get(self, kind: str, name: str) -> Json:
        return await self.client.get(kind, name, self.namespace)

    async def request(self, method: str, path: str, **options: Any) -> tuple[int, Json]:
        return await self.client.request(method, path, **options)

    async def refused(self, code: int, reason: str, method: str, path: str, **options: Any) -> Json:
        """Ask for what is refused in this way, and return the answer."""
        found, answer = await self.client.request(method, path, **options)
        assert (found, answer.get("reason", "")) == (code, reason), (path, options, answer)
        return answer

    async def evict(
        self, name: str = "web-0", *, namespace: str = "", params: Json | None = None, **options: object
    ) -> tuple[int, Json]:
        """Ask for an eviction; *options* are the ``deleteOptions``."""
        metadata = {"name": name, "namespace": namespace or self.namespace}
        body: Json = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata}
        if options:
            body["deleteOptions"] = options
        path = self.path("Pod", name, "eviction", namespace)
        return await self.client.request("POST", path, body=body, params=params)


def unique(prefix: str) -> str:
    return f"{prefix}-{uuid.uuid4().hex[:SUFFIX]}"


def observed(budget: Json) -> bool:
    status = budget.get("status") or {}
    return bool(status.get("observedGeneration") == budget["metadata"]["generation"])


@asynccontextmanager
async def embedded(tmp_path: Path) -> AsyncIterator[Api]:
    async with EmbeddedCluster(Store(history=HISTORY)) as cluster:
        tasks = [
            asyncio.create_task(run_kubelets(cluster.store, replicate=True)),
            asyncio.create_task(run_autoscaler(cluster.store)),
        ]
        kubeconfig = cluster.kubeconfig(tmp_path / "kubeconfig")

        @contextmanager
        def paused() -> Iterator[None]:
            cluster.pause_budgets()
            yield
            cluster.resume_budgets()

        try:
            async with Client(cluster.url, {}, None) as client, await connect(kubeconfig) as connection:

                async def forget() -> None:
                    """Let more happen to ConfigMaps than is remembered."""
                    busy = {"metadata": {"name": "busy"}}
                    cluster.store.create("ConfigMap", busy)
                    for number in range(HISTORY + 1):
                        data = {"number": str(number)}
                        cluster.store.modify(
                            "ConfigMap", "busy", "default", lambda each, data=data: each.update(data=data)
                        )

                async def attended(_: str) -> None:
                    """Kubelets attend to every node at once."""

                api = Api(
                    "embedded",
                    client,
                    connection,
                    kubeconfig,
                    paused,
                    forget,
                    attended,
                    lambda: scheduling(cluster.store),
                )
                await client.create({"kind": "Namespace", "metadata": {"name": api.namespace}})
                yield api
        finally:
            for each in tasks:
                each.cancel()
            for each in tasks:
                with contextlib.suppress(asyncio.CancelledError):
                    await each


@asynccontextmanager
async def controlplane(cluster: RealCluster) -> AsyncIterator[Api]:
    async with cluster.client() as client, await connect(cluster.kubeconfig) as connection:

        async def forget() -> None:
            """Let the cluster forget all versions but the present one."""
            busy = await client.create(
                {"kind": "ConfigMap", "metadata": {"name": unique("busy"), "namespace": api.namespace}}
            )
            await cluster.forget(busy["metadata"]["resourceVersion"])

        async def attended(node: str) -> None:
            await cluster.attended(client, node)

        paused = cluster.paused_budgets
        api = Api("controlplane", client, connection, cluster.kubeconfig, paused, forget, attended)
        await client.create({"kind": "Namespace", "metadata": {"name": api.namespace}})
        try:
            yield api
        finally:
            for pod in await client.list("Pod", api.namespace):
                await client.delete("Pod", pod["metadata"]["name"], api.namespace, grace=0)
            for node in api.nodes:
                await client.delete("Node", node)
            await client.delete("Namespace", api.namespace)


async def run_kubelets(store: Store, *, replicate: bool = False) -> None:
    """Do with pods of the embedded cluster what kwok does on the real one, by the same annotations.

    With *replicate* the pods of ReplicaSets are made too, each once.
    """
    while True:
        known = store.version
        for pod in store.list("Pod"):
            _attend(store, pod)
        for owner in store.list("ReplicaSet") if replicate else ():
            _replicate(store, owner)
        await store.wait(known)


@asynccontextmanager
async def scheduling(store: Store) -> AsyncIterator[None]:
    """Have pods of the embedded cluster bound while the context lasts."""
    living = Living(store)
    with living.paused(*(each for each in PARTS if each != "scheduler")):
        task = asyncio.create_task(living.run(), name="scheduler")
        yield
        task.cancel()
        await asyncio.wait([task])


async def run_autoscaler(store: Store) -> None:
    """Do what the HPA controller of the real one does, to which nobody serves metrics either."""
    autoscaler, loop = HorizontalAutoscaler(lambda *_: None), asyncio.get_running_loop()
    while True:
        for change in autoscaler.step(store.list, loop.time(), timestamp(store.now())):
            with contextlib.suppress(Refused):
                apply(store, change)
        await asyncio.sleep(SYNC)


def _attend(store: Store, pod: Json) -> None:
    meta, notes = pod["metadata"], pod["metadata"].get("annotations") or {}
    name, namespace, phase = meta["name"], meta["namespace"], notes.get(PHASE, "")
    if "deletionTimestamp" in meta:
        if EXIT_AFTER not in notes and meta["deletionGracePeriodSeconds"]:
            store.delete("Pod", name, namespace, grace=0)
        return
    if pod["status"]["phase"] != "Pending" or not pod["spec"].get("nodeName") or phase == "Pending":
        return
    if phase in {"Succeeded", "Failed"}:
        store.modify("Pod", name, namespace, lambda each: each["status"].update(phase=phase))
        return
    ready = {"type": "Ready", "status": "False" if phase == "Unready" else "True"}
    store.modify("Pod", name, namespace, lambda each: each["status"].update(phase="Running", conditions=[ready]))


def _replicate(store: Store, owner: Json) -> None:
    meta, spec = owner["metadata"], owner["spec"]
    reference = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": meta["name"], "uid": meta["uid"]}
    template = spec["template"]
    for number in range(spec["replicas"]):
        name = f"{meta['name']}-{number}"
        if store.find("Pod", name, meta["namespace"]) is None:
            named = {"name": name, "namespace": meta["namespace"], **template["metadata"]}
            owned = {**named, "ownerReferences": [{**reference, "controller": True}]}
            store.create("Pod", {"metadata": owned, "spec": template["spec"]})
