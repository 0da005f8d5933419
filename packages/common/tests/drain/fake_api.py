"""A small API server in memory: versions, merge patches, evictions and watches as the real one has them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web

from tightship.kube.connection import Connection, RetryPolicy
from tightship.kube.credentials import Access, Credentials, Loaded
from tightship.kube.errors import ConnectionFailed, KubeError
from tightship_testkit.builders import when

Json = dict[str, Any]

NODES = "/api/v1/nodes"
PODS = "/api/v1/pods"
BUDGETS = "/apis/policy/v1/poddisruptionbudgets"
LEASES = "/apis/coordination.k8s.io/v1/leases"
EVENTS = "/apis/events.k8s.io/v1/events"
COLLECTIONS = {
    "Node": NODES,
    "Pod": PODS,
    "PodDisruptionBudget": BUDGETS,
    "ReplicaSet": "/apis/apps/v1/replicasets",
    "Job": "/apis/batch/v1/jobs",
}


class Refused(Exception):
    def __init__(self, code: int, message: str, **more: Any) -> None:
        super().__init__(message)
        self.code, self.body = code, {"kind": "Status", "code": code, "message": message, **more}


def budget_refusal() -> Refused:
    told = [{"reason": "DisruptionBudget", "message": "The disruption budget web needs 2 healthy pods"}]
    return Refused(429, "would violate the budget", reason="TooManyRequests", details={"causes": told})


@dataclass
class Did:
    """One request that changed, or would have changed, something."""

    who: str
    verb: str
    path: str
    code: int
    body: Json


@dataclass
class FakeApi:
    """``refuse`` answers evictions; ``frozen`` collections tell their watchers nothing until they are thawed."""

    url: str = ""
    version: int = 100
    objects: dict[str, dict[str, Json]] = field(default_factory=lambda: defaultdict(dict))
    events: dict[str, list[tuple[int, str, Json]]] = field(default_factory=lambda: defaultdict(list))
    did: list[Did] = field(default_factory=list)
    asked: set[str] = field(default_factory=set)
    refuse: Callable[[Json], Refused | None] = lambda _: None
    frozen: set[str] = field(default_factory=set)
    autoscaler: bool = True
    kubelet: bool = True
    evicted: list[str] = field(default_factory=list)
    happened: asyncio.Event = field(default_factory=asyncio.Event)

    # What is in it.

    def add(self, *things: Json) -> None:
        for thing in things:
            meta = thing["metadata"]
            uid = meta.get("uid") or f"uid-{thing['kind']}-{meta['name']}"
            self.put(COLLECTIONS[thing["kind"]], {**thing, "metadata": {**meta, "uid": uid}})

    def put(self, collection: str, thing: Json) -> Json:
        self.version += 1
        thing = json.loads(json.dumps(thing))
        thing["metadata"]["resourceVersion"] = str(self.version)
        key = self.key(thing)
        known = key in self.objects[collection]
        self.objects[collection][key] = thing
        self.tell(collection, "MODIFIED" if known else "ADDED", thing)
        return thing

    def remove(self, collection: str, key: str) -> None:
        thing = self.objects[collection].pop(key, None)
        if thing is not None:
            self.version += 1
            thing = {**thing, "metadata": {**thing["metadata"], "resourceVersion": str(self.version)}}
            self.tell(collection, "DELETED", thing)

    def tell(self, collection: str, kind: str, thing: Json) -> None:
        self.events[collection].append((self.version, kind, thing))
        self.wake()

    def wake(self) -> None:
        happened, self.happened = self.happened, asyncio.Event()
        happened.set()

    def thaw(self) -> None:
        self.frozen.clear()
        self.wake()

    @staticmethod
    def key(thing: Json) -> str:
        meta = thing["metadata"]
        return f"{meta['namespace']}/{meta['name']}" if meta.get("namespace") else str(meta["name"])

    def edit_node(self, name: str, change: Callable[[Json], None]) -> None:
        """Change a node as somebody else would."""
        node = json.loads(json.dumps(self.objects[NODES][name]))
        change(node)
        self.put(NODES, node)

    def node(self, name: str = "n1") -> Json | None:
        return self.objects[NODES].get(name)

    def on(self, name: str) -> list[str]:
        return sorted(key for key, pod in self.objects[PODS].items() if pod["spec"].get("nodeName") == name)

    def configure(self, name: str, data: dict[str, str], namespace: str = "default") -> None:
        """Write a ConfigMap."""
        meta = {"name": name, "namespace": namespace}
        self.put(f"/api/v1/namespaces/{namespace}/configmaps", {"metadata": meta, "data": data})

    def holder(self, lease: str, namespace: str = "default") -> str | None:
        """Who holds a Lease, empty where it was given up, None where there is none."""
        found = self.objects[LEASES].get(f"{namespace}/{lease}")
        return None if found is None else str(found["spec"].get("holderIdentity", ""))

    def kubeconfig(self, folder: Path) -> str:
        """Write a kubeconfig, and return its name."""
        text = {
            "clusters": [{"name": "c", "cluster": {"server": self.url}}],
            "users": [{"name": "u", "user": {}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        file = folder / "kubeconfig"
        file.write_text(json.dumps(text))
        return str(file)

    # What is asked of it.

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.add(request.path)
        if request.query.get("watch") == "true":
            return await self.watch(request)
        body: Json = json.loads(await request.read() or b"{}")
        try:
            code, answer = self.carry_out(request, body)
        except Refused as refused:
            code, answer = refused.code, refused.body
        if request.method != "GET":
            self.did.append(Did(request.headers.get("User-Agent", ""), request.method, request.path, code, body))
        return web.json_response(answer, status=code)

    def carry_out(self, request: web.Request, body: Json) -> tuple[int, Json]:
        parts = request.path.strip("/").split("/")
        match request.method, parts:
            case "GET", ["api", "v1", "nodes" | "pods"] | ["apis", _, _, _] | ["api", "v1", _]:
                return 200, self.listed(request, list(self.objects[request.path].values()))
            case "GET", ["api", "v1", "namespaces", _, "configmaps"]:
                return 200, self.listed(request, list(self.objects[request.path].values()))
            case "POST", ["apis", "events.k8s.io", "v1", "namespaces", _, "events"]:
                return 201, self.put(EVENTS, body)
            case "GET", ["api", "v1", "namespaces", namespace, "pods"]:
                pods = self.objects[PODS].values()
                return 200, self.listed(request, [each for each in pods if each["metadata"]["namespace"] == namespace])
            case "GET", ["api", "v1", "nodes", name]:
                return 200, self.found(NODES, name)
            case "PATCH", ["api", "v1", "nodes", name]:
                return 200, self.patch(name, body)
            case "POST", ["api", "v1", "namespaces", namespace, "pods", name, "eviction"]:
                return 201, self.evict(f"{namespace}/{name}", body["deleteOptions"], eviction=True)
            case "DELETE", ["api", "v1", "namespaces", namespace, "pods", name]:
                return 200, self.evict(f"{namespace}/{name}", body, eviction=False)
            case "GET", ["apis", _, _, "namespaces", namespace, "leases", name]:
                return 200, self.found(LEASES, f"{namespace}/{name}")
            case "POST", ["apis", _, _, "namespaces", _, "leases"]:
                if self.key(body) in self.objects[LEASES]:
                    raise Refused(409, "already exists", reason="AlreadyExists")
                return 201, self.put(LEASES, {**body, "metadata": {**body["metadata"], "uid": "uid-lease"}})
            case "PUT", ["apis", _, _, "namespaces", namespace, "leases", name]:
                self.compare(self.found(LEASES, f"{namespace}/{name}"), body)
                return 200, self.put(LEASES, body)
        raise Refused(404, f"{request.method} {request.path} is not served", reason="NotFound")

    def found(self, collection: str, key: str) -> Json:
        thing = self.objects[collection].get(key)
        if thing is None:
            raise Refused(404, f"{key} not found", reason="NotFound")
        return thing

    @staticmethod
    def compare(present: Json, wanted: Json) -> None:
        version = wanted["metadata"].get("resourceVersion")
        if version is not None and version != present["metadata"]["resourceVersion"]:
            raise Refused(409, "the object has been modified", reason="Conflict")

    def listed(self, request: web.Request, things: list[Json]) -> Json:
        for term in filter(None, request.query.get("fieldSelector", "").split(",")):
            path, _, wanted = term.partition("!=" if "!=" in term else "=")
            section, _, name = path.partition(".")
            things = [each for each in things if (each.get(section, {}).get(name, "") == wanted) != ("!=" in term)]
        return {"metadata": {"resourceVersion": str(self.version)}, "items": things}

    def patch(self, name: str, body: Json) -> Json:
        present = self.found(NODES, name)
        self.compare(present, body)
        after = merged(present, body)
        if after == present:
            return present
        after = self.put(NODES, after)
        if '"phase":"Drained"' in after["metadata"]["annotations"].get("tightship.dev/drain", "") and self.autoscaler:
            asyncio.get_running_loop().call_soon(self.remove, NODES, name)
        return after

    def evict(self, key: str, options: Json, *, eviction: bool) -> Json:
        pod = self.found(PODS, key)
        if options["preconditions"]["uid"] != pod["metadata"]["uid"]:
            raise Refused(409, "the UID in the precondition does not match", reason="Conflict")
        refused = self.refuse(pod) if eviction else None
        if refused is not None:
            raise refused
        self.evicted.append(pod["metadata"]["uid"])
        if "deletionTimestamp" not in pod["metadata"]:
            meta = {**pod["metadata"], "deletionTimestamp": when(time.time() + 1)}
            self.put(PODS, {**pod, "metadata": meta})
        if self.kubelet and not pod["metadata"].get("finalizers"):
            asyncio.get_running_loop().call_soon(self.move, key)
        return {"kind": "Status", "status": "Success"}

    def move(self, key: str) -> None:
        """The pod ends, and its replacement runs on another node."""
        pod = self.objects[PODS].get(key)
        if pod is None:
            return
        self.remove(PODS, key)
        meta = {k: v for k, v in pod["metadata"].items() if k != "deletionTimestamp"}
        name = f"{meta['name']}-again"
        meta |= {"name": name, "uid": f"uid-Pod-{name}", "creationTimestamp": when(time.time())}
        self.put(PODS, {**pod, "metadata": meta, "spec": {**pod["spec"], "nodeName": "n2"}})

    async def watch(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        last = int(request.query["resourceVersion"])
        while True:
            happened = self.happened
            if request.path not in self.frozen:
                for version, kind, thing in list(self.events[request.path]):
                    if version > last:
                        last = version
                        await response.write(json.dumps({"type": kind, "object": thing}).encode() + b"\n")
            await happened.wait()


def merged(base: Any, patch: Any) -> Any:
    """JSON merge patch, RFC 7386."""
    if not isinstance(patch, dict):
        return patch
    out = dict(base) if isinstance(base, dict) else {}
    for key, value in patch.items():
        if value is None:
            out.pop(key, None)
        else:
            out[key] = merged(out.get(key), value)
    return out


@contextlib.asynccontextmanager
async def serving(api: FakeApi) -> AsyncIterator[FakeApi]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", api.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    api.url = f"http://{host}:{port}"
    try:
        yield api
    finally:
        await runner.cleanup()


def connection_to(api: FakeApi) -> Connection:
    access = Access(api.url)

    async def load() -> Loaded:
        return Loaded(access)

    return Connection(Credentials("test", load), access, retry=RetryPolicy(attempts=1), timeout=60)


Hook = Callable[[int, str, str], Awaitable[str | None]]


class Line(Connection):
    """A replica's connection. *hook* is asked before each request, given its number, verb and path.

    It may have the request "lost" (not carried out) or its answer ("unheard"), or the replica "die": nothing it sends
    arrives any more, and nothing is heard of it.
    """

    def __init__(self, real: Connection) -> None:  # pylint: disable=super-init-not-called
        self.real = real
        self.server = real.server
        self.count = 0
        self.dead = False
        self.sent: list[tuple[str, str]] = []
        self.hook: Hook | None = None

    async def request(self, method: str, path: str, **more: Any) -> bytes:
        if self.dead:
            await asyncio.Event().wait()
        self.count += 1
        fate = await self.hook(self.count, method, path) if self.hook is not None else None
        if fate in ("die", "lost"):
            self.dead = fate == "die"
            if self.dead:
                await asyncio.Event().wait()
            raise ConnectionFailed(method, path, self.server, "reset")
        self.sent.append((method, path))
        answer, refused = b"", None
        try:
            answer = await self.real.request(method, path, **more)
        except KubeError as error:
            refused = error
        if fate == "unheard":
            raise ConnectionFailed(method, path, self.server, "reset")
        if fate == "die afterwards" or self.dead:
            self.dead = True
            await asyncio.Event().wait()
        if refused is not None:
            raise refused
        return answer
