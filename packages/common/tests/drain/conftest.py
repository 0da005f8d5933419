"""Replicas of a controller that only drains, each a process of a simulated cluster."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest_asyncio

from tightship.drain.events import DrainEvent, EventKind
from tightship.drain.machine import DrainRules
from tightship.draining.claims import CLAIMS_ANNOTATION, Claim, ClaimRequest, claims_in, past_drains, take
from tightship.draining.drain_manager import Drainer, Order
from tightship.draining.drain_task import DrainSettings, Tools
from tightship.draining.ledger import Ledger
from tightship.kube.cache import ClusterCache
from tightship.kube.connection import Connection, connect
from tightship.objects import Node
from tightship.objects.api_errors import KubeError
from tightship.objects.drain_record import DrainRecord, Finished, Phase
from tightship.objects.reasons import Reason, Refusal
from tightship.process.loop import in_thread
from tightship.rules.evictability import EvictionRules
from tightship.rules.nodes import drain_record
from tightship_simulator.virtual.process import Process
from tightship_testkit.builders import controller, decoded, node, pod
from tightship_testkit.fault_proxy import Record
from tightship_testkit.simulated import BUDGET, Hook, Simulated, simulated, until

Json = dict[str, Any]
T = TypeVar("T")

FAST = DrainSettings(
    rules=DrainRules(settle=0.0, pending_timeout=1e6), eviction=EvictionRules(awaited=frozenset({Reason.JOB_RUNNING}))
)
OTHERS: Json = {"key": "dedicated", "value": "db", "effect": "NoSchedule", "timeAdded": "2026-01-01T00:00:00Z"}
TOLERATIONS = [{"key": "dedicated", "operator": "Exists"}]
HOSTNAME = "kubernetes.io/hostname"


def owner(kind: str, name: str, replicas: int = 0, **spec: object) -> Json:
    """Return a workload of so many replicas, whose pods tolerate the taint of others."""
    made = pod(owner=controller(kind, name), on="", labels={"app": name}, tolerations=TOLERATIONS, **spec)
    template = {"metadata": {"labels": {"app": name}}, "spec": made["spec"]}
    selector = {"matchLabels": {"app": name}}
    return {
        "kind": kind,
        "metadata": {"name": name, "namespace": "shop", "uid": f"uid-{name}"},
        "spec": {"replicas": replicas, "selector": selector, "template": template},
    }


def known_pod(name: str, **more: Any) -> Json:
    """Return a pod with a uid that tests know."""
    made = pod(name, **more)
    made["metadata"]["uid"] = f"uid-Pod-{name}"
    return made


def other(replicas: int = 1) -> Json:
    """Return the owner of pods that tests put beside."""
    return owner("ReplicaSet", "other", replicas)


def small_cluster() -> list[Json]:
    """Return node n1 to be drained of two pods, n2 with room for them, and an agent that stays where it is."""
    return [
        node("n1", labels={HOSTNAME: "n1"}, taints=[OTHERS]),
        node("n2", labels={HOSTNAME: "n2"}),
        owner("ReplicaSet", "web", 2),
        owner("DaemonSet", "agent", nodeSelector={HOSTNAME: "n1"}),
        known_pod("web-1", tolerations=TOLERATIONS),
        known_pod("web-2", tolerations=TOLERATIONS),
        known_pod("agent", owner=controller("DaemonSet", "agent"), tolerations=TOLERATIONS),
    ]


class Replica:
    """One replica: what it is told, whether it leads, and what it has sent."""

    def __init__(self, api: Simulated, process: Process, holder: str, epoch: int) -> None:
        self.process, self.holder = process, holder
        self.leading = True
        self.stopping = False
        self.settings = FAST
        self.looks = 0
        self.news: list[DrainEvent] = []
        self.connection: Connection
        self.cache: ClusterCache
        self.ledger: Ledger
        self.tools: Tools
        self.drainer: Drainer
        self._api = api
        self._epoch = epoch
        self._ready = asyncio.Event()
        self._task = process.run(self._live())

    async def _live(self) -> None:
        async with (
            await connect(self._api.kubeconfig()) as self.connection,
            await connect(self._api.kubeconfig()) as watching,
            ClusterCache(watching) as self.cache,
        ):
            await until(lambda: self.cache.has_synced, 60)
            self.ledger = Ledger(self.connection, namespace="tightship")
            self.tools = Tools(
                connection=self.connection,
                cache=self.cache,
                tell=self.news.append,
                leading=lambda: self.leading,
                stopping=lambda: self.stopping,
                settings=self._settings,
                clock=self.connection.clock.now,
                in_thread=in_thread,
            )
            self.drainer = Drainer(
                self.tools,
                self.ledger,
                controller="c",
                holder=self.holder,
                epoch=lambda: self._epoch,
                pool_of=lambda _: "pool",
            )
            self._ready.set()
            await asyncio.Event().wait()

    async def ready(self) -> None:
        """Wait until it knows the cluster."""
        await self._ready.wait()

    def _settings(self) -> DrainSettings:
        self.looks += 1
        return self.settings

    async def does(self, work: Coroutine[Any, Any, T]) -> T:
        """Have its process do *work*. Never returns once that is killed."""
        return await self.process.run(work)

    def meets(self, hook: Hook | None) -> None:
        """Ask *hook* what each of its requests meets from here on."""
        self._api.hooks.pop(self.process.name, None)
        if hook is not None:
            self._api.hooks[self.process.name] = hook

    def sent(self) -> list[Record]:
        """Return its requests that the server has answered, watches left out."""
        log = self._api.proxy.log
        return [e for e in log if e.call.client == self.process.name and e.status is not None and not e.call.is_watch]

    def changes(self) -> list[tuple[str, str]]:
        """Return verb and path of those that may change something."""
        return [(each.call.verb, each.call.path) for each in self.sent() if each.call.write_number]

    async def claim(self, name: str = "n1") -> Refusal | None:
        judged = self.cache.snapshot().nodes[name].node
        return await self.asks(Order(judged, "pool", "p", lambda *_: None))

    async def asks(self, order: Order) -> Refusal | None:
        [answer] = await self.does(self.drainer.claim([order]))
        return answer

    async def take(self, claim: Claim) -> None:
        """Put a claim into the ledger."""
        await self.does(take(self.ledger, [ClaimRequest(claim, lambda *_: None)]))

    async def adopt(self, *, others: bool = True, ledger: bool = True) -> None:
        await self.does(self.drainer.adopt(self.cache.snapshot(), others=others, ledger=ledger))

    async def ended(self) -> list[Finished]:
        """Return what the history tells of drains."""
        return list(past_drains(await self.does(self.ledger.read())).finished)

    async def settled(self) -> None:
        """Do what a controller does every loop, until there is nothing left to do."""
        async with asyncio.timeout(4 * 3600):
            while True:
                try:
                    await self.adopt()
                    if not self.drainer.driving and not claims_in(await self.does(self.ledger.read())):
                        return
                except KubeError:
                    continue  # the next loop's
                finally:
                    await asyncio.sleep(1)

    async def looked(self) -> None:
        """Wait until the node has been looked at from here on."""
        before = self.looks
        await until(lambda: self.looks > before + 1)

    def reported(self, reported: EventKind) -> list[DrainEvent]:
        return [each for each in self.news if each.kind is reported]

    @property
    def phases(self) -> list[Phase]:
        return [
            each.record.phase for each in self.news if each.kind in (EventKind.CLAIMED, EventKind.PHASE) and each.record
        ]


class Bench:
    """The cluster and its replicas."""

    def __init__(self, api: Simulated) -> None:
        self.api = api

    async def replica(self, holder: str = "a", epoch: int = 1, *, ahead: float = 0.0) -> Replica:
        """Start a replica whose clock is *ahead* so many seconds."""
        made = Replica(self.api, self.api.process(holder, ahead=ahead), holder, epoch)
        await made.ready()
        return made

    @property
    def node(self) -> Node | None:
        raw = self.api.node()
        return None if raw is None else decoded(raw)

    @property
    def record(self) -> DrainRecord | None:
        return drain_record(self.node) if self.node is not None else None

    @property
    def phase(self) -> Phase | None:
        return self.record.phase if self.record is not None else None

    @property
    def pristine(self) -> bool:
        """Whether the node has neither our taint nor our cordon, and what others put there."""
        raw = self.api.node()
        return raw is not None and not raw["spec"].get("unschedulable") and raw["spec"].get("taints") == [OTHERS]

    def claims(self) -> list[Claim]:
        lease = self.api.store.find("Lease", "tightship-claims", "tightship") or {"metadata": {}}
        raw = (lease["metadata"].get("annotations") or {}).get(CLAIMS_ANNOTATION, "[]")
        return [Claim(node=e["node"], op=e["op"], controller=e["controller"], holder=e["holder"], since=0.0)
                for e in msgspec.json.decode(raw)]  # fmt: skip

    def writes(self) -> list[Record]:
        return [each for each in self.api.did if each.call.verb == "PATCH"]


async def evicting(bench: Bench, replica: Replica) -> None:
    """Claim n1 and come to the point where its pods have been asked to go and refused."""
    bench.api.refuse = BUDGET
    assert await replica.claim() is None
    await until(lambda: len(replica.reported(EventKind.EVICTION)) >= 2)
    assert bench.phase is Phase.EVICTING


@asynccontextmanager
async def benched(folder: Path) -> AsyncIterator[Bench]:
    async with simulated(folder, {"kind": "Namespace", "metadata": {"name": "tightship"}}, *small_cluster()) as api:
        yield Bench(api)


@pytest_asyncio.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with benched(tmp_path) as made:
        yield made
