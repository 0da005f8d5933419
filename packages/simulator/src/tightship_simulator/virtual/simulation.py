"""An embedded cluster with controllers on virtual time: the same code as on a real one, in one process.

::

    async def night(simulation: Simulation) -> None:
        simulation.store.load(items)
        replica = simulation.start(COMPACTOR, DRY_RUN="true")
        await simulation.sleep(600)                # ten minutes, at once
        replica.process.kill()

    simulate(night, seed=7)

All chance comes from the seed, and all time from the loop: a run is the same whenever and wherever it is made.
"""

from __future__ import annotations

import asyncio
import logging
import random
import tempfile
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
from aiohttp import web_app
from aiohttp.typedefs import Middleware

from tightship.kube.host import HOST, Host
from tightship.process.loop import Runtime
from tightship.process.settings.process import load_process
from tightship_simulator.api.store import Store
from tightship_simulator.life.horizontal import Measure
from tightship_simulator.life.living import Living, Speeds
from tightship_simulator.life.node_autoscaler import NodeGroup
from tightship_simulator.life.prometheus import Prometheus, serving
from tightship_simulator.serve import EmbeddedCluster
from tightship_simulator.virtual.loop import VirtualLoop
from tightship_simulator.virtual.process import Process
from tightship_simulator.virtual.programs import Program

T = TypeVar("T")

BEGIN = datetime(2026, 1, 5, 8, tzinfo=UTC)
"""The first moment of a simulation: a Monday morning."""
NAMESPACE = "tightship"
"""Where the controllers keep their ConfigMaps and Leases."""
API_PORT = 6443


Work = Callable[[Runtime], Coroutine[Any, Any, None]]


class Replica:
    """One replica of *program*, in a *process* that can be killed and frozen. :meth:`stop` does what SIGTERM does."""

    def __init__(self, process: Process, program: Program, work: Work) -> None:
        self.process = process
        self.program = program
        self.error: BaseException | None = None
        self._runtime: Runtime | None = None
        self._task = process.run(self._run(work))

    @property
    def name(self) -> str:
        """The replica's name, with which its identity begins."""
        return self.process.name

    @property
    def crashed(self) -> bool:
        """Whether its process would have ended with an error."""
        return self.error is not None or (self._runtime is not None and self._runtime.crashed)

    @property
    def ended(self) -> bool:
        """Whether it runs no more, by itself or killed."""
        return self._task.done() or not self.process.alive

    def stop(self) -> None:
        """Tell it to end, as SIGTERM does."""
        if self._runtime is not None:
            self._runtime.end()
        else:
            self._task.cancel()

    async def stopped(self) -> None:
        """Tell it to end, and wait until it has, or has been killed."""
        self.stop()
        await self.wait()

    async def wait(self) -> None:
        """Wait until it has ended, by itself or killed."""
        killed = asyncio.create_task(self.process.killed.wait())
        await asyncio.wait([self._task, killed], return_when=asyncio.FIRST_COMPLETED)
        killed.cancel()

    async def _run(self, work: Work) -> None:
        runtime = self._runtime = Runtime()
        try:
            await work(runtime)
        except Exception as error:  # as run_controller(): a crash, which others look at
            self.error = error
        await runtime.close()


