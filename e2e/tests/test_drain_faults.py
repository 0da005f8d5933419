"""Drains behind a connection that fails in every way: seeded storms, and an outage. Each ends well all the same.

Our drains run in this process (a process for each seed would take most of the time to start); several seeds run beside
each other on one plane, each with its own node, proxy, ledger and controller name.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tightship.drain.claims import ClaimLedger
from tightship.drain.drainer import Drainer
from tightship.drain.driving import DrainSettings, Tools
from tightship.drain.history import DrainHistory
from tightship.drain.machine import DrainRules
from tightship.drain.news import News, Told
from tightship.kube.cache import ClusterCache, Timing
from tightship.kube.connection import connect
from tightship.kube.errors import KubeError
from tightship.nodes import drain_record
from tightship.runtime.loop import in_thread
from tightship_e2e import ControlPlane, load
from tightship_e2e.reset import reset
from tightship_testkit.client import Client, Json
from tightship_testkit.drains import all_ready, spare
from tightship_testkit.fault_proxy import FaultProxy
from tightship_testkit.faults import Rates, SeededFaults
from tightship_testkit.invariants import Recorder, evicted_again, successful_evictions
from tightship_testkit.manifests import POOL, as_list, budget, owner, pod
from tightship_testkit.remover import Remover
from tightship_testkit.replica import NAMESPACE, new_team

SEEDS = int(os.environ.get("TIGHTSHIP_STORMS", "500"))
FIRST = int(os.environ.get("TIGHTSHIP_FIRST_SEED", "0"))
LANES = 12
STORM = 8.0
"""Seconds after which the faults cease."""
DEADLINE = 300.0
RATES = Rates(hang_seconds=1.0, slow_seconds=0.5).times(3)
QUICK = Timing(first=0.1, longest=0.5, silence=2)
RULES = DrainRules(settle=0.5, backoff_base=1, backoff_limit=2, pending_timeout=60, hand_over_timeout=60)


def lane(number: int) -> list[Json]:
    """A node to drain with three pods and a budget of one, and one that takes them."""
    pool = f"lane-{number}"
    labels = {"app": pool}
    pods = [
        pod(f"{pool}-{index}", f"{pool}-{'a' if index < 3 else 'b'}", owner("ReplicaSet", pool), labels)
        for index in range(4)
    ]
    for each in pods:
        each["spec"]["nodeSelector"] = {POOL: pool}
    return [spare(f"{pool}-a", pool), spare(f"{pool}-b", pool), *pods, budget(pool, 3, app=pool)]


class Crew:
    """A drainer behind a proxy, in this process, that has one node to empty."""

    def __init__(self, drainer: Drainer, cache: ClusterCache, ledger: ClaimLedger, news: list[News]) -> None:
        self.drainer = drainer
        self.cache = cache
        self.ledger = ledger
        self.news = news
        self.troubles = 0

    async def empty(self, name: str, recorder: Recorder, deadline: float = DEADLINE) -> None:
        """Do what a controller's loop does until the node is gone and nothing is claimed."""
        until = time.monotonic() + deadline
        for _ in itertools.count():
            assert time.monotonic() < until, f"{name}: {self.told()}\n{recorder.story()}"
            try:
                snapshot = self.cache.snapshot()
                await self.drainer.adopt(snapshot)
                view = snapshot.nodes.get(name)
                if view is None and recorder.node(name) is None and not await self.ledger.read():
                    return
                record = drain_record(view.node) if view is not None else None
                resting = record is None or (not record.owns_node and (record.next_try or 0) < time.time())
                if view is not None and resting and name not in self.drainer.driving:
                    await self.drainer.claim(view.node, pool="p", plan_hash="h", allows=lambda _: None)
            except KubeError:
                self.troubles += 1
            with contextlib.suppress(TimeoutError):
                await asyncio.sleep(0.3)

    def told(self) -> str:
        """What the drain has told so far."""
        return "; ".join(
            f"{each.told.value} {each.record.phase.value if each.record else ''} {each.text}"
            for each in self.news[-40:]
        )


