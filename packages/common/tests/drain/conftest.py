"""Replicas of a controller, each on its own line to one fake API server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import msgspec
import pytest
import pytest_asyncio

from tightship.drain import driving, machine
from tightship.drain.claims import CLAIMS_ANNOTATION, Claim, ClaimLedger
from tightship.drain.drainer import Drainer
from tightship.drain.driving import DrainSettings, Tools
from tightship.drain.history import DrainHistory
from tightship.drain.machine import DrainRules
from tightship.drain.news import News, Told
from tightship.drain_record import DrainRecord, Phase
from tightship.evictability import EvictionRules
from tightship.kube.cache import ClusterCache, Timing
from tightship.kube.errors import KubeError
from tightship.nodes import drain_record
from tightship.objects import Node, decode
from tightship.reasons import Reason, Refusal
from tightship_testkit.builders import controller, node, pod, workload

from .fake_api import LEASES, Did, FakeApi, Json, Line, connection_to, serving

FAST = DrainSettings(
    rules=DrainRules(settle=0.0, pending_timeout=1e6), eviction=EvictionRules(awaited=frozenset({Reason.JOB_RUNNING}))
)
OTHERS: Json = {"key": "dedicated", "value": "db", "effect": "NoSchedule", "timeAdded": "2026-01-01T00:00:00Z"}


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses between two looks are for real clusters."""
    monkeypatch.setattr(driving, "SHORTEST_PAUSE", 0.002)
    monkeypatch.setattr(driving, "TROUBLE_FIRST", 0.002)
    monkeypatch.setattr(driving, "TROUBLE_LAST", 0.02)
    monkeypatch.setattr(machine, "LOOK_AGAIN", 0.05)


def small_cluster() -> FakeApi:
    """Node n1 to be drained of two pods, n2 with room for them, and a web that belongs to nobody here."""
    api = FakeApi()
    taints = [OTHERS]
    tolerations = [{"key": "dedicated", "operator": "Exists"}]
    api.add(
        workload(),
        workload("ReplicaSet", "other"),
        node("n1", taints=taints),
        node("n2"),
        pod("web-1", tolerations=tolerations),
        pod("web-2", tolerations=tolerations),
        pod("agent", owner=controller("DaemonSet", "agent")),
    )
    return api


@pytest_asyncio.fixture
async def api() -> AsyncIterator[FakeApi]:
    async with serving(small_cluster()) as made:
        yield made


async def until(condition: Callable[[], object], deadline: float = 60) -> None:
    """Wait for *condition*, looking again whenever the loop has been round."""
    async with asyncio.timeout(deadline):
        while not condition():  # noqa: ASYNC110 - any condition, on either side of the connection
            await asyncio.sleep(0.002)


class Replica:
    """One replica: what it is told, whether it leads, and what it has sent."""

    def __init__(self, line: Line, cache: ClusterCache, holder: str, epoch: int) -> None:
        self.line, self.cache, self.holder = line, cache, holder
        self.leading = True
        self.stopping = False
        self.settings = FAST
        self.ahead = 0.0
        self.looks = 0
        self.news: list[News] = []
        self.ledger = ClaimLedger(line, namespace="tightship")
        self.tools = Tools(
            connection=line,
            cache=cache,
            tell=self.news.append,
            leading=lambda: self.leading,
            stopping=lambda: self.stopping,
            settings=self._settings,
            clock=lambda: time.time() + self.ahead,
            in_thread=self._at_once,
        )
        self.drainer = Drainer(
            self.tools,
            self.ledger,
            DrainHistory(line, namespace="tightship"),
            controller="c",
            holder=holder,
            epoch=lambda: epoch,
            pool_of=lambda _: "pool",
        )

    def _settings(self) -> DrainSettings:
        self.looks += 1
        return self.settings

    @staticmethod
    async def _at_once(work: Callable[[], list[Refusal]]) -> list[Refusal]:
        return work()

    async def claim(self, name: str = "n1") -> Refusal | None:
        return await self.drainer.claim(
            self.cache.snapshot().nodes[name].node, pool="pool", plan_hash="p", allows=lambda _: None
        )

    async def adopt(self) -> None:
        await self.drainer.adopt(self.cache.snapshot())

    async def settled(self) -> None:
        """Do what a controller does every loop, until there is nothing left to do."""

        async def loop() -> None:
            while True:
                try:
                    await self.adopt()
                    if not self.drainer.driving and not await self.ledger.read():
                        return
                except KubeError:
                    continue  # the next loop's
                finally:
                    await asyncio.sleep(0.005)

        await asyncio.wait_for(loop(), 60)

    def later(self, seconds: float) -> None:
        """Let the replica's clock show that *seconds* have passed."""
        self.ahead += seconds
        self.drainer.wake()

    async def looked(self) -> None:
        """Wait until the node has been looked at from here on."""
        before = self.looks
        await until(lambda: self.looks > before + 1)

    def told(self, told: Told) -> list[News]:
        return [each for each in self.news if each.told is told]

    @property
    def phases(self) -> list[Phase]:
        return [each.record.phase for each in self.news if each.told in (Told.CLAIMED, Told.PHASE) and each.record]


class Bench:
    """The API server and its replicas."""

    def __init__(self, api: FakeApi, stack: AsyncExitStack) -> None:
        self.api, self._stack = api, stack
        self._replicas: list[Replica] = []

    async def replica(self, holder: str = "a", epoch: int = 1) -> Replica:
        real = await self._stack.enter_async_context(connection_to(self.api))
        cache = await self._stack.enter_async_context(
            ClusterCache(real, timing=Timing(first=0.002, longest=0.02, silence=60))
        )
        await cache.synced(60)
        made = Replica(Line(await self._stack.enter_async_context(connection_to(self.api))), cache, holder, epoch)
        self._replicas.append(made)
        return made

    async def close(self) -> None:
        for each in self._replicas:
            each.leading = False
            each.line.dead = True
            await each.drainer.stop(0)

    @property
    def node(self) -> Node | None:
        raw = self.api.node()
        if raw is None:
            return None
        made = decode("Node", msgspec.json.encode(raw))
        assert isinstance(made, Node)
        return made

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
        lease = self.api.objects[LEASES].get("tightship/tightship-claims")
        raw = lease["metadata"].get("annotations", {}).get(CLAIMS_ANNOTATION, "[]") if lease else "[]"
        return [Claim(node=e["node"], op=e["op"], controller=e["controller"], holder=e["holder"], since=0.0)
                for e in msgspec.json.decode(raw)]  # fmt: skip

    def writes(self) -> list[Did]:
        return [each for each in self.api.did if each.verb == "PATCH"]


@asynccontextmanager
async def benched(api: FakeApi) -> AsyncIterator[Bench]:
    async with AsyncExitStack() as stack:
        made = Bench(api, stack)
        try:
            yield made
        finally:
            await made.close()


@pytest_asyncio.fixture
async def bench(api: FakeApi) -> AsyncIterator[Bench]:
    async with benched(api) as made:
        yield made
