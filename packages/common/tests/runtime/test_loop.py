"""A loop that goes on, whatever its passes run into."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import Any

import pytest

from tightship.objects.api_errors import KubeError
from tightship.process.loop import Heartbeat, a_few_at_a_time, any_of, every, in_thread, jittered, threads_at_work
from tightship.process.metrics import RunMetrics, new_registry
from tightship_testkit.simulated import until

HOURS = 10_000.0


class Passes:
    """Work that does, in turn, what it is told, and sets *stop* at the end."""

    def __init__(self, *outcomes: Exception | Callable[[], Awaitable[None]] | None) -> None:
        self.stop = asyncio.Event()
        self.done = 0
        self._outcomes = outcomes

    async def __call__(self) -> None:
        outcome = self._outcomes[self.done]
        self.done += 1
        if self.done == len(self._outcomes):
            self.stop.set()
        if isinstance(outcome, Exception):
            raise outcome
        if outcome is not None:
            await outcome()

    async def run(self, interval: float | Callable[[], float] = 0.001, **options: Any) -> None:
        given = {"wake": asyncio.Event(), "heartbeat": Heartbeat("loop", 60), **options}
        given.setdefault("metrics", RunMetrics(new_registry("x")))
        async with asyncio.timeout(60):
            await every(interval, self, stop=self.stop, **given)


@pytest.mark.parametrize(("drawn", "expected"), [(0.0, 75), (0.5, 100), (1.0, 125)])
def test_jitter_spreads_to_both_sides(drawn: float, expected: float) -> None:
    assert jittered(100, lambda: drawn) == expected


async def test_the_first_pass_is_at_once_and_others_follow() -> None:
    passes = Passes(None, None, None)
    await passes.run()
    assert passes.done == 3


async def test_an_interval_may_change_between_passes() -> None:
    intervals = iter([0.0, 0.0, 0.0])
    passes = Passes(None, None, None)
    await passes.run(lambda: next(intervals))
    assert passes.done == 3
    assert next(intervals, None) is None


async def test_a_loop_told_to_stop_before_it_began_does_nothing() -> None:
    passes = Passes(None)
    passes.stop.set()
    await passes.run()
    assert passes.done == 0


async def test_stop_ends_a_wait_of_hours() -> None:
    passes = Passes(None, None)
    running = asyncio.create_task(passes.run(HOURS))
    await until(lambda: passes.done == 1)
    passes.stop.set()
    await running


async def test_waking_ends_a_wait_of_hours_once() -> None:
    wake = asyncio.Event()
    passes = Passes(None, None)
    running = asyncio.create_task(passes.run(HOURS, wake=wake))
    await until(lambda: passes.done == 1)
    wake.set()
    await running
    assert passes.done == 2
    assert not wake.is_set()


async def test_what_wakes_during_a_pass_brings_about_another() -> None:
    wake = asyncio.Event()

    async def set_wake() -> None:
        wake.set()

    passes = Passes(set_wake, None)
    await passes.run(HOURS, wake=wake)
    assert passes.done == 2


async def test_waking_all_the_time_does_not_make_a_busy_loop() -> None:
    wake, beats = asyncio.Event(), list[float]()
    loop = asyncio.get_running_loop()

    async def note() -> None:
        beats.append(loop.time())
        wake.set()

    await Passes(note, note, note).run(HOURS, wake=wake, least=0.05)
    assert all(later - sooner >= 0.049 for sooner, later in pairwise(beats))


async def test_failures_are_logged_counted_and_outlived(caplog: pytest.LogCaptureFixture) -> None:
    metrics = RunMetrics(new_registry("x"))
    with caplog.at_level(logging.INFO):
        await Passes(KubeError("a 503"), KubeError("a 503"), ValueError("a defect"), None).run(
            metrics=metrics, name="planning"
        )
    reported = [(each.levelname, each.message) for each in caplog.records if each.name == "tightship.process.loop"]
    assert reported == [
        ("WARNING", "planning: failed, trying again: a 503"),
        ("ERROR", "planning: failed, trying again: a defect"),
        ("INFO", "planning: succeeded again"),
    ]
    assert caplog.records[-2].exc_info is not None
    [samples] = [each.samples for each in metrics.loop_failures.collect()]
    assert samples[0].value == 3


async def test_a_failure_is_tried_again_sooner_than_after_a_long_interval() -> None:
    beats = Heartbeat("loop", 1, clock=lambda: 0.0)
    passes = Passes(ValueError("x"), None)
    running = asyncio.create_task(passes.run(HOURS, heartbeat=beats, spread=lambda: 0.0))
    await until(lambda: passes.done == 1 and beats.late < 0)
    assert beats.late == -5
    passes.stop.set()
    await running


async def test_an_error_that_is_fatal_ends_the_loop() -> None:
    with pytest.raises(LookupError, match="gone"):
        await Passes(LookupError("gone"), None).run(fatal=(LookupError,))


async def test_cancelling_ends_the_loop() -> None:
    passes = Passes(None, None)
    running = asyncio.create_task(passes.run(HOURS))
    await until(lambda: passes.done == 1)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_a_heart_beats_through_a_long_wait_and_stops_in_a_long_pass() -> None:
    clock = [0.0]
    beats = Heartbeat("loop", 60, clock=lambda: clock[0])
    hung = asyncio.Event()

    async def hang() -> None:
        hung.set()
        await asyncio.Event().wait()

    wake = asyncio.Event()
    passes = Passes(None, hang, None)
    running = asyncio.create_task(passes.run(HOURS, heartbeat=beats, wake=wake, spread=lambda: 0.5))
    await until(lambda: beats.late < 0)
    clock[0] = HOURS + 60
    assert beats.alive
    clock[0] += 1
    assert not beats.alive
    wake.set()
    await hung.wait()
    assert beats.alive
    clock[0] += 61
    assert not beats.alive
    assert str(beats) == "loop: last beat 61 s ago, 61 s late, may be 60 s late"
    running.cancel()


async def test_any_of_several_events_is_enough() -> None:
    first, second = asyncio.Event(), asyncio.Event()
    assert not await any_of(first, second, timeout=0)
    second.set()
    assert await any_of(first, second)


async def test_work_in_a_thread_leaves_the_loop_free_and_is_named_meanwhile() -> None:
    go = threading.Event()

    def plan(nodes: int, *, limit: float) -> tuple[int, float]:
        assert go.wait(60)
        return nodes, limit

    running = asyncio.create_task(in_thread(plan, 3, limit=0.5))
    await until(lambda: len(threads_at_work()) == 1)
    assert threads_at_work()[0].endswith("plan")
    go.set()
    assert await running == (3, 0.5)
    assert threads_at_work() == []


async def test_an_error_in_a_thread_is_the_callers() -> None:
    def fail() -> None:
        raise ValueError("from the thread")

    with pytest.raises(ValueError, match="from the thread"):
        await in_thread(fail)
    assert threads_at_work() == []


async def test_no_more_than_a_few_are_done_at_a_time_in_their_order() -> None:
    flying = most = 0
    begun: list[int] = []

    async def work(item: int) -> None:
        nonlocal flying, most
        begun.append(item)
        flying += 1
        most = max(most, flying)
        await asyncio.sleep(0)
        flying -= 1

    await a_few_at_a_time(work, range(20), 3)
    assert begun == list(range(20))
    assert most == 3


async def test_one_that_fails_keeps_none_from_its_turn() -> None:
    done: list[int] = []

    async def work(item: int) -> None:
        done.append(item)
        if item == 1:
            raise KubeError("away")

    with pytest.raises(KubeError, match="away"):
        await a_few_at_a_time(work, range(6), 2)
    assert sorted(done) == list(range(6))


async def test_cancelled_nothing_more_is_begun() -> None:
    begun: list[int] = []

    async def work(item: int) -> None:
        begun.append(item)
        await asyncio.Event().wait()

    task = asyncio.create_task(a_few_at_a_time(work, range(9), 2))
    await until(lambda: len(begun) == 2)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert begun == [0, 1]


async def test_naming_a_call_prints_nothing_of_what_it_is_about() -> None:
    class Cluster:
        def __repr__(self) -> str:
            raise AssertionError("a whole cluster is printed")

        def plan(self) -> list[str]:
            return threads_at_work()

        def __call__(self) -> list[str]:
            return threads_at_work()

    cluster = Cluster()
    assert [name.rpartition(".")[2] for name in await in_thread(cluster.plan)] == ["plan"]
    assert [name.rpartition(".")[2] for name in await in_thread(cluster)] == ["Cluster"]
