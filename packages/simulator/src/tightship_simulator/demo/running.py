"""One night of the demo: its story, and what is seen of it, told moment by moment, whatever runs it."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager

import aiohttp
from msgspec import Struct

from tightship.kube.connection import connect
from tightship.kube.host import monotonic, wall
from tightship_simulator.api.store import Store
from tightship_simulator.demo import story
from tightship_simulator.demo.backend import Backend, Controller, Setup
from tightship_simulator.demo.cluster import SHAPES, WORKS, group, objects
from tightship_simulator.demo.observations import Announcement, Moment, Observation, identity
from tightship_simulator.demo.scene import Scene
from tightship_simulator.demo.settings import config_maps
from tightship_simulator.demo.watching import PAUSE, WATCHED, follow, session, watch_status, watch_traffic
from tightship_simulator.life.changes import Json, key_of
from tightship_simulator.life.kubelet import Pace
from tightship_simulator.life.living import Speeds
from tightship_simulator.life.node_autoscaler import Rules
from tightship_simulator.life.prometheus import Outage, Prometheus

READY_WITHIN = 180.0
SETTLED_WITHIN = 120.0
"""Seconds until all controllers are ready, and until nothing is under way any more in the morning."""

RESTS = 3.0
"""For how long: a controller may be about to begin something while it is switched off."""
PACKED = 0.55
"""The share of the evening's nodes down to which the night waits for morning, on a machine that is slow."""
LONGER = 2.0
"""How many nights that may take at most."""

SPEEDS = Speeds(Pace(start=6, stop=10, boot=45), Rules(unneeded=20, threshold=0.05))
"""The pods' and nodes' own durations, in seconds; the autoscaler takes empty nodes only, and soon."""

_TOLD = (
    (story.BEGIN, "nine in the evening: traffic falls, workloads shrink, nodes empty"),
    (story.FAILURE[0], "the gateway fails: a tenth of the traffic arrives, Prometheus does not answer"),
    (story.FAILURE[1], "the gateway is back, and all of the traffic at once"),
    (story.FALLEN, "night: little traffic; what is left is packed onto fewer nodes"),
    (story.RISING, "morning: traffic rises, floors rise with it, nodes come back"),
    (story.RISEN, "the day has begun"),
)


class Options(Struct, frozen=True):
    """What can be chosen: *seconds* for the night, *speed* of pods and nodes, *price* of a node's hour in dollars."""

    seconds: float = 90.0
    speed: float = 15.0
    seed: int = 7
    price: float = 0.27


