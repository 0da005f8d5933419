"""The night on the real clock: the cluster on loopback, and the controllers' console scripts as processes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import sysconfig
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tightship_simulator.api.store import Store
from tightship_simulator.demo import die_with_parent
from tightship_simulator.demo.backend import ENDS_WITHIN, Controller, DiedError, Running, Setup
from tightship_simulator.demo.settings import CONTROLLERS, environment
from tightship_simulator.life.living import Living
from tightship_simulator.life.prometheus import serving
from tightship_simulator.ports import free_ports
from tightship_simulator.serve import EmbeddedCluster

_KEPT = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR")
"""What a controller has of this process's environment."""


@asynccontextmanager
async def processes(setup: Setup) -> AsyncIterator[Running]:
    """Serve the cluster and Prometheus on loopback. See :data:`~tightship_simulator.demo.backend.Backend`."""
    store = Store(seed=setup.seed)
    living = Living(store, setup.groups, setup.measure, speeds=setup.speeds, speed=setup.speed, seed=setup.seed)
    with tempfile.TemporaryDirectory(prefix="tightship-demo-") as name:
        folder = Path(name)
        async with EmbeddedCluster(store) as cluster, serving(setup.prometheus) as prometheus:
            kubeconfig = cluster.kubeconfig(folder / "kubeconfig")
            controllers = [ControllerProcess(each, kubeconfig, folder, prometheus.url) for each in CONTROLLERS]
            yield Running(store, kubeconfig, controllers, (living.run(),))


class ControllerProcess(Controller):
    """A controller's process; its log is a file in *folder*.

    It does not outlive this process, however that ends: see :mod:`tightship_simulator.demo.die_with_parent`.
    """

    def __init__(self, name: str, kubeconfig: Path, folder: Path, prometheus: str) -> None:
        [port] = free_ports(1)
        super().__init__(name, f"http://127.0.0.1:{port}")
        self.log = folder / f"{name}.log"
        self._process: asyncio.subprocess.Process | None = None
        self._pipe: int | None = None
        self._environment = {
            **{key: value for key, value in os.environ.items() if key in _KEPT},
            **environment(name),
            "KUBECONFIG": str(kubeconfig),
            "PROMETHEUS_SERVER_URL": prometheus,
            "HTTP_HOST": "127.0.0.1",
            "HTTP_PORTS": str(port),
        }

    async def start(self) -> None:
        """Start it. Raises :class:`DiedError` where its console script is not there."""
        script = Path(sysconfig.get_path("scripts")) / self.name
        if not os.access(script, os.X_OK):
            raise DiedError(f"{self.name} can't be started: {script} is no program; make install installs it")
        end, self._pipe = os.pipe()
        try:
            with self.log.open("wb") as log:
                # A session of its own: Ctrl-C is for the demo, which then ends it in order.
                self._process = await asyncio.create_subprocess_exec(
                    sys.executable, "-I", die_with_parent.__file__, script, "run", stdin=end, stdout=log, stderr=log,
                    env=self._environment, start_new_session=True,
                )  # fmt: skip
        finally:
            os.close(end)

    @property
    def pid(self) -> int:
        """Its process id, 0 before it was started."""
        return 0 if self._process is None else self._process.pid

    async def ended(self) -> str:
        """Wait for its end, and return its exit code."""
        assert self._process is not None
        return str(await self._process.wait())

    def tail(self, lines: int = 15) -> str:
        """Return the end of its log."""
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return "\n".join(text.splitlines()[-lines:]) or "(empty)"

    async def stop(self) -> None:
        """End it in order, at the latest after :data:`ENDS_WITHIN` seconds otherwise."""
        try:
            await self._end()
        finally:
            if self._pipe is not None:
                os.close(self._pipe)
                self._pipe = None

    async def _end(self) -> None:
        process = self._process
        if process is None or process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(process.wait(), ENDS_WITHIN)
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()


__all__ = ["ControllerProcess", "processes"]
