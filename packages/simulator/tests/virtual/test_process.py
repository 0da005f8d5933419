"""Processes that can be stopped and killed between any two steps."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from tightship.kube.host import Host, monotonic, wall
from tightship_simulator.virtual.loop import VirtualLoop
from tightship_simulator.virtual.process import PROCESS, Process

Made = Callable[..., Process]
Run = Callable[[Callable[[Made], Coroutine[Any, Any, Any]]], Any]


@pytest.fixture
def run() -> Iterator[Run]:
    """Run a test that is given what makes processes; they are buried at its end."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:

        async def within(work: Callable[[Made], Coroutine[Any, Any, Any]]) -> Any:
            loop = asyncio.get_running_loop()
            assert isinstance(loop, VirtualLoop)
            made: list[Process] = []

            def make(name: str = "one", host: Host = Host()) -> Process:
                made.append(Process(loop, name, host))
                return made[-1]

            found = await work(make)
            for each in made:
                await each.bury()
            left = [each for each in asyncio.all_tasks() if each is not asyncio.current_task()]
            assert not left
            return found

        yield lambda work: runner.run(within(work))
    gc.collect()  # what was destroyed while it was pending says so now


async def _count(told: list[float], every: float = 1.0) -> None:
    try:
        while True:
            await asyncio.sleep(every)
            told.append(monotonic())
    finally:
        told.append(-1.0)


def test_a_frozen_process_stands_still_while_time_goes_on_and_what_was_due_runs_when_it_thaws(run: Run) -> None:
    async def work(make: Made) -> None:
        process, told = make(), list[float]()
        process.run(_count(told))
        await asyncio.sleep(2.5)
        process.freeze()
        await asyncio.sleep(100)
        assert told == [1001.0, 1002.0]
        process.thaw()
        await asyncio.sleep(1.1)
        # It sees how long it was away: its monotonic clock went on.
        assert told == [1001.0, 1002.0, 1102.5, 1103.5]

    run(work)


def test_what_a_frozen_process_is_owed_runs_in_its_order(run: Run) -> None:
    async def work(make: Made) -> None:
        process, told, loop = make(), list[int](), asyncio.get_running_loop()

        async def begin() -> None:
            for number in (3, 1, 2):
                loop.call_later(number, told.append, number)

        await process.run(begin())
        process.freeze()
        await asyncio.sleep(10)
        assert not told
        process.thaw()
        await asyncio.sleep(0)
        assert told == [1, 2, 3]

    run(work)


def test_a_killed_process_hears_nothing_of_it(run: Run) -> None:
    async def work(make: Made) -> list[float]:
        process, told = make(), list[float]()
        process.run(_count(told))
        await asyncio.sleep(2.5)
        process.kill()
        assert process.killed.is_set()
        await asyncio.sleep(100)
        process.thaw()
        assert told == [1001.0, 1002.0]
        assert not process.alive
        return told

    assert run(work) == [1001.0, 1002.0, -1.0], "only its burial ends it"


@pytest.mark.parametrize("number", range(1, 8))
def test_a_process_can_be_killed_before_any_of_its_steps(run: Run, number: int) -> None:
    async def work(make: Made) -> None:
        process, told = make(), list[int]()

        async def steps() -> None:
            for each in range(1, 8):
                told.append(each)
                await asyncio.sleep(0)

        process.stop_at = number
        process.run(steps())
        await asyncio.sleep(1)
        assert told == list(range(1, number))
        assert process.steps == number
        assert not process.alive

    run(work)


def test_a_process_can_be_frozen_at_a_step_and_goes_on_with_that_step(run: Run) -> None:
    async def work(make: Made) -> None:
        process, told = make(), list[float]()
        process.stop_at, process.at_step = 3, process.freeze
        process.run(_count(told))
        await asyncio.sleep(60)
        assert process.steps == 3
        assert not told
        process.thaw()
        await asyncio.sleep(0)
        assert told == [1060.0]

    run(work)


def test_steps_of_others_don_t_count(run: Run) -> None:
    async def work(make: Made) -> None:
        one, other = make("one"), make("other")
        told: list[float] = []
        one.run(_count(told))
        other.run(_count(told, 0.01))
        await asyncio.sleep(3.5)
        # Its beginning, and of each second the timer and the task.
        assert one.steps == 7
        assert other.steps > 300

    run(work)


def test_all_that_a_process_begins_belongs_to_it(run: Run) -> None:
    async def work(make: Made) -> None:
        process, seen = make(), list[Process | None]()

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


def test_each_process_has_the_wall_clock_of_its_host(run: Run) -> None:
    async def work(make: Made) -> None:
        async def clocks() -> tuple[float, float]:
            await asyncio.sleep(10)
            return wall(), monotonic()

        right, ahead = make("a", Host(wall=monotonic)), make("b", Host(wall=lambda: monotonic() + 5))
        both = await asyncio.gather(right.run(clocks()), ahead.run(clocks()))
        assert both == [(1010.0, 1010.0), (1015.0, 1010.0)]

    run(work)


def test_a_burial_ends_tasks_whose_turn_had_come_when_they_were_killed(run: Run) -> None:
    async def work(make: Made) -> list[str]:
        process, told, loop = make(), list[str](), asyncio.get_running_loop()
        event = asyncio.Event()

        async def wait() -> None:
            try:
                await event.wait()
                told.append("went on")
                await asyncio.sleep(1)
                told.append("slept")
            finally:
                told.append("ended")

        task = process.run(wait())
        await asyncio.sleep(1)
        event.set()
        process.kill()
        await asyncio.sleep(1)
        assert not told
        assert not task.done()
        assert loop.time() == 1002.0
        return told

    assert run(work) == ["ended"]


def test_a_burial_reaches_nothing_any_more(run: Run) -> None:
    async def work(make: Made) -> list[str]:
        process, told, loop = make(), list[str](), asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        loop.network.listen(asyncio.Protocol, 80)

        async def farewell() -> None:
            await loop.create_connection(asyncio.Protocol, "x", 80)
            try:
                await asyncio.Event().wait()
            finally:
                try:
                    await loop.create_connection(asyncio.Protocol, "x", 80)
                except ConnectionRefusedError:
                    told.append("refused")

        process.run(farewell())
        await asyncio.sleep(1)
        return told

    assert run(work) == ["refused"]


def test_a_burial_of_what_will_not_end_says_what_that_is() -> None:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:

        async def stubborn() -> None:
            while not over:
                try:
                    await asyncio.sleep(10)
                except asyncio.CancelledError:
                    continue

        async def work() -> None:
            loop = asyncio.get_running_loop()
            assert isinstance(loop, VirtualLoop)
            process = Process(loop, "mule", Host())
            task = process.run(stubborn())
            await asyncio.sleep(1)
            with pytest.raises(RuntimeError, match=r"mule: these tasks don't end, .*: mule"):
                await process.bury()
            over.append(True)
            await task

        over: list[bool] = []
        runner.run(work())