class Show:
    """Runs the night; every moment goes to *scene* and to *heard*."""

    def __init__(self, options: Options, heard: Callable[[Moment], None]) -> None:
        self.scene = Scene(options.seconds, options.price)
        self.controllers: Sequence[Controller] = ()
        self._options = options
        self._passing = story.Passing(story.Night(options.seconds))
        self._heard = heard
        self._began: float | None = None
        self._known: dict[tuple[str, str], Observation] = {}
        self._prometheus = Prometheus(rates={"http_requests_total": self._rate}, now=wall)
        self._peaks = {work.name: work.peak for work in WORKS if work.rate}
        self._rates = {work.name: work.rate for work in WORKS if work.rate}

    # The story.

    @property
    def elapsed(self) -> float:
        """Seconds since the beginning of the night, 0 before."""
        return 0.0 if self._began is None else monotonic() - self._began

    @property
    def hour(self) -> float:
        """The hour of the story."""
        return story.BEGIN if self._began is None else self._passing.hour(monotonic())

    def _rate(self, labels: Mapping[str, str]) -> float | None:
        peak = self._peaks.get(labels.get("app", ""))
        return None if peak is None else peak * story.demand(self.hour)

    def _measure(self, hpa: Json, metric: Json, current: int) -> float | None:
        """Return the ratio of the pods' CPU to its target: what reaches them over what they carry."""
        name = key_of(hpa)[1]
        if metric.get("type") != "Resource" or name not in self._peaks:
            return None
        return self._peaks[name] * story.delivered(self.hour) / (self._rates[name] * max(1, current))

    def _see(self, observation: Observation) -> None:
        key = identity(observation)
        if key is not None and self._known.get(key) == observation:
            return  # a change of something that is not shown
        if key is not None:
            self._known[key] = observation
        moment = Moment(round(self.elapsed, 3), round(self.hour, 4), observation)
        self.scene.take(moment)
        self._heard(moment)

    # The night.

    async def run(self, backend: Backend) -> None:
        """Live through the night on *backend*, and end everything in order whatever happens.

        Raises :class:`~tightship_simulator.demo.backend.DiedError` where a controller ends by itself, or does not get
        ready.
        """
        seed, speed = self._options.seed, self._options.speed
        groups = [group(shape) for shape in SHAPES]
        setup = Setup(seed, speed, SPEEDS, groups, self._measure, self._prometheus)
        async with backend(setup) as running:
            store, self.controllers = running.store, running.controllers
            store.load(objects(seed, store.now()))
            store.load(config_maps(on=False))
            async with (
                await connect(running.kubeconfig) as connection,
                _tasks(*running.works, *(follow(connection, each, self._see) for each in WATCHED)) as tasks,
            ):
                try:
                    for each in self.controllers:
                        await each.start()
                    await self._through_the_night(store, tasks)
                finally:
                    await asyncio.gather(*(each.stop() for each in self.controllers))

    async def _through_the_night(self, store: Store, tasks: Tasks) -> None:
        for each in self.controllers:
            tasks.add(each.watch())
        await tasks.beside(self._until_ready())
        hpas = store.list("HorizontalPodAutoscaler")
        queries = {"/".join(key_of(hpa)): _query(hpa) for hpa in hpas}
        # Until now nothing was drained, so that the night begins with the whole cluster however long a start takes.
        _switch(store, on=True)
        self._began = monotonic()
        tasks.add(watch_traffic(self._prometheus.url, queries, self._see))
        tasks.add(watch_status({each.name: each.url for each in self.controllers}, self._see))
        for hour, text in _TOLD:
            await tasks.beside(self._until(hour))
            if hour == story.RISING:
                await tasks.beside(self._until_packed())
            self._prometheus.outage = Outage.REFUSES if story.fails(hour) else Outage.NONE
            self._see(Announcement(text))
        await tasks.beside(self._until(story.END))
        self._see(Announcement("half past seven: what drains nodes is switched off, what is under way is finished"))
        _switch(store, on=False)
        await tasks.beside(self._until_settled())
        self._see(Announcement("the end of the night"))

    async def _until(self, hour: float) -> None:
        await _wait(lambda: self.hour >= hour, 0.05)

    async def _until_packed(self) -> None:
        """Let the hour stand still until the night has done its work: what follows would have nothing to show else."""
        self._passing.standing = True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LONGER * self._options.seconds):
                await _wait(lambda: self.scene.nodes <= PACKED * self.scene.began, PAUSE / 2)
        self._passing.standing = False

    async def _until_ready(self) -> None:
        """Wait until all controllers are ready. They need not lead: what is switched off gives its Lease up."""
        end = monotonic() + READY_WITHIN
        async with session() as client:
            for each in self.controllers:
                while not await _ready(client, each):
                    if monotonic() > end:
                        raise each.late(READY_WITHIN)
                    await asyncio.sleep(PAUSE / 2)

    async def _until_settled(self) -> None:
        """Wait until no node is cordoned and every pod runs, and stays so, as far as that comes in time."""
        since = math.inf

        def rests() -> bool:
            nonlocal since
            since = min(since, monotonic()) if settled(self.scene) else math.inf
            return monotonic() - since >= RESTS

        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SETTLED_WITHIN):
                await _wait(rests, PAUSE / 2)


def _switch(store: Store, *, on: bool) -> None:
    """Have the controllers of nodes begin drains, or no more of them, by their ConfigMaps."""
    for each in config_maps(on=on):
        namespace, name = key_of(each)
        store.update("ConfigMap", {**store.get("ConfigMap", name, namespace), "data": each["data"]})


async def _wait(condition: Callable[[], bool], pause: float) -> None:
    while not condition():  # noqa: ASYNC110 - of the clock, and of what watches tell
        await asyncio.sleep(pause)


def settled(scene: Scene) -> bool:
    """Whether nothing is under way: no node cordoned, in drain or starting, every pod Ready."""
    nodes = [node for pool in scene.pools.values() for node in pool.nodes]
    calm = all(node.ready and not (node.cordoned or node.drain or node.taken) for node in nodes)
    return calm and all(pod.ready and not pod.leaving for pod in scene.pods.values())


def _query(hpa: Json) -> str:
    return f'sum(rate(http_requests_total{{app="{key_of(hpa)[1]}"}}[1m]))'


async def _ready(client: aiohttp.ClientSession, controller: Controller) -> bool:
    try:
        async with client.get(f"{controller.url}/readyz") as answer:
            return answer.status == 200
    except (aiohttp.ClientError, TimeoutError, OSError):
        return False


class Tasks:
    """Tasks that never end by themselves but by an error, which then is that of whoever waits here."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[None]] = set()

    def add(self, work: Coroutine[None, None, None]) -> None:
        """Start one more."""
        self._running.add(asyncio.create_task(work))

    async def beside(self, work: Coroutine[None, None, None]) -> None:
        """Do *work* while the tasks run. Raises what it raises, or what has ended one of them."""
        task = asyncio.create_task(work)
        try:
            done, _ = await asyncio.wait({task, *self._running}, return_when=asyncio.FIRST_COMPLETED)
            for each in done - {task} or done:
                each.result()
        finally:
            await _ended({task})

    async def aclose(self) -> None:
        """Cancel all."""
        await _ended(self._running)


async def _ended(tasks: set[asyncio.Task[None]]) -> None:
    for each in tasks:
        each.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@asynccontextmanager
async def _tasks(*works: Coroutine[None, None, None]) -> AsyncIterator[Tasks]:
    tasks = Tasks()
    for work in works:
        tasks.add(work)
    try:
        yield tasks
    finally:
        await tasks.aclose()


__all__ = ["Options", "Show", "settled"]
