"""A bucket of tokens: how many at once, how many in the long run."""

from __future__ import annotations

import asyncio

import pytest

from tightship.kube.pacing import TokenBucket


class Time:
    """Passes by being slept."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
        await asyncio.sleep(0)


@pytest.fixture
def time() -> Time:
    return Time()


async def test_a_burst_goes_at_once_and_the_rest_at_its_rate(time: Time) -> None:
    bucket = TokenBucket(10, 3, sleep=time.sleep, clock=time)
    taken = []
    for _ in range(6):
        await bucket.take()
        taken.append(round(time.now, 6))
    assert taken == [0, 0, 0, 0.1, 0.2, 0.3]


async def test_several_tasks_share_one_rate(time: Time) -> None:
    bucket = TokenBucket(10, 1, sleep=time.sleep, clock=time)
    await asyncio.gather(*(bucket.take() for _ in range(11)))
    assert time.now >= 1.0 - 1e-9


async def test_another_pace_holds_from_then_on(time: Time) -> None:
    bucket = TokenBucket(1, 5, sleep=time.sleep, clock=time)
    bucket.change(100, 1)
    await bucket.take()
    await bucket.take()
    assert time.now == pytest.approx(0.01)
