"""The night on a virtual clock: the cluster and the three controllers in this process, without sockets."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import tempfile
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from tightship_simulator.demo.backend import ENDS_WITHIN, Controller, Running, Setup
from tightship_simulator.demo.settings import environment
from tightship_simulator.virtual.process import PROCESS
from tightship_simulator.virtual.programs import PROGRAMS, Program
from tightship_simulator.virtual.simulation import Replica, Simulation

PORT = 8080
"""Of every controller: each is a machine of its own."""
_KEPT = 200
"""Lines of each controller's log."""


@asynccontextmanager
async def simulated(setup: Setup) -> AsyncIterator[Running]:
    """Simulate the cluster. See :data:`~tightship_simulator.demo.backend.Backend`.

    For a :class:`~tightship_simulator.virtual.loop.VirtualLoop` only.
    """
    with tempfile.TemporaryDirectory(prefix="tightship-demo-") as folder, _logs() as logs:
        simulation = Simulation(
            setup.seed,
            Path(folder),
            groups=setup.groups,
            measure=setup.measure,
            speeds=setup.speeds,
            speed=setup.speed,
            prometheus=setup.prometheus,
        )
        async with simulation:
            controllers = [ControllerReplica(simulation, each, logs[each.name]) for each in PROGRAMS]
            yield Running(simulation.store, simulation.kubeconfig, controllers)


class ControllerReplica(Controller):
    """A controller in a simulation; *log* is what it logs."""

    def __init__(self, simulation: Simulation, program: Program, log: Sequence[str]) -> None:
        super().__init__(program.name, f"http://{program.name}:{PORT}")
        self._simulation = simulation
        self._program = program
        self._log = log
        self._replica: Replica | None = None

    async def start(self) -> None:
        """Start it."""
        variables = {**environment(self.name), "HTTP_PORTS": str(PORT)}
        self._replica = self._simulation.start(self._program, name=self.name, skew=0.0, **variables)

    async def stop(self) -> None:
        """End it in order, at the latest after :data:`ENDS_WITHIN` seconds otherwise."""
        if self._replica is not None and not self._replica.ended:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._replica.stopped(), ENDS_WITHIN)
            self._replica.process.kill()

    async def ended(self) -> str:
        """Wait for its end, and return its error, else the exit code that its process would have."""
        assert self._replica is not None
        await self._replica.wait()
        return repr(self._replica.error) if self._replica.error is not None else str(int(self._replica.crashed))

    def tail(self, lines: int = 15) -> str:
        """Return the end of its log."""
        return "\n".join("\n".join(self._log).splitlines()[-lines:]) or "(empty)"


@contextmanager
def _logs() -> Iterator[Mapping[str, Sequence[str]]]:
    """Give what each controller logs, by its name; nothing of it goes to stderr."""
    kept: dict[str, deque[str]] = defaultdict(lambda: deque(maxlen=_KEPT))
    handler = _Kept(kept)
    handler.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        yield kept
    finally:
        root.removeHandler(handler)


class _Kept(logging.Handler):
    def __init__(self, kept: Mapping[str, deque[str]]) -> None:
        super().__init__()
        self._kept = kept

    def emit(self, record: logging.LogRecord) -> None:
        process = PROCESS.get()
        if process is not None:
            self._kept[process.name].append(self.format(record))


__all__ = ["ControllerReplica", "simulated"]
