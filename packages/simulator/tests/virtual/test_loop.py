"""An event loop whose clock only counts."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from tightship_simulator.virtual import loop as virtual_loop
from tightship_simulator.virtual.loop import StuckError, VirtualLoop


@pytest.fixture
def run() -> Iterator[Callable[[Coroutine[Any, Any, Any]], Any]]:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        yield runner.run


Run = Callable[[Coroutine[Any, Any, Any]], Any]


def test_a_sleep_of_a_year_takes_a_year_of_the_loops_time_and_no_more(run: Run) -> None:
    async def work() -> float:
        began = asyncio.get_running_loop().time()
        await asyncio.sleep(365 * 86_400)
        return asyncio.get_running_loop().time() - began

    assert run(work()) == 365 * 86_400


def test_timers_run_in_the_order_of_their_times(run: Run) -> None:
    async def work() -> list[tuple[float, str]]:
        loop = asyncio.get_running_loop()
        began, told = loop.time(), list[tuple[float, str]]()
        for delay in (3.0, 1.0, 2.5, 0.0, 2.0):
            loop.call_later(delay, lambda: told.append((loop.time() - began, "timer")))
        loop.call_soon(lambda: told.append((loop.time() - began, "soon")))
        await asyncio.sleep(2.2)
        told.append((loop.time() - began, "slept"))
        await asyncio.sleep(5)
        return told

    told = run(work())
    assert [round(when, 6) for when, _ in told] == [0.0, 0.0, 1.0, 2.0, 2.2, 2.5, 3.0]
    assert told[0][1] == "soon"
    assert told[4][1] == "slept"


def test_a_timer_that_is_cancelled_neither_runs_nor_moves_the_clock(run: Run) -> None:
    async def work() -> tuple[float, list[str]]:
        loop = asyncio.get_running_loop()
        told: list[str] = []
        began = loop.time()
        loop.call_later(1000, told.append, "cancelled").cancel()
        loop.call_later(1, told.append, "kept")
        await asyncio.sleep(2)
        return loop.time() - began, told

    assert run(work()) == (2.0, ["kept"])


def test_thousands_of_cancelled_timers_are_thrown_away_and_the_others_kept(run: Run) -> None:
    async def work() -> tuple[int, int]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        ran: list[int] = []
        timers = [loop.call_later(100 + number, ran.append, number) for number in range(5000)]
        for number, each in enumerate(timers):
            if number % 10:
                each.cancel()
        await asyncio.sleep(0)
        left = len(loop._scheduled)
        await asyncio.sleep(6000)
        assert ran == list(range(0, 5000, 10))
        return left, loop._timer_cancelled_count

    left, counted = run(work())
    assert left < 1000
    assert counted == 0


def test_a_timeout_ends_what_waits_for_ever(run: Run) -> None:
    async def work() -> None:
        async with asyncio.timeout(60):
            await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        run(work())


def test_who_waits_for_what_never_comes_is_told() -> None:
    async def work() -> None:
        await asyncio.Event().wait()

    with (
        asyncio.Runner(loop_factory=VirtualLoop) as runner,
        pytest.raises(StuckError, match="nothing is left to happen"),
    ):
        runner.run(work())


def test_who_turns_without_end_at_one_moment_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(virtual_loop, "MOST_STEPS", 1000)

    async def work() -> None:
        while True:  # noqa: ASYNC110 - that is the point
            await asyncio.sleep(0)

    with asyncio.Runner(loop_factory=VirtualLoop) as runner, pytest.raises(StuckError, match=r"steps at 1000\.000 s"):
        runner.run(work())


def test_many_steps_are_no_livelock_while_the_clock_goes_on(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(virtual_loop, "MOST_STEPS", 1000)

    async def work() -> int:
        for _ in range(300):
            for _ in range(10):
                await asyncio.sleep(0)
            await asyncio.sleep(0.001)
        return 300

    assert run(work()) == 300


def test_what_is_for_a_thread_runs_at_once_and_gives_its_result_or_its_error(run: Run) -> None:
    async def work() -> list[object]:
        told: list[object] = []
        future = asyncio.get_running_loop().run_in_executor(None, told.append, "ran")
        told.append("after the call")
        await future
        told.append(await asyncio.to_thread(lambda value: value * 2, 21))
        for bad in (KeyError("lost"), StopIteration("no more")):
            with contextlib.suppress(KeyError, RuntimeError):
                await asyncio.to_thread(_raises, bad)
                told.append("not raised")
        return told

    assert run(work()) == ["ran", "after the call", 42]


def test_an_iterator_at_its_end_in_a_thread_is_a_runtime_error(run: Run) -> None:
    async def work() -> None:
        await asyncio.to_thread(next, iter(()))

    with pytest.raises(RuntimeError, match="StopIteration"):
        run(work())


def _raises(error: BaseException) -> None:
    raise error


def test_sets_of_tasks_are_walked_in_the_order_in_which_they_were_made(run: Run) -> None:
    async def work() -> list[str]:
        tasks = {asyncio.create_task(asyncio.sleep(1), name=str(number)) for number in range(50)}
        done, _ = await asyncio.wait(tasks)
        return [each.get_name() for each in done]

    assert run(work()) == [str(number) for number in range(50)]


def test_call_soon_threadsafe_is_call_soon(run: Run) -> None:
    async def work() -> list[int]:
        told: list[int] = []
        asyncio.get_running_loop().call_soon_threadsafe(told.append, 1)
        await asyncio.sleep(0)
        return told

    assert run(work()) == [1]
