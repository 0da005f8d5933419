"""An embedded cluster on virtual time, for tests of one part of a controller: they edit it, and spoil its answers.

:attr:`Simulated.url` is where clients ask, a :class:`~tightship_testkit.fault_proxy.Proxy` before the API server.
"""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias

from tightship.kube.host import Host
from tightship.objects.drain_record import DRAIN_ANNOTATION
from tightship.process.loop import Runtime
from tightship_simulator.api.errors import UnknownPath
from tightship_simulator.api.events import as_new
from tightship_simulator.api.requests import target_of
from tightship_simulator.api.store import MANAGER, Store
from tightship_simulator.life.kubelet import Pace
from tightship_simulator.life.living import Speeds
from tightship_simulator.virtual.process import Process
from tightship_simulator.virtual.simulation import Simulation
from tightship_testkit.fault_proxy import WRITES, Proxy
from tightship_testkit.faults import Answer, Call, Fault, HeldWatch, Record, Reset

Json = dict[str, Any]

Hook: TypeAlias = Callable[[Call], Awaitable[Fault | None]]
"""Is asked what a request of one client meets, unless it is a watch."""

LOST = Reset()
"""A request that never arrives."""
UNHEARD = Reset(done=True)
"""A request that is carried out, and whose answer is lost."""
BUDGET = Answer(
    429,
    "TooManyRequests",
    "would violate the budget",
    causes=(("DisruptionBudget", "The disruption budget web needs 2 healthy pods"),),
)
"""What an eviction hears from a PodDisruptionBudget that has nothing left."""

_NEVER = 1e9
_SOON = Speeds(Pace(start=0.5, stop=0.2, boot=0.5), horizontal_every=_NEVER, nodes_every=_NEVER)
_LOOK = 0.02
"""Seconds between two looks of a test that waits."""


class Simulated:
    """A cluster with its scheduler, workload controllers and kubelets; nodes that were drained are taken away at once.

    *refuse* is what evictions meet. With *autoscaler* false drained nodes stay. *hooks* are asked by the client's name,
    see :meth:`process`.
    """

    def __init__(self, simulation: Simulation, proxy: Proxy, folder: Path) -> None:
        self.simulation = simulation
        self.proxy = proxy
        self.refuse: Fault | None = None
        self.autoscaler = True
        self.hooks: dict[str, Hook] = {}
        self._folder = folder
        self._processes: list[Process] = []
        self._open: dict[str, asyncio.Event] = {}
        proxy.plan = self._plan

    @property
    def store(self) -> Store:
        """The objects."""
        return self.simulation.store

    @property
    def url(self) -> str:
        """Where clients ask."""
        return self.proxy.url

    @property
    def now(self) -> float:
        """Seconds since 1970."""
        return self.simulation.wall()

    # What is in it.

    def add(self, *things: Json) -> None:
        """Put objects in as they are, made now."""
        assert self.store.load(map(_made_now, things)) == {}

    def edit(self, kind: str, name: str, change: Callable[[Json], object], namespace: str = "") -> None:
        """Change an object as somebody else would."""

        def changed(thing: Json) -> None:
            change(thing)

        self.store.modify(kind, name, namespace, changed)

    def edit_node(self, name: str, change: Callable[[Json], object], *, manager: str = "kubectl") -> None:
        """Change a node as somebody else would, or as one of our replicas would have: *manager* is who the API server
        takes it for.
        """
        token = MANAGER.set(manager)
        try:
            self.edit("Node", name, change)
        finally:
            MANAGER.reset(token)

    def forget_managers(self, name: str) -> None:
        """Let the API server not know who has cordoned a node."""
        self.store.get("Node", name)["metadata"].pop("managedFields")

    def remove(self, kind: str, name: str, namespace: str = "") -> None:
        """Delete an object, a pod without its grace period."""
        self.store.delete(kind, name, namespace, grace=0)

    def renew_node(self, name: str) -> None:
        """Delete a node and make another of the same name: its pods stay, its uid does not."""
        old = copy.deepcopy(self.store.get("Node", name))
        self.remove("Node", name)
        self.add({**old, "metadata": {key: value for key, value in old["metadata"].items() if key != "uid"}})

    def node(self, name: str = "n1") -> Json | None:
        """Return a node."""
        return self.store.find("Node", name)

    def on(self, name: str) -> list[str]:
        """Return the pods on a node."""
        pods = [each for each in self.store.list("Pod") if each["spec"].get("nodeName") == name]
        return sorted(f"{each['metadata']['namespace']}/{each['metadata']['name']}" for each in pods)

    def configure(self, name: str, data: Mapping[str, str], namespace: str = "default") -> None:
        """Write a ConfigMap."""
        if self.store.find("ConfigMap", name, namespace) is None:
            self.store.create("ConfigMap", {"metadata": {"name": name, "namespace": namespace}, "data": dict(data)})
        else:
            self.edit("ConfigMap", name, lambda thing: thing.update(data=dict(data)), namespace)

    def holder(self, lease: str, namespace: str = "default") -> str | None:
        """Return who holds a Lease, empty where it was given up, ``None`` where there is none."""
        found = self.store.find("Lease", lease, namespace)
        return None if found is None else str((found.get("spec") or {}).get("holderIdentity") or "")

    def events(self) -> list[Json]:
        """Return all Events as ``events.k8s.io/v1`` has them."""
        return [as_new(each) for each in self.store.list("Event")]

    # What is asked of it.

    def kubeconfig(self) -> str:
        """Write a kubeconfig, and return its name."""
        return str(kubeconfig_to(self.url, self.simulation.kubeconfig, self._folder / "kubeconfig-of-clients"))

    @property
    def did(self) -> list[Record]:
        """The requests for a change that the client has an answer to, or the server has carried out."""
        return [each for each in self.proxy.writes if (each.status or each.answered) is not None]

    @property
    def evicted(self) -> list[str]:
        """The uids of pods that a client has evicted or deleted, each time."""
        return [_sent_away(each) for each in self.did if "/pods/" in each.call.path and each.status in (200, 201)]

    def asked(self, kind: str) -> bool:
        """Return whether a client has asked for objects of *kind*."""
        return any(_kind(each.call.path) == kind for each in self.proxy.log)

    def freeze(self, kind: str) -> None:
        """Let watches of *kind* say nothing until :meth:`thaw`."""
        self._gate(kind).clear()

    def thaw(self) -> None:
        """Let all watches say what they have held back."""
        for each in self._open.values():
            each.set()

    def _gate(self, kind: str) -> asyncio.Event:
        if kind not in self._open:
            self._open[kind] = asyncio.Event()
            self._open[kind].set()
        return self._open[kind]

    async def _plan(self, call: Call) -> Fault | None:
        if call.is_watch:
            return HeldWatch(open=self._gate(_kind(call.path)))
        hook = self.hooks.get(call.client)
        fault = await hook(call) if hook is not None else None
        return fault or (self.refuse if call.path.endswith("/eviction") else None)

    # Who lives in it.

    def process(self, name: str, *, ahead: float = 0.0) -> Process:
        """Return a new process, whose clock is *ahead* so many seconds; it lasts as long as the cluster."""
        simulation = self.simulation
        connector = simulation.network.connector
        host = Host(wall=lambda: simulation.wall() + ahead, connector=connector, stopwatch=None)
        self._processes.append(Process(simulation.loop, name, host))
        return self._processes[-1]

    async def get(self, name: str, port: int, path: str) -> tuple[int, str]:
        """Ask the process *name* over HTTP: status and text."""
        async with self.simulation.session() as http, http.get(f"http://{name}:{port}{path}") as answer:
            return answer.status, await answer.text()

    async def run(self) -> None:
        """Take drained nodes away, until cancelled."""
        while True:
            version = self.store.version
            for node in self.store.list("Node"):
                note = (node["metadata"].get("annotations") or {}).get(DRAIN_ANNOTATION, "")
                if self.autoscaler and '"phase":"Drained"' in note:
                    self.remove("Node", node["metadata"]["name"])
            await self.store.wait(version)

    async def close(self) -> None:
        """End all processes."""
        for each in self._processes:
            await each.bury()


