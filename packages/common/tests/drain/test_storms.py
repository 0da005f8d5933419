"""Drains behind a connection that fails in every way: seeded storms, and an outage. Each ends well all the same.

Several seeds run beside each other on one cluster, each with its own node, proxy, ledger and controller name.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tightship.drain.events import DrainEvent, EventKind
from tightship.drain.machine import DrainRules
from tightship.draining.claims import claims_in
from tightship.draining.drain_manager import Drainer, Order
from tightship.draining.drain_task import DrainSettings, Tools
from tightship.draining.ledger import Ledger
from tightship.kube import host
from tightship.kube.cache import ClusterCache, Timing
from tightship.kube.connection import connect
from tightship.objects.api_errors import KubeError
from tightship.process.loop import in_thread
from tightship.rules.nodes import drain_record
from tightship_simulator.life.kubelet import Pace
from tightship_simulator.life.living import Speeds
from tightship_simulator.life.remover import Remover
from tightship_simulator.small import replicas
from tightship_simulator.virtual.simulation import Simulation
from tightship_testkit.client import Client
from tightship_testkit.drains import all_ready, spare
from tightship_testkit.fault_proxy import WRITES, Proxy, evicted_again, successful_evictions
from tightship_testkit.faults import Rates, SeededFaults
from tightship_testkit.invariants import Recorder
from tightship_testkit.manifests import POOL, budget
from tightship_testkit.marks import TAINT
from tightship_testkit.simulated import kubeconfig_to, until

pytestmark = [pytest.mark.virtual_time, pytest.mark.slow, pytest.mark.takes(3)]

Json = dict[str, Any]

SEEDS = int(os.environ.get("TIGHTSHIP_STORMS", "20"))
FIRST = int(os.environ.get("TIGHTSHIP_FIRST_SEED", "0"))
LANES = 10
STORM = 8.0
"""Seconds after which the faults cease."""
DEADLINE = 300.0
NAMESPACE = "default"
RATES = Rates(hang_seconds=1.0, slow_seconds=0.5).times(3)
QUICK = Timing(first=0.1, longest=0.5, silence=2)
RULES = DrainRules(settle=0.5, backoff=1, backoff_limit=2, pending_timeout=60, hand_over_timeout=60)
SPEEDS = Speeds(Pace(start=0.5, stop=0.5, boot=0.5), horizontal_every=1e9, nodes_every=1e9)


def lane(number: int) -> list[Json]:
    """A node to drain with three pods and a budget of one, and one that takes them."""
    pool = f"lane-{number}"
    nodes = [f"{pool}-a"] * 3 + [f"{pool}-b"]
    pods = replicas(pool, nodes, {"nodeSelector": {POOL: pool}})
    return [spare(f"{pool}-a", pool), spare(f"{pool}-b", pool), *pods, budget(pool, 3, app=pool)]


class ProxiedDrainer:
    """A drainer behind a proxy that has one node to empty."""

    def __init__(self, drainer: Drainer, cache: ClusterCache, ledger: Ledger, news: list[DrainEvent]) -> None:
        self.drainer = drainer
        self.cache = cache
        self.ledger = ledger
        self.news = news
        self.troubles = 0

    async def empty(self, name: str, recorder: Recorder, deadline: float = DEADLINE) -> None:
        """Do what a controller's loop does until the node is gone and nothing is claimed."""
        until = host.monotonic() + deadline
        while True:
            assert host.monotonic() < until, f"{name}: {self.reported()}\n{recorder.story()}"
            try:
                snapshot = self.cache.snapshot()
                await self.drainer.adopt(snapshot)
                view = snapshot.nodes.get(name)
                if view is None and recorder.node(name) is None and not claims_in(await self.ledger.read()):
                    return
                record = drain_record(view.node) if view is not None else None
                resting = record is None or (not record.owns_node and (record.next_try or 0) < host.wall())
                if view is not None and resting and name not in self.drainer.driving:
                    await self.drainer.claim([Order(view.node, "p", "h", lambda *_: None)])
            except KubeError:
                self.troubles += 1
            await asyncio.sleep(1)

    def reported(self) -> str:
        """What the drain has told so far."""
        return "; ".join(
            f"{each.kind.value} {each.record.phase.value if each.record else ''} {each.text}"
            for each in self.news[-40:]
        )


