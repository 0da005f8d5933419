"""What looks at a cluster again and again beside a test."""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class Looker(ABC):
    """Looks every *pause* seconds as long as its context lasts. What a look raises is raised at the end."""

    def __init__(self, pause: float) -> None:
        self.looks = 0
        self._between = pause
        self._looking: asyncio.Task[None] | None = None

    @abstractmethod
    async def _look(self) -> None:
        """Look, and do what there is to do."""

    async def __aenter__(self) -> Self:
        self._looking = asyncio.create_task(self._run(), name=type(self).__name__.lower())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._looking is None:
            return
        self._looking.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._looking

    async def _run(self) -> None:
        while True:
            await self._look()
            self.looks += 1
            await asyncio.sleep(self._between)
