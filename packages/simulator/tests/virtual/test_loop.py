"""An event loop whose clock only counts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from tightship_simulator.virtual import loop as virtual_loop
from tightship_simulator.virtual.loop import StuckError, VirtualLoop

Run = Callable[[Coroutine[Any, Any, Any]], Any]


@pytest.fixture
def run() -> Iterator[Run]:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        yield runner.run


def test_timers_run_in_the_order_of_their_times_and_cancelled_ones_are_forgotten(run: Run) -> None:
    async def work() -> tuple[list[int], float, int]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        began, ran = loop.time(), list[int]()
        timers = {number: loop.call_later(100 + number, ran.append, number) for number in range(4999, -1, -1)}
        for number, each in timers.items():
            if number % 10:
                each.cancel()
        loop.call_later(10**9, ran.append, -1).cancel()
        await asyncio.sleep(365 * 86_400)
        return ran, loop.time() - began, len(loop._scheduled) + loop._timer_cancelled_count

    assert run(work()) == ([*range(0, 5000, 10)], 365 * 86_400, 0)


@pytest.mark.parametrize(("turns", "reported"), [(False, "nothing is left to happen"), (True, r"steps at 1000\.000 s")])
def test_who_waits_for_what_never_comes_or_turns_without_end_is_told(
    monkeypatch: pytest.MonkeyPatch, turns: bool, reported: str
) -> None:
    monkeypatch.setattr(virtual_loop, "MOST_STEPS", 1000)

    async def work() -> None:
        while turns:  # noqa: ASYNC110 - that is the point
            await asyncio.sleep(0)
        await asyncio.Event().wait()

    with asyncio.Runner(loop_factory=VirtualLoop) as runner, pytest.raises(StuckError, match=reported):
        runner.run(work())


def test_what_is_for_a_thread_runs_at_once_and_gives_its_result_or_its_error(run: Run) -> None:
    async def work() -> list[object]:
        reported: list[object] = []
        future = asyncio.get_running_loop().run_in_executor(None, reported.append, "ran")
        reported.append("after the call")
        await future
        with pytest.raises(ZeroDivisionError):
            await asyncio.to_thread(lambda: 1 / 0)
        with pytest.raises(RuntimeError, match="StopIteration"):
            await asyncio.to_thread(next, iter(()))
        return [*reported, await asyncio.to_thread(lambda value: value * 2, 21)]

    assert run(work()) == ["ran", "after the call", 42]