@asynccontextmanager
async def crew(kubeconfig: Path, name: str, rules: DrainRules = RULES) -> AsyncIterator[Crew]:
    """Connect, sync and make a drainer; *name* is the controller's and the ledger's."""
    news: list[News] = []
    settings = DrainSettings(rules=rules)
    async with await connect(kubeconfig, timeout=5) as connection, ClusterCache(connection, timing=QUICK) as cache:
        await cache.synced(60)
        ledger = ClaimLedger(connection, namespace=NAMESPACE, name=name)
        tools = Tools(
            connection=connection,
            cache=cache,
            tell=news.append,
            leading=lambda: True,
            stopping=lambda: False,
            settings=lambda: settings,
            clock=time.time,
            in_thread=in_thread,
        )
        history = DrainHistory(connection, namespace=NAMESPACE, name=name)
        made = Drainer(tools, ledger, history, controller=name, holder="me", epoch=lambda: 1, pool_of=lambda _: "p")
        try:
            yield Crew(made, cache, ledger, news)
        finally:
            await made.stop(0.1)


@pytest.mark.slow
@pytest.mark.timeout(5400)
def test_storms(control_plane: ControlPlane, tmp_path: Path) -> None:
    tally: Counter[str] = Counter()
    endings: Counter[str] = Counter()
    longest = 0.0
    troubles = 0
    repeated = 0

    async def storm(seed: int, number: int, recorder: Recorder, team: str) -> None:
        nonlocal troubles, longest, repeated
        plan = SeededFaults(seed, RATES, seconds=STORM)
        began = time.monotonic()
        async with FaultProxy(control_plane) as proxy:
            file = proxy.kubeconfig(tmp_path / f"storm-{seed}")
            async with crew(file, f"{team}-{number}") as made:
                proxy.plan = plan
                try:
                    await made.empty(f"lane-{number}-a", recorder)
                except AssertionError as error:
                    raise AssertionError(f"seed {seed}: {error}") from None
                troubles += made.troubles + sum(each.told is Told.TROUBLE for each in made.news)
                endings.update(each.ending.value for each in made.news if each.ending is not None)
            repeated += sum(count > 1 for count in successful_evictions(proxy.log).values())
            again = evicted_again(proxy.log)
            assert not again, f"seed {seed}: evicted more than once: {again}"
        tally.update(plan.tally)
        longest = max(longest, time.monotonic() - began)

    async def batch(api: Client, seeds: range) -> None:
        await reset(api)
        await load(api, as_list(*(item for number in range(len(seeds)) for item in lane(number))))
        team = new_team()
        async with Recorder(control_plane, budget=len(seeds)) as recorder, Remover(api):
            async with asyncio.TaskGroup() as group:
                for number, seed in enumerate(seeds):
                    group.create_task(storm(seed, number, recorder, team))
            await all_ready(api)
            await recorder.check()

    began = time.monotonic()
    for first in range(FIRST, FIRST + SEEDS, LANES):
        seeds = range(first, min(first + LANES, FIRST + SEEDS))
        control_plane.run(lambda api, seeds=seeds: batch(api, seeds))  # type: ignore[misc]
    print(
        f"\n{SEEDS} storms in {time.monotonic() - began:.0f} s, the longest {longest:.0f} s; {tally.total()} faults: "
        f"{dict(tally)}; endings {dict(endings)}; {troubles} requests failed, {repeated} evictions granted twice"
    )
    assert tally.total() > SEEDS


@pytest.mark.parametrize("phase", ["claimed", "evicting"])
def test_an_outage_in_the_middle_of_a_drain(empty_plane: ControlPlane, tmp_path: Path, phase: str) -> None:
    """Ten minutes with short timings: longer than every pause of the connection, the watches, and the drain."""

    async def work(api: Client) -> None:
        await load(api, as_list(*lane(0)))
        async with FaultProxy(empty_plane) as proxy, Recorder(empty_plane) as recorder, Remover(api):
            rules = DrainRules(settle=2, backoff_base=1, backoff_limit=2, pod_timeout=3, node_timeout=5)
            async with crew(proxy.kubeconfig(tmp_path / "kubeconfig"), new_team(), rules) as made:
                running = asyncio.create_task(made.empty("lane-0-a", recorder))
                await recorder.until(lambda: phase.capitalize() in recorder.phases("lane-0-a"), phase)
                async with proxy.outage():
                    await asyncio.sleep(20)
                back = time.monotonic()
                await running
                print(f"\noutage while {phase}: ended {time.monotonic() - back:.1f} s after it")
            await all_ready(api)
            await recorder.check()
            assert set(successful_evictions(proxy.log).values()) == {1}

    empty_plane.run(work)