@asynccontextmanager
async def simulated(folder: Path, *things: Json) -> AsyncIterator[Simulated]:
    """Let a cluster that holds *things* live; *folder* takes its kubeconfig."""
    async with Simulation(0, folder, speeds=_SOON) as simulation, Proxy(simulation.url, writes=WRITES) as proxy:
        made = Simulated(simulation, proxy, folder)
        made.add(*things)
        living = asyncio.create_task(made.run(), name="autoscaler")
        try:
            yield made
        finally:
            await made.close()
            living.cancel()
            await asyncio.wait([living])


def kubeconfig_to(url: str, like: Path, file: Path) -> Path:
    """Write a kubeconfig as *like* is, for the server at *url*, and return *file*."""
    config = json.loads(like.read_text())
    config["clusters"][0]["cluster"]["server"] = url
    file.write_text(json.dumps(config))
    return file


async def until(condition: Callable[[], object], deadline: float = 3600) -> None:
    """Wait for *condition*, at most *deadline* seconds."""
    async with asyncio.timeout(deadline):
        while not condition():  # noqa: ASYNC110 - any condition, on either side of the connection
            await asyncio.sleep(_LOOK)


def _made_now(thing: Json) -> Json:
    meta = {key: value for key, value in thing["metadata"].items() if key != "creationTimestamp"}
    return {**thing, "metadata": meta}


def _kind(path: str) -> str:
    """Return the kind that *path* leads to; empty for a version that the embedded cluster does not serve."""
    try:
        return target_of(path).kind.name
    except UnknownPath:
        return ""


def _sent_away(record: Record) -> str:
    options = json.loads(record.call.body)
    return str(options.get("deleteOptions", options)["preconditions"]["uid"])


class Controller:
    """What a controller's main function runs in: a process named *name* whose runtime *work* is given."""

    def __init__(self, api: Simulated, name: str, work: Callable[[Runtime], Coroutine[Any, Any, None]]) -> None:
        self.api = api
        self.name = name
        self.runtime = Runtime()
        self.process = api.process(name)
        self.task = self.process.run(work(self.runtime))

    async def ended(self) -> None:
        """Tell it to end, as SIGTERM does, and wait until it has."""
        self.runtime.end()
        await self.task
        await self.process.run(self.runtime.close())

    def killed(self) -> None:
        """End it as SIGKILL does: nothing is written any more."""
        self.process.kill()


__all__ = ["BUDGET", "LOST", "UNHEARD", "Controller", "Hook", "Simulated", "kubeconfig_to", "simulated", "until"]
