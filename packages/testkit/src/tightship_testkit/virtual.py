"""Replicas of controllers in a simulation, for tests that are written for processes.

A test marked ``virtual_time`` runs on a loop whose clock is virtual (:mod:`tightship_testkit.plugin`): its waits cost
nothing, and what it sees is the same in every run. :class:`Machine` is then the host of its replicas: signals kill,
stop and end them as they do processes, and what each logs is kept apart.
"""

from __future__ import annotations

import asyncio
import importlib
import io
import logging
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Any, TypeVar
from unittest.mock import patch

import aiohttp

from tightship.kube.host import HOST, Host
from tightship.process.logging import LEVELS, formatter
from tightship_simulator.virtual.loop import VirtualLoop
from tightship_simulator.virtual.process import PROCESS
from tightship_simulator.virtual.programs import PROGRAMS
from tightship_simulator.virtual.simulation import Replica, Simulation, VirtualTime

T = TypeVar("T")

_FIRST_PORT = 9101
_BEGIN = 1_800_000_000.0


class _Log:
    """What a replica has logged."""

    def __init__(self) -> None:
        self.text = io.StringIO()

    def read_text(self, *, errors: str = "strict") -> str:
        """Return all of it."""
        del errors
        return self.text.getvalue()


class _Handler(logging.Handler):
    """Writes each record to the log of the replica that made it; those of the world around are left out."""

    def __init__(self, simulation: Simulation, logs: Mapping[str, _Log]) -> None:
        super().__init__()
        self.addFilter(VirtualTime(simulation))
        self.setFormatter(formatter("json"))
        self._logs = logs

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record."""
        process = PROCESS.get()
        if process is not None and process.name in self._logs:
            self._logs[process.name].text.write(self.format(record) + "\n")


class Machine:
    """The host of replicas in *simulation*; see :class:`tightship_testkit.replica.Host`. To be used in a ``with``."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self.logs: dict[str, _Log] = {}
        self._replicas: dict[str, Replica] = {}
        self._killed: set[str] = set()
        self._ports = _FIRST_PORT

    @contextmanager
    def logging(self) -> Iterator[None]:
        """Keep what replicas log, from the level that the first of them asks for."""
        root, handler = logging.getLogger(), _Handler(self.simulation, self.logs)
        level = root.level
        root.addHandler(handler)
        try:
            yield
        finally:
            root.removeHandler(handler)
            root.setLevel(level)

    def spawn(self, name: str, argv: Sequence[str], *, env: Mapping[str, str] | None = None) -> int:
        """Start the controller whose module *argv* names, ``python -m MODULE run``; return a number for it."""
        variables = dict(env or {})
        module = argv[2]
        program = next(each for each in PROGRAMS if each.name.replace("-", "_") == module)
        if kubeconfig := variables.pop("KUBECONFIG", ""):
            variables["TIGHTSHIP_KUBECONFIG"] = kubeconfig
        skew = float(variables.pop("TEST_CLOCK_SKEW_SECONDS", "0"))
        logging.getLogger().setLevel(LEVELS[variables.get("LOG_LEVEL", "info")])
        self.logs[name] = _Log()
        self._replicas[name] = self.simulation.start(program, name=name, skew=skew, **variables)
        return len(self._replicas)

    def signal(self, name: str, number: signal.Signals) -> None:
        """Do what a signal does: SIGTERM, SIGKILL, SIGSTOP and SIGCONT are known."""
        replica = self._replicas[name]
        match number:
            case signal.SIGTERM:
                replica.stop()
            case signal.SIGKILL:
                self.kill(name)
            case signal.SIGSTOP:
                replica.process.freeze()
            case signal.SIGCONT:
                replica.process.thaw()
            case _:
                raise ValueError(f"signal {number!r} does nothing here; known are SIGTERM, SIGKILL, SIGSTOP, SIGCONT")

    def kill(self, name: str) -> None:
        """End a replica at once."""
        if not self._replicas[name].ended:
            self._killed.add(name)
            self._replicas[name].process.kill()

    @contextmanager
    def paused(self, *names: str) -> Iterator[None]:
        """Stop replicas for the body's time, then let them go on."""
        for name in names:
            self.signal(name, signal.SIGSTOP)
        try:
            yield
        finally:
            for name in names:
                self.signal(name, signal.SIGCONT)

    def replica(self, name: str) -> Replica:
        """Return a replica as the simulation knows it."""
        return self._replicas[name]

    def exits(self) -> Mapping[str, int]:
        """Return the exit codes of the replicas that have ended; negative: the signal."""
        return {name: self._code(name) for name, each in self._replicas.items() if each.ended}

    def _code(self, name: str) -> int:
        if name in self._killed:
            return -signal.SIGKILL
        return int(self._replicas[name].crashed)

    def command(self, module: str, *arguments: str, **variables: str) -> tuple[int, str, str]:
        """Run a command of a controller as an administrator; return its exit code, output and complaints."""
        main: Callable[[], None] = importlib.import_module(module).main
        environment = {"KUBECONFIG": str(self.simulation.kubeconfig), **variables}
        out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
        with (
            _logging_kept(),
            patch.dict(os.environ, environment),
            patch.object(sys, "argv", [module, *arguments]),
            redirect_stdout(out),
            redirect_stderr(err),
        ):
            try:
                main()
            except SystemExit as leaving:
                code = leaving.code if isinstance(leaving.code, int) else 1
        return code, _written(out), _written(err)

    def free_port(self) -> int:
        """Return a port for a replica that is started on it later."""
        self._ports += 1
        return self._ports

    async def fetch(self, name: str, port: int, path: str) -> tuple[int, str]:
        """Ask the replica *name* over HTTP: status and text; 0 when it does not answer."""
        try:
            async with self.simulation.session() as session, session.get(f"http://{name}:{port}{path}") as answer:
                return answer.status, await answer.text()
        except (aiohttp.ClientError, TimeoutError):
            return 0, ""


def run_virtually(work: Coroutine[Any, Any, T]) -> T:
    """Run *work* on a loop of its own whose clock is virtual: the same work has the same run, also in one test."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(work)


@contextmanager
def on_virtual_network() -> Iterator[None]:
    """Have clients connect in the running virtual loop, and the wall clock go with it: for what needs no cluster."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop), "mark the test with virtual_time"
    begin = _BEGIN - loop.time()
    connector, run = loop.network.connector, loop.run_nested
    host = Host(wall=lambda: begin + loop.time(), connector=connector, run=run, stopwatch=None)
    token = HOST.set(host)
    try:
        yield
    finally:
        HOST.reset(token)


@contextmanager
def _logging_kept() -> Iterator[None]:
    """Undo what a command does to logging: it has a process to itself where time is real."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)


def _written(stream: io.TextIOWrapper) -> str:
    stream.flush()
    buffer = stream.buffer
    assert isinstance(buffer, io.BytesIO)
    return buffer.getvalue().decode()


__all__ = ["Machine", "on_virtual_network", "run_virtually"]
