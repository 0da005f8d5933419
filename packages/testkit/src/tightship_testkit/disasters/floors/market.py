"""The floors' part of a world: traffic, targets, Prometheus servers, HPAs, and what stands in for what they scale."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from random import Random
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from tightship_simulator.api.store import AUTHOR
from tightship_testkit.disasters.floors.ledger import Ledger
from tightship_testkit.disasters.floors.scraping import Scraper, Target
from tightship_testkit.disasters.floors.serving import Cycles, Server
from tightship_testkit.disasters.floors.spec import PREFIX, Autoscaler, Floors
from tightship_testkit.disasters.floors.traffic import Traffic
from tightship_testkit.disasters.registry import PERSON

if TYPE_CHECKING:
    from tightship_testkit.disasters.world import World

Json = dict[str, Any]
HPA = "HorizontalPodAutoscaler"
SHOP = "shop"
CONTROLLER = "hpa-controller"
"""The author of what stands in for kube-controller-manager."""
PORT = 9090
"""That of the first server."""
_SYNC = 5.0
"""Seconds between two looks of what stands in for the HPA controller."""
_STABLE = 30.0
"""Its downward stabilization, in seconds."""
_AFTER = 120.0
"""Seconds of traffic after the scenario."""


class Wrong(Struct):
    """Something that is wrong with the data, of an *app* or a *source*, empty for any; *end* is ``inf`` while it is."""

    what: str
    app: str
    source: str
    begin: float
    end: float = math.inf


class Market:
    """See the module. To be made before anything runs, and opened."""

    def __init__(self, world: World, floors: Floors) -> None:
        scenario = world.scenario
        self.world = world
        self.floors = floors
        end = scenario.story + scenario.quiet + _AFTER
        self.traffic = {each.name: Traffic(each, end) for each in floors.apps}
        self.wrongs: list[Wrong] = []
        self.servers: dict[str, Server] = {}
        rng = Random(scenario.seed)  # noqa: S311 - a simulation
        self.targets: dict[str, list[Target]] = {
            app.name: [Target(app, self.traffic[app.name], number) for number in range(app.targets)]
            for app in floors.apps
        }
        targets = [target for each in self.targets.values() for target in each]
        self.ledger = Ledger(world)
        cycles = Cycles(self.ledger.led_since)
        for number, source in enumerate(floors.sources):
            scraper = Scraper(source, targets, self.wall, rng)
            self.servers[source.name] = Server(
                source, scraper, PORT + number, lambda: world.now, self.wall, cycles=cycles
            )
        self.scales = [
            Scale(each, self.traffic[each.app])
            for each in floors.autoscalers
            if not each.of and each.app in self.traffic
        ]

    def wall(self, at: float) -> float:
        """Return the true seconds since 1970 of a time of the scenario."""
        return self.world.simulation.wall() + at - self.world.now

    @contextmanager
    def wrong(self, what: str, *, app: str = "", source: str = "") -> Iterator[None]:
        """Have something be wrong with the data for the body's time."""
        noted = Wrong(what, app, source, self.world.now)
        self.wrongs.append(noted)
        try:
            yield
        finally:
            noted.end = self.world.now

    def wrong_between(self, begin: float, end: float, app: str, source: str) -> list[str]:
        """Return what was wrong with the data of *app* at *source* at any time in between."""
        found = {
            each.what
            for each in self.wrongs
            if each.begin <= end and begin <= each.end and each.app in ("", app) and each.source in ("", source)
        }
        return sorted(found)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Make the HPAs, serve, and live, while the context lasts."""
        await self._start()
        life = asyncio.create_task(self._live(), name="market")
        try:
            yield
        finally:
            life.cancel()
            await asyncio.wait([life])
            for server in self.servers.values():
                await server.stop()
        if not life.cancelled():
            life.result()

    def measure(self, hpa: Json, metric: Json, current: int) -> float | None:
        """Return the ratio of the metric of an HPA of a workload to its target; see ``life/horizontal.py``."""
        del metric
        found = next((each for each in self.floors.autoscalers if each.name == hpa["metadata"]["name"]), None)
        if found is None or not found.of or not current:
            return None
        return demand(found, self.traffic[found.app].rate(self.world.now)) / current

    async def _start(self) -> None:
        store, network = self.world.store, self.world.simulation.network
        if store.find("Namespace", SHOP) is None:
            store.create("Namespace", {"metadata": {"name": SHOP}})
        token = AUTHOR.set(PERSON)
        for each in self.floors.autoscalers:
            store.create(HPA, autoscaler(each))
        AUTHOR.set(CONTROLLER)
        for scale in self.scales:
            scale.begin(self.world)
        AUTHOR.reset(token)
        others = network.refuses

        def refuses(name: str, port: int) -> bool:
            for server in self.servers.values():
                if server.port == port and server.refuses:
                    server.refused.append((self.world.now, name))
                    return True
            return others(name, port)

        network.refuses = refuses
        for server in self.servers.values():
            server.scraper.until(self.world.now)
            await server.start()

    async def _live(self) -> None:
        AUTHOR.set(CONTROLLER)
        synced = 0.0
        while True:
            for server in self.servers.values():
                server.scraper.until(self.world.now, up=server.up)
            if self.world.now >= synced:
                synced += _SYNC
                for scale in self.scales:
                    scale.sync(self.world)
            await asyncio.sleep(1.0)


class Scale:
    """Stands in for what *spec* scales, and for the HPA controller: pods that need no room, by their own metric."""

    def __init__(self, spec: Autoscaler, traffic: Traffic) -> None:
        self.spec = spec
        self.replicas = 0
        self.off = False
        """Whether somebody has scaled it to 0."""
        self._traffic = traffic
        self._wanted: list[tuple[float, int]] = []

    def begin(self, world: World) -> None:
        """Have the replicas that the HPA has in the beginning, and say so."""
        self.replicas = max(self.spec.at or self.spec.least, self._demand(0.0))
        self._tell(world)

    def _demand(self, now: float) -> int:
        return demand(self.spec, self._traffic.rate(now))

    def sync(self, world: World) -> None:
        """Look once."""
        found = world.store.find(HPA, self.spec.name, SHOP)
        if found is None:
            return
        now = world.now
        self._wanted = [each for each in self._wanted if now - each[0] < _STABLE]
        self._wanted.append((now, self._demand(now)))
        least, most = int(found["spec"].get("minReplicas", 1)), int(found["spec"]["maxReplicas"])
        wanted = max(count for _, count in self._wanted)
        self.replicas = 0 if self.off else max(least, min(most, wanted))
        self._tell(world)

    def _tell(self, world: World) -> None:
        active = {"type": "ScalingActive", "status": "True", "reason": "ValidMetricFound"}
        if self.off:
            active = {"type": "ScalingActive", "status": "False", "reason": "ScalingDisabled"}
        status = {
            "currentReplicas": self.replicas,
            "desiredReplicas": self.replicas,
            "conditions": [{"type": "AbleToScale", "status": "True", "reason": "ReadyForNewScale"}, active],
        }
        found = world.store.find(HPA, self.spec.name, SHOP)
        if found is not None and found.get("status") != status:
            world.store.modify(HPA, self.spec.name, SHOP, lambda each: {**each, "status": status}, part="status")


def demand(spec: Autoscaler, rate: float) -> int:
    """Return how many replicas an HPA would have by its own metric."""
    return math.ceil(rate / float(spec.notes.get("requests-per-replica", "1")) * spec.demand)


def autoscaler(spec: Autoscaler) -> Json:
    """Return the HPA."""
    notes = {f"{PREFIX}-{name}": text for name, text in spec.notes.items()}
    if spec.enabled:
        notes[PREFIX] = "true"
    target = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout", "name": spec.name}
    if spec.of:
        target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": spec.of}
    cpu = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 70}}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": HPA,
        "metadata": {"name": spec.name, "namespace": SHOP, "annotations": notes},
        "spec": {
            "scaleTargetRef": target,
            "minReplicas": spec.at or spec.least,
            "maxReplicas": spec.most,
            "metrics": [{"type": "Resource", "resource": cpu}],
        },
    }


__all__ = ["CONTROLLER", "HPA", "PORT", "SHOP", "Market", "Scale", "Wrong", "autoscaler"]
