"""Processes that can be stopped and killed between any two steps."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from tightship.kube.host import Host, monotonic
from tightship_simulator.virtual.loop import VirtualLoop
from tightship_simulator.virtual.process import PROCESS, Process

Run = Callable[[Callable[[Process], Coroutine[Any, Any, Any]]], Any]


@pytest.fixture
def run() -> Iterator[Run]:
    """Run a test that is given a process, which is buried at its end."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:

        async def within(work: Callable[[Process], Coroutine[Any, Any, Any]]) -> Any:
            loop = asyncio.get_running_loop()
            assert isinstance(loop, VirtualLoop)
            process = Process(loop, "one", Host())
            found = await work(process)
            await process.bury()
            assert asyncio.all_tasks() == {asyncio.current_task()}
            return found

        yield lambda work: runner.run(within(work))


async def _count(reported: list[float]) -> None:
    try:
        while True:
            await asyncio.sleep(1.0)
            reported.append(monotonic())
    finally:
        reported.append(-1.0)


def test_a_frozen_process_stands_still_while_time_goes_on_and_what_was_due_runs_in_its_order(run: Run) -> None:
    async def work(process: Process) -> None:
        reported, due, loop = list[float](), list[int](), asyncio.get_running_loop()

        async def begin() -> None:
            for number in (30, 10, 20):
                loop.call_later(number, due.append, number)

        process.run(_count(reported))
        await process.run(begin())
        await asyncio.sleep(2.5)
        process.freeze()
        await asyncio.sleep(100)
        assert (reported, due) == ([1001.0, 1002.0], [])
        process.thaw()
        await asyncio.sleep(1.1)
        # It sees how long it was away: its monotonic clock went on.
        assert (reported, due) == ([1001.0, 1002.0, 1102.5, 1103.5], [10, 20, 30])

    run(work)


def test_a_killed_process_hears_nothing_of_it_until_its_burial(run: Run) -> None:
    reported: list[float] = []

    async def work(process: Process) -> None:
        process.run(_count(reported))
        await asyncio.sleep(2.5)
        process.kill()
        await asyncio.sleep(100)
        process.thaw()
        assert reported == [1001.0, 1002.0]
        assert process.killed.is_set()
        assert not process.alive

    run(work)
    assert reported == [1001.0, 1002.0, -1.0]


@pytest.mark.parametrize("number", [1, 2, 7])
@pytest.mark.parametrize("frozen", [False, True])
def test_a_process_can_be_killed_or_frozen_before_any_of_its_steps(run: Run, number: int, frozen: bool) -> None:
    async def work(process: Process) -> None:
        reported: list[int] = []

        async def steps() -> None:
            for each in range(1, 8):
                reported.append(each)
                await asyncio.sleep(0)

        process.stop_at = number
        if frozen:
            process.at_step = process.freeze
        process.run(steps())
        await asyncio.sleep(1)
        assert reported == list(range(1, number))
        assert process.steps == number
        process.thaw()
        await asyncio.sleep(1)
        assert len(reported) == (7 if frozen else number - 1)

    run(work)


def test_all_that_a_process_begins_belongs_to_it(run: Run) -> None:
    async def work(process: Process) -> None:
        seen: list[Process | None] = []

        async def inner() -> None:
            seen.append(PROCESS.get())
            await asyncio.to_thread(lambda: seen.append(PROCESS.get()))

        async def outer() -> None:
            async with asyncio.TaskGroup() as group:
                group.create_task(inner())
            asyncio.get_running_loop().call_soon(lambda: seen.append(PROCESS.get()))

        await process.run(outer())
        await asyncio.sleep(0)
        assert seen == [process] * 3
        assert PROCESS.get() is None

    run(work)


def test_a_burial_reaches_nothing_any_more(run: Run) -> None:
    reported: list[str] = []

    async def work(process: Process) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        loop.network.listen(asyncio.Protocol, 80)

        async def farewell() -> None:
            await loop.create_connection(asyncio.Protocol, "x", 80)
            try:
                await asyncio.Event().wait()
            finally:
                with pytest.raises(ConnectionRefusedError):
                    await loop.create_connection(asyncio.Protocol, "x", 80)
                reported.append("refused")

        process.run(farewell())
        await asyncio.sleep(1)

    run(work)
    assert reported == ["refused"]


def test_a_burial_of_what_will_not_end_says_what_that_is(run: Run) -> None:
    over: list[bool] = []

    async def work(process: Process) -> None:
        async def stubborn() -> None:
            while not over:
                try:
                    await asyncio.sleep(10)
                except asyncio.CancelledError:
                    continue

        task = process.run(stubborn())
        await asyncio.sleep(1)
        with pytest.raises(RuntimeError, match=r"one: these tasks don't end, .*: one"):
            await process.bury()
        over.append(True)
        await task

    run(work)
