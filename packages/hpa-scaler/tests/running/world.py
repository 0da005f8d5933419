"""HPAs in an API server in memory, queries to answer, and processes of ``hpa-scaler run`` on both."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web
from drain.fake_api import EVENTS, LEASES, FakeApi, Refused
from hpa_builder import annotated

from hpa_scaler.annotations import ENABLE, PREFIX
from hpa_scaler.run_settings import RunSettings
from hpa_scaler.running import serve
from tightship.runtime.main import Runtime
from tightship.settings.process import load_process
from tightship_simulator.life.prometheus import Prometheus
from tightship_testkit.ports import free_ports

Json = dict[str, Any]

HPAS = "/apis/autoscaling/v2/horizontalpodautoscalers"
CONFIG = "hpa-scaler-config"
STATE = f"{PREFIX}/{ENABLE}-state"
CALM = {"coldSourceGuard": False, "dataAgeQuery": ""}
"""A configuration for servers without a past."""


def hpa_object(name: str, minimum: int, maximum: int, replicas: int, **notes: str) -> Json:
    """An HPA that is opted in, with annotations by their names with ``_`` for ``-``."""
    return {
        "kind": "HorizontalPodAutoscaler",
        "metadata": {
            "name": name,
            "namespace": "shop",
            "uid": f"uid-{name}",
            "annotations": annotated(**notes),
        },
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
            "minReplicas": minimum,
            "maxReplicas": maximum,
        },
        "status": {
            "currentReplicas": replicas,
            "desiredReplicas": replicas,
            "conditions": [{"type": "AbleToScale", "status": "True"}, {"type": "ScalingActive", "status": "True"}],
        },
    }


Hook = Callable[[str, Json], Awaitable[None]]
"""Told of a PATCH before it is carried out: the HPA's name, and the HPA. May raise :class:`Refused`, or wait."""


@dataclass
class HpaApi(FakeApi):
    """Serves HPAs too. *before* and *after* a PATCH a hook may do something; *deaf* drops the answers to PATCHes.
    *on_list* answers lists of HPAs in its place.
    """

    before: Hook | None = None
    after: Hook | None = None
    on_list: Callable[[], Awaitable[web.StreamResponse]] | None = None
    away: bool = False
    deaf: bool = False
    patches: int = 0
    lists: int = 0
    watches: int = 0

    def stock(self, name: str = "web", minimum: int = 3, maximum: int = 20, replicas: int = 3, **notes: str) -> None:
        self.put(HPAS, hpa_object(name, minimum, maximum, replicas, **notes))

    def hpa(self, name: str = "web") -> Json:
        return self.objects[HPAS][f"shop/{name}"]

    def bounds(self, name: str = "web") -> tuple[int, int]:
        spec = self.hpa(name)["spec"]
        return spec["minReplicas"], spec["maxReplicas"]

    def state(self, name: str = "web") -> Json:
        found: Json = json.loads(self.hpa(name)["metadata"]["annotations"].get(STATE, "{}"))
        return found

    def edit(self, name: str = "web", *, notes: dict[str, str | None] | None = None, **spec: int) -> None:
        """Change an HPA as somebody else would."""
        thing = json.loads(json.dumps(self.hpa(name)))
        thing["spec"] |= spec
        for key, text in (notes or {}).items():
            if text is None:
                thing["metadata"]["annotations"].pop(key, None)
            else:
                thing["metadata"]["annotations"][key] = text
        self.put(HPAS, thing)

    def taken(self, lease: str) -> None:
        """Have another lead, who is not heard of for an hour and counts until then."""
        thing = json.loads(json.dumps(self.objects[LEASES][f"default/{lease}"]))
        thing["spec"] |= {"holderIdentity": "another", "leaseTransitions": 9, "leaseDurationSeconds": 3600}
        self.put(LEASES, thing)

    def left(self, lease: str) -> None:
        """Have nobody lead."""
        thing = json.loads(json.dumps(self.objects[LEASES][f"default/{lease}"]))
        thing["spec"] |= {"holderIdentity": "", "leaseDurationSeconds": 1}
        self.put(LEASES, thing)

    def told(self) -> list[tuple[str, str]]:
        """The reason of each Event, and whom it is about."""
        return [(each["reason"], each["regarding"]["name"]) for each in self.objects[EVENTS].values()]

    def notes(self, reason: str) -> list[str]:
        return [each["note"] for each in self.objects[EVENTS].values() if each["reason"] == reason]

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if self.away and request.transport is not None:
            request.transport.abort()
            return web.Response()
        if request.method != "PATCH":
            if request.path == HPAS and "watch" in request.query:
                self.watches += 1
            elif request.path == HPAS:
                if self.on_list is not None:
                    return await self.on_list()
                self.lists += 1
            return await super().answer(request)
        self.patches += 1
        name = request.path.rpartition("/")[2]
        try:
            if self.before is not None and f"shop/{name}" in self.objects[HPAS]:
                await self.before(name, self.hpa(name))
            answer = await super().answer(request)
        except Refused as refused:
            return web.json_response(refused.body, status=refused.code)
        if self.after is not None:
            await self.after(name, self.hpa(name))
        if self.deaf and request.transport is not None:
            request.transport.abort()
        return answer

    def carry_out(self, request: web.Request, body: Any) -> tuple[int, Json]:
        parts = request.path.strip("/").split("/")
        match request.method, parts:
            case "GET", ["apis", "autoscaling", "v2", "namespaces", namespace, "horizontalpodautoscalers"]:
                found = [each for each in self.objects[HPAS].values() if each["metadata"]["namespace"] == namespace]
                return 200, self.listed(request, found)
            case "GET", ["apis", "autoscaling", "v2", "namespaces", namespace, "horizontalpodautoscalers", name]:
                return 200, self.found(HPAS, f"{namespace}/{name}")
            case "PATCH", ["apis", "autoscaling", "v2", "namespaces", namespace, "horizontalpodautoscalers", name]:
                return 200, self.patched(request, f"{namespace}/{name}", body)
        return super().carry_out(request, body)

    def patched(self, request: web.Request, key: str, ops: list[Json]) -> Json:
        thing = json.loads(json.dumps(self.found(HPAS, key)))
        for op in ops:
            *way, last = [part.replace("~1", "/").replace("~0", "~") for part in op["path"].strip("/").split("/")]
            place = thing
            for part in way:
                place = place[part]
            if op["op"] == "test" and place.get(last) != op["value"]:
                raise Refused(422, "the server rejected our request due to an error in our request", reason="Invalid")
            if op["op"] == "remove":
                if last not in place:
                    raise Refused(422, "the server rejected our request", reason="Invalid")
                del place[last]
            elif op["op"] != "test":
                place[last] = op["value"]
        if thing["spec"]["minReplicas"] > thing["spec"]["maxReplicas"]:
            raise Refused(422, "spec.maxReplicas: must be >= minReplicas", reason="Invalid")
        if request.query.get("dryRun") == "All" or thing == self.found(HPAS, key):
            return thing
        return self.put(HPAS, thing)

    def written(self) -> list[tuple[str, int]]:
        """The name and the code of each PATCH that was answered, dry runs among them."""
        return [(each.path.rpartition("/")[2], each.code) for each in self.did if each.verb == "PATCH"]


