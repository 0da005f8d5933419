"""A leader that is killed at any request, before and after the API server has carried it out: no bound of the user's
is ever lost, and the next leader goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tightship_testkit.faults import Call, Fault, Reset
from tightship_testkit.floors import SHOP, STATE
from tightship_testkit.replica import SCALER
from tightship_testkit.stall import Stall, stall

from .world import ASKS

pytestmark = [pytest.mark.slow, pytest.mark.virtual_time]

STEPS = [(72, (8, 20)), (41, (5, 20)), (250, (25, 26)), (250, (3, 20))]
"""What the query answers, and the bounds that follow; the last step is the opt-out."""

OFTEN = {SCALER.interval: "15"}

Point = Callable[[Call], bool]
"""Whether a call is the one at which the leader is killed."""


def is_change(call: Call) -> bool:
    """Whether a call changes bounds. A note of what a lowering waits for is a write too, and none of the steps."""
    return call.verb == "PATCH" and "horizontalpodautoscalers" in call.path and b'"replace"' in call.body


def is_ours(call: Call) -> bool:
    """Whether a call is made in a cycle, or tells of one: the Lease is asked for again and again meanwhile."""
    return not call.is_watch and "/leases/" not in call.path


async def story(on: Stall, point: Point, done: bool = False) -> int:
    """Make all steps, with a leader that is killed at *point* and another one that follows; return how many met it."""
    await on.stock("web", 3, 20, **ASKS)
    replicas = [on.start(**OFTEN)]
    met = 0

    async def kill() -> None:
        replicas[0].kill()
        replicas.append(on.start(**OFTEN))

    async def plan(call: Call) -> Fault | None:
        nonlocal met
        if len(replicas) > 1 or not point(call):
            return None
        met += 1
        return Reset(done=True, after=kill) if done else Reset(before=kill)

    on.proxy.plan = plan
    for step, (rate, bounds) in enumerate(STEPS, 1):
        on.prometheus.set("rate", rate)
        if step == len(STEPS):
            await on.annotate("web", enabled="false")
        await on.until_bounds("web", *bounds)
        if step < len(STEPS):
            state = await on.state("web")
            assert (state["originalMin"], state["originalMax"]) == (3, 20)
    await on.sleep(60)
    assert await on.bounds("web") == STEPS[-1][1]
    assert STATE not in (await on.hpa("web"))["metadata"]["annotations"]
    assert not [each for each in await on.events(SHOP) if each["reason"] in ("ChangedByOthers", "StateUnreadable")]
    return met


class At:
    """The call of one sort with this number."""

    def __init__(self, sort: Point, number: int) -> None:
        self.seen = 0
        self._sort = sort
        self._number = number

    def __call__(self, call: Call) -> bool:
        """Count the call, and tell whether it is the one."""
        self.seen += self._sort(call)
        return self._sort(call) and self.seen == self._number


@pytest.mark.parametrize("number", range(1, len(STEPS) + 1))
@pytest.mark.parametrize("done", [False, True], ids=["before", "after"])
async def test_killed_at_any_write_the_original_is_never_lost(on: Stall, number: int, done: bool) -> None:
    assert await story(on, At(is_change, number), done) == 1


@pytest.mark.parametrize("part", range(4))
@pytest.mark.parametrize("done", [False, True], ids=["before", "after"])
async def test_killed_at_any_request_the_original_is_never_lost(tmp_path: Path, part: int, done: bool) -> None:
    # A read leaves nothing behind: nobody can tell whether it was carried out.
    def sort(call: Call) -> bool:
        return is_ours(call) and not (done and call.verb == "GET")

    async with stall(tmp_path) as on:
        undisturbed = At(sort, 0)
        assert await story(on, undisturbed) == 0
    assert undisturbed.seen > len(STEPS)
    for number in range(part + 1, undisturbed.seen + 1, 4):
        async with stall(tmp_path) as on:
            assert await story(on, At(sort, number), done) == 1, number