@asynccontextmanager
async def proxied_drainer(
    kubeconfig: Path, name: str, rules: DrainRules = RULES, timing: Timing = QUICK
) -> AsyncIterator[ProxiedDrainer]:
    """Connect, sync and make a drainer; *name* is the controller's and the ledger's."""
    news: list[DrainEvent] = []
    settings = DrainSettings(rules=rules)
    async with await connect(kubeconfig, timeout=5) as connection, ClusterCache(connection, timing=timing) as cache:
        await until(lambda: cache.has_synced, 60)
        ledger = Ledger(connection, namespace=NAMESPACE, name=name)
        tools = Tools(
            connection=connection,
            cache=cache,
            tell=news.append,
            leading=lambda: True,
            stopping=lambda: False,
            settings=lambda: settings,
            clock=host.wall,
            in_thread=in_thread,
        )
        made = Drainer(tools, ledger, controller=name, holder="me", epoch=lambda: 1, pool_of=lambda _: "p")
        try:
            yield ProxiedDrainer(made, cache, ledger, news)
        finally:
            await made.stop(0.1)


class StormCluster:
    """A cluster with lanes, and what is seen of them."""

    def __init__(self, simulation: Simulation, recorder: Recorder, api: Client, folder: Path) -> None:
        self.simulation, self.recorder, self.api = simulation, recorder, api
        self._folder = folder

    def kubeconfig(self, proxy: Proxy, name: str) -> Path:
        return kubeconfig_to(proxy.url, self.simulation.kubeconfig, self._folder / name)


@asynccontextmanager
async def storm_cluster(folder: Path, lanes: int) -> AsyncIterator[StormCluster]:
    """Let a cluster live; everything it has to hold is checked in the end."""
    async with Simulation(0, folder, speeds=SPEEDS) as simulation:
        assert simulation.store.load([item for number in range(lanes) for item in lane(number)]) == {}
        simulation.living.others.append(Remover(TAINT, 0.5))
        seen = SimpleNamespace(client=lambda: Client(simulation.url, {}, None))
        async with seen.client() as api, Recorder(seen, budget=lanes) as recorder:
            yield StormCluster(simulation, recorder, api, folder)
            await all_ready(api)
            await recorder.check()


async def storm(on: StormCluster, seed: int, number: int, tally: Counter[str]) -> None:
    plan = SeededFaults(seed, RATES, seconds=STORM, clock=host.monotonic)
    async with (
        Proxy(on.simulation.url, writes=WRITES) as proxy,
        proxied_drainer(on.kubeconfig(proxy, f"storm-{seed}"), f"team-{number}") as made,
    ):
        proxy.plan = plan
        try:
            await made.empty(f"lane-{number}-a", on.recorder)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from None
        tally["troubles"] += made.troubles + sum(each.kind is EventKind.TROUBLE for each in made.news)
        again = evicted_again(proxy.log)
        assert not again, f"seed {seed}: evicted more than once: {again}"
    tally.update(plan.tally)


@pytest.mark.parametrize("first", range(FIRST, FIRST + SEEDS, LANES))
async def test_storms(tmp_path: Path, first: int) -> None:
    seeds = range(first, min(first + LANES, FIRST + SEEDS))
    tally: Counter[str] = Counter()
    async with storm_cluster(tmp_path, len(seeds)) as on, asyncio.TaskGroup() as group:
        for number, seed in enumerate(seeds):
            group.create_task(storm(on, seed, number, tally))
    assert tally.total() - tally["troubles"] > len(seeds)
    assert tally["troubles"]


@pytest.mark.parametrize("phase", ["Claimed", "Evicting"])
async def test_an_outage_in_the_middle_of_a_drain(tmp_path: Path, phase: str) -> None:
    """Ten minutes: longer than every pause of the connection, the watches, and the drain."""
    rules = DrainRules(settle=2, backoff=1, backoff_limit=2, pod_timeout=3, node_timeout=5)
    async with (
        storm_cluster(tmp_path, 1) as on,
        Proxy(on.simulation.url, writes=WRITES) as proxy,
        proxied_drainer(on.kubeconfig(proxy, "kubeconfig-1"), "team", rules, Timing()) as made,
    ):
        running = asyncio.create_task(made.empty("lane-0-a", on.recorder, deadline=900))
        await on.recorder.until(lambda: phase in on.recorder.phases("lane-0-a"), phase)
        async with proxy.outage():
            await asyncio.sleep(600)
        await running
        assert set(successful_evictions(proxy.log).values()) == {1}
