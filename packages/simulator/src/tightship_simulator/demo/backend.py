"""What the night needs of whatever runs it: a cluster that lives, and three controllers to start and to stop.

There are two: :mod:`tightship_simulator.demo.processes` with real processes on the real clock, and
:mod:`tightship_simulator.demo.simulated` in this process, on a virtual one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct

from tightship_simulator.api.store import Store
from tightship_simulator.life.horizontal import Measure
from tightship_simulator.life.living import Speeds
from tightship_simulator.life.node_autoscaler import NodeGroup
from tightship_simulator.life.prometheus import Prometheus

ENDS_WITHIN = 30.0
"""Seconds that a controller gets to end in order."""


class DiedError(Exception):
    """A controller ended by itself, or never began to work; the text has its name and the end of its log."""


class Controller(ABC):
    """One of the three, which serves its pages at *url* once it was started."""

    def __init__(self, name: str, url: str) -> None:
        self.name = name
        self.url = url

    @abstractmethod
    async def start(self) -> None:
        """Start it. Raises :class:`DiedError` where that can't be done."""

    @abstractmethod
    async def stop(self) -> None:
        """End it in order, at the latest after :data:`ENDS_WITHIN` seconds otherwise."""

    @abstractmethod
    async def ended(self) -> str:
        """Wait for its end, and return with what it ended."""

    @abstractmethod
    def tail(self, lines: int = 15) -> str:
        """Return the end of its log."""

    async def watch(self) -> None:
        """Wait for its end, and raise :class:`DiedError`: nobody told it to."""
        how = await self.ended()
        raise DiedError(f"{self.name} ended by itself with {how}; the end of its log:\n{self.tail()}")

    def late(self, seconds: float) -> DiedError:
        """Return what to raise when it did not get ready within *seconds*."""
        return DiedError(f"{self.name} is not ready after {seconds:g} s; the end of its log:\n{self.tail()}")


class Setup(Struct, frozen=True):
    """What is to run: how fast, with which node pools, what HPAs measure, and what Prometheus answers."""

    seed: int
    speed: float
    speeds: Speeds
    groups: Sequence[NodeGroup]
    measure: Measure
    prometheus: Prometheus


class Running(Struct, frozen=True):
    """A cluster that lives, still empty, and its controllers, not yet started.

    *works* have to run for as long as it is used.
    """

    store: Store
    kubeconfig: Path
    controllers: Sequence[Controller]
    works: Sequence[Coroutine[None, None, None]] = ()


Backend: TypeAlias = Callable[[Setup], AbstractAsyncContextManager[Running]]
"""Gives what runs the night while the context lasts."""

__all__ = ["ENDS_WITHIN", "Backend", "Controller", "DiedError", "Running", "Setup"]