async def until(condition: Callable[[], object], deadline: float = 90) -> None:
    async with asyncio.timeout(deadline):
        while not condition():  # noqa: ASYNC110 - any condition
            await asyncio.sleep(0.002)


@dataclass
class Process:
    """A process of the controller, in this event loop."""

    settings: RunSettings
    runtime: Runtime = field(default_factory=Runtime)
    task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        self.task = asyncio.create_task(serve(self.runtime, self.settings, {}))

    async def ended(self) -> None:
        """Have it end as SIGTERM does."""
        assert self.task is not None
        self.runtime.end()
        await self.task
        await self.runtime.close()

    async def killed(self) -> None:
        assert self.task is not None
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        await self.runtime.close()


@dataclass
class World:
    """An API server and a Prometheus."""

    api: HpaApi
    prometheus: Prometheus
    folder: Path
    processes: list[Process] = field(default_factory=list)

    def configure(self, **more: object) -> None:
        self.api.configure(CONFIG, {"config.json": json.dumps({**CALM, **more})})

    def start(self, **flags: Any) -> Process:
        given = {
            "kubeconfig": self.api.kubeconfig(self.folder),
            "namespace": "default",
            "host": "127.0.0.1",
            "ports": [0],
            "interval": 0.03,
            "prometheus_server_url": self.prometheus.url,
            "lease_retry_period": 0.05,
            **flags,
        }
        process = Process(load_process(RunSettings, {}, given, namespace_file=self.folder / "none"))
        process.begin()
        self.processes.append(process)
        return process

    async def until(self, condition: Callable[[], object], deadline: float = 90) -> None:
        """Wait for a condition; an error of a process is raised instead."""

        def looked() -> bool:
            for each in self.processes:
                if each.task is not None and each.task.done() and not each.task.cancelled():
                    each.task.result()
            return bool(condition())

        await until(looked, deadline)

    async def cycles(self, more: int = 3) -> None:
        """Wait until all HPAs have been listed so many times more."""
        before = self.lists
        await self.until(lambda: self.lists >= before + more)

    @property
    def lists(self) -> int:
        return self.api.lists


def port() -> int:
    """A port that nobody uses yet."""
    return free_ports("http")["http"]


async def get(process: Process, path: str) -> tuple[int, str]:
    """The status and the text of what a process, started on one :func:`port`, serves."""
    url = f"http://127.0.0.1:{process.settings.ports[0]}{path}"
    async with aiohttp.ClientSession() as http, http.get(url) as answer:
        return answer.status, await answer.text()


async def eventually(process: Process, path: str, text: str) -> None:
    """Wait until what is served under *path* holds *text*."""
    async with asyncio.timeout(90):
        while True:
            with suppress(OSError):
                if text in (await get(process, path))[1]:
                    return
            await asyncio.sleep(0.01)
