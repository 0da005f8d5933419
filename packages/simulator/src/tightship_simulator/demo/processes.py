"""The three controllers as processes: their real console scripts, with settings whose pauses are short."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path

from tightship_simulator.demo import tether
from tightship_simulator.demo.town import SYSTEM
from tightship_simulator.life.changes import Json
from tightship_simulator.ports import free_ports

COMPACTOR, REFINER, SCALER = "node-compactor", "node-refiner", "hpa-scaler"
CONTROLLERS = (COMPACTOR, REFINER, SCALER)
ENDS_WITHIN = 30.0
"""Seconds that a controller gets to end in order."""

_INTERVALS = {
    COMPACTOR: "SLEEP_DURATION_BETWEEN_ITERATIONS_SECONDS",
    REFINER: "CALCULATION_LOOP_FREQUENCY_SECONDS",
    SCALER: "SLEEP_DURATION_BETWEEN_ITERATIONS_SECONDS",
}

_DRAINS: Mapping[str, float] = {
    "settleTime": 0.5,
    "pendingTimeout": 8,
    "podEvictionTimeout": 20,
    "nodeDrainTimeout": 30,
    "handOverTimeout": 60,
    "backoff": 4,
    "backoffLimit": 30,
    "pendingAfterDrainTimeout": 10,
    "pendingAfterDrainWindow": 30,
}
"""Seconds, by node-compactor's keys."""

_ROOM = 2
"""Nodes of the cluster in drain at once."""


def config_maps(*, on: bool = True) -> list[Json]:
    """Return the ConfigMap of each controller; with *on* false no drain is begun."""
    pool = {"enabled": on, "scaleDownCPURequestRatioLimit": 0.55, "scaleDownRequiredUnderutilizedNodeCount": 1}
    compactor = {
        "nodePools": {"general": {**pool, "minimumNodeCount": 5}, "compute": {**pool, "minimumNodeCount": 3}},
        "maximumNodesInDrain": _ROOM,
        "neededMarkedTimeForRemoval": 2,
        "minimumNodeAge": 20,
        **_DRAINS,
        "coolDownAfterNodeAdded": 15,
        "coolDownAfterNodeDeleted": 0,
        "coolDownAfterFailure": 3,
        "clusterCoolDownAfterFailure": 0,
    }
    refiner = {
        "drainer_enabled": "true" if on else "false",
        "excess_nodes_threshold": "2",
        "minimum_nodes": "12",
        "maximum_nodes_in_drain": str(_ROOM),
        "time_gap": "0s",
        "time_since_last_addition": "15s",
        **{re.sub("[A-Z]", lambda hump: f"_{hump[0].lower()}", key): f"{value}s" for key, value in _DRAINS.items()},
    }
    scaler = {"coldSourceGuard": False, "dataAgeQuery": "", "circuitBreakerPause": "2s"}
    return [
        _config_map(COMPACTOR, {"config.yaml": json.dumps(compactor)}),
        _config_map(REFINER, refiner),
        _config_map(SCALER, {"config.yaml": json.dumps(scaler)}),
    ]


def _config_map(name: str, data: Mapping[str, str]) -> Json:
    meta = {"name": name, "namespace": SYSTEM}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": dict(data)}


class DiedError(Exception):
    """A controller ended by itself, or never began to work; the text has its name and the end of its log."""


class Controller:
    """A controller's process; its log is a file in *folder*.

    It does not outlive this process, however that ends: see :mod:`tightship_simulator.demo.tether`.
    """

    def __init__(self, name: str, kubeconfig: Path, folder: Path, prometheus: str) -> None:
        self.name = name
        [self.port] = free_ports(1)
        self.log = folder / f"{name}.log"
        self._process: asyncio.subprocess.Process | None = None
        self._tether: int | None = None
        self._environment = {
            **{key: value for key, value in os.environ.items() if key in ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR")},
            "KUBECONFIG": str(kubeconfig),
            "NAMESPACE": SYSTEM,
            "POD_NAME": name,
            "CONFIG_MAP_NAME": name,
            "LEASE_NAME": name,
            "CLAIMS_LEASE_NAME": "tightship-claims",
            _INTERVALS[name]: "1",
            "LEASE_DURATION_SECONDS": "60",
            "LEASE_RENEW_DEADLINE_SECONDS": "40",
            "LEASE_RETRY_PERIOD_SECONDS": "0.5",
            "HTTP_HOST": "127.0.0.1",
            "HTTP_PORTS": str(self.port),
            "STOP_TIMEOUT_SECONDS": "8",
            "STOP_GRACE_SECONDS": "15",
        }
        if name == SCALER:
            self._environment["PROMETHEUS_SERVER_URL"] = prometheus

    async def start(self) -> None:
        """Start it. Raises :class:`DiedError` where its console script is not there."""
        script = Path(sysconfig.get_path("scripts")) / self.name
        if not os.access(script, os.X_OK):
            raise DiedError(f"{self.name} can't be started: {script} is no program; make install installs it")
        end, self._tether = os.pipe()
        try:
            with self.log.open("wb") as log:
                # A session of its own: Ctrl-C is for the demo, which then ends it in order.
                self._process = await asyncio.create_subprocess_exec(
                    sys.executable, "-I", tether.__file__, script, "run", stdin=end, stdout=log, stderr=log,
                    env=self._environment, start_new_session=True,
                )  # fmt: skip
        finally:
            os.close(end)

    @property
    def pid(self) -> int:
        """Its process id, 0 before it was started."""
        return 0 if self._process is None else self._process.pid

    async def watch(self) -> None:
        """Wait for its end, and raise :class:`DiedError`: nobody told it to."""
        assert self._process is not None
        code = await self._process.wait()
        raise DiedError(f"{self.name} ended by itself with {code}; the end of its log:\n{self.tail()}")

    def late(self, seconds: float) -> DiedError:
        """Return what to raise when it did not get ready within *seconds*."""
        return DiedError(f"{self.name} is not ready after {seconds:g} s; the end of its log:\n{self.tail()}")

    def tail(self, lines: int = 15) -> str:
        """Return the end of its log."""
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return "\n".join(text.splitlines()[-lines:]) or "(empty)"

    async def stop(self) -> None:
        """End it in order, at the latest after :data:`ENDS_WITHIN` seconds otherwise."""
        try:
            await self._end()
        finally:
            if self._tether is not None:
                os.close(self._tether)
                self._tether = None

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


__all__ = ["COMPACTOR", "CONTROLLERS", "REFINER", "SCALER", "Controller", "DiedError", "config_maps"]