class Simulation:
    """The world of one run; see the module. To be made by :func:`simulate`.

    *groups* are the node pools that the autoscaler knows, *measure* tells the HPA controller its metrics, and the
    durations of what lives in the cluster are *speeds* over *speed*. *prometheus* answers under its ``url``.
    *middlewares* are aiohttp's, around every answer of the API server. While it lasts, the process's own source of
    chance is seeded.
    """

    def __init__(
        self,
        seed: int,
        folder: Path,
        *,
        groups: Sequence[NodeGroup] = (),
        measure: Measure = lambda *_: None,
        speeds: Speeds = Speeds(),
        speed: float = 1.0,
        prometheus: Prometheus | None = None,
        bookmarks: float = 60.0,
        middlewares: Sequence[Middleware] = (),
    ) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        self.loop = loop
        self.seed = seed
        self.rng = random.Random(seed)  # noqa: S311 - a simulation, not a secret
        self.network = loop.network
        self._first = BEGIN.timestamp() - loop.time()
        HOST.set(self._host(0.0))
        self.store = Store(now=self.now, seed=seed)
        self.prometheus = prometheus or Prometheus()
        self.cluster = EmbeddedCluster(self.store, port=API_PORT, bookmarks=bookmarks, middlewares=middlewares)
        self.living = Living(self.store, groups, measure, speeds=speeds, speed=speed, seed=seed)
        self.replicas: list[Replica] = []
        self._folder = folder
        self._kubeconfig = folder / "kubeconfig"
        self._life: asyncio.Task[None] | None = None
        self._stack = AsyncExitStack()

    # Time.

    def wall(self) -> float:
        """Return the true seconds since 1970."""
        return self._first + self.loop.time()

    def now(self) -> datetime:
        """Return the true time."""
        return datetime.fromtimestamp(self.wall(), UTC)

    async def sleep(self, seconds: float) -> None:
        """Let so much time pass."""
        await asyncio.sleep(seconds)

    async def until(self, condition: Callable[[], bool], within: float, what: str, every: float = 0.5) -> None:
        """Wait until *condition* holds. Raises :class:`AssertionError`, which names *what*, after *within* seconds."""
        end = self.loop.time() + within
        while not condition():
            if self.loop.time() >= end:
                raise AssertionError(f"not within {within:g} s: {what}")
            await asyncio.sleep(every)

    # The controllers.

    def start(self, program: Program, *, name: str = "", skew: float = 0.0, **variables: str) -> Replica:
        """Start a replica of *program* with these environment *variables*; its wall clock is *skew* seconds ahead."""
        name = name or f"{program.name}-{sum(each.program is program for each in self.replicas)}"
        process = Process(self.loop, name, self._host(skew))
        environment: Mapping[str, str] = {
            "TIGHTSHIP_KUBECONFIG": str(self._kubeconfig),
            "KUBERNETES_SERVICE_HOST": "10.96.0.1",
            "NAMESPACE": NAMESPACE,
            "POD_NAME": name,
            "PROMETHEUS_SERVER_URL": self.prometheus.url,
            **variables,
        }

        async def work(runtime: Runtime) -> None:
            settings = load_process(program.settings, environment)
            await program.serve(runtime, settings, environment)

        replica = Replica(process, program, work)
        self.replicas.append(replica)
        return replica

    def _host(self, skew: float) -> Host:
        return Host(
            wall=lambda: self.wall() + skew,
            connector=self.network.connector,
            run=self.loop.run_nested,
            own_process=False,
            stopwatch=None,
        )

    def session(self) -> aiohttp.ClientSession:
        """Return a client for whatever listens: the API at :attr:`url`, a replica at ``http://NAME:PORT``."""
        return aiohttp.ClientSession(connector=self.network.connector())

    @property
    def url(self) -> str:
        """Where the API is."""
        return self.cluster.url

    @property
    def kubeconfig(self) -> Path:
        """A kubeconfig for it."""
        return self._kubeconfig

    # Life.

    async def __aenter__(self) -> Simulation:
        stack = self._stack
        await stack.__aenter__()
        stack.callback(random.setstate, random.getstate())
        random.seed(self.seed)
        await stack.enter_async_context(self.cluster)
        await stack.enter_async_context(serving(self.prometheus))
        self.cluster.kubeconfig(self._kubeconfig)
        self._life = asyncio.create_task(self.living.run(), name="life")
        return self

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        try:
            for replica in self.replicas:
                await replica.process.bury()
            if self._life is not None:
                self._life.cancel()
                await asyncio.wait([self._life])
                if not self._life.cancelled() and error is None:
                    self._life.result()
        finally:
            await self._stack.aclose()


def simulate(work: Callable[[Simulation], Coroutine[Any, Any, T]], *, seed: int = 0, **options: Any) -> T:
    """Run *work* in a :class:`Simulation` made with *options*, and return what it returns."""
    try:
        with (
            tempfile.TemporaryDirectory(prefix="tightship-") as folder,
            asyncio.Runner(loop_factory=VirtualLoop) as runner,
        ):
            return runner.run(_run(work, seed, Path(folder), options))
    finally:
        # It keeps the last thousand applications, with all that they serve: thousands of simulations fill the memory.
        web_app._cached_build_middleware.cache_clear()


async def _run(
    work: Callable[[Simulation], Coroutine[Any, Any, T]], seed: int, folder: Path, options: Mapping[str, Any]
) -> T:
    async with Simulation(seed, folder, **options) as simulation:
        return await work(simulation)


class VirtualTime(logging.Filter):
    """Stamps log records with a simulation's time instead of the real one."""

    def __init__(self, simulation: Simulation) -> None:
        super().__init__()
        self._simulation = simulation

    def filter(self, record: logging.LogRecord) -> bool:
        """Set the record's time."""
        record.created = self._simulation.wall()
        record.msecs = record.created % 1 * 1000
        return True


__all__ = ["API_PORT", "BEGIN", "NAMESPACE", "Replica", "Simulation", "VirtualTime", "simulate"]
