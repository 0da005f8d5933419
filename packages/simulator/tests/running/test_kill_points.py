"""Killed at any request of a drain, before or after it is carried out: the next one ends it, and moves no pod twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tightship_testkit.audit_readings import claims_made, evictions_by
from tightship_testkit.client import Json
from tightship_testkit.drains import SETTINGS, small
from tightship_testkit.embedded import EmbeddedCluster, embedded_cluster
from tightship_testkit.faults import Call, Fault, Reset
from tightship_testkit.kill_points import named
from tightship_testkit.refining import ALONE, one_to_spare, quick
from tightship_testkit.replica import COMPACTOR, REFINER, Program, Replica, Settings
from tightship_testkit.virtual import run_virtually

INTERVAL = "1"
"""Seconds between two passes."""


@dataclass(frozen=True)
class Drain:
    """A drain of node n1 by one replica of *program*."""

    program: Program
    cluster: Callable[[], Json]
    settings: Settings

    @property
    def id(self) -> str:
        return self.program.name

    def embedded_cluster(self, folder: Path) -> AbstractAsyncContextManager[EmbeddedCluster]:
        return embedded_cluster(folder, self.cluster(), self.settings, self.program)

    def start(self, on: EmbeddedCluster) -> Replica:
        return on.start(**ALONE, **{self.program.interval: INTERVAL})


OF_BOTH = [Drain(COMPACTOR, small, SETTINGS), Drain(REFINER, one_to_spare, quick())]
POINTS = [(drain, what) for drain in OF_BOTH for what in ("read", "before a write", "after a write")]


async def undisturbed(drain: Drain, folder: Path) -> list[Call]:
    async with drain.embedded_cluster(folder) as on:
        drain.start(on)
        with on.removing():
            await on.ended_well("n1")
        return list(on.audit.calls)


async def killed(drain: Drain, folder: Path, number: int, *, after: bool) -> str:
    """Kill a replica before or after its request *number* is carried out; its answer is never heard. Return which."""
    met: list[str] = []
    async with drain.embedded_cluster(folder) as on:
        first = drain.start(on)

        async def kill() -> None:
            first.kill()

        async def plan(call: Call) -> Fault | None:
            if call.number != number:
                return None
            met.append(named(call))
            return Reset(done=True, after=kill) if after else Reset(before=kill)

        on.audit.plan = plan
        with on.removing():
            await on.seen(lambda: first.code is not None, f"request {number} kills it")
            drain.start(on)
            await on.ended_well("n1")
        assert on.recorder.most_in_drain == 1
        assert evictions_by(on.events, drain.program.user) == {f"shop/web-{each}": 1 for each in range(3)}
        assert len(claims_made(on.events)) == 1
    return met[0]


def points(calls: list[Call], what: str) -> Iterator[tuple[Call, bool]]:
    """Yield the requests at which to kill, and whether once they are carried out.

    A read leaves nothing behind: nobody can tell whether it was carried out, nor which of those between two writes was
    the last.
    """
    for call, following in zip(calls, [*calls[1:], None], strict=True):
        if call.write_number:
            if what != "read":
                yield call, what == "after a write"
        elif what == "read" and (following is None or following.write_number):
            yield call, False


@pytest.mark.virtual_time
@pytest.mark.slow
@pytest.mark.takes(8)
# Both read by the same code: one of them is enough.
@pytest.mark.parametrize(("drain", "what"), POINTS[:3] + POINTS[4:], ids=lambda each: getattr(each, "id", each))
def test_killed_at_any_request_of_a_drain_the_next_one_ends_it(tmp_path: Path, drain: Drain, what: str) -> None:
    calls = run_virtually(undisturbed(drain, tmp_path))
    wrong: list[str] = []
    for call, after in points(calls, what):
        try:
            assert run_virtually(killed(drain, tmp_path, call.number, after=after)) == named(call)
        except Exception as error:
            wrong.append(f"{what}, request {call.number}, {named(call)}: {type(error).__name__}: {str(error)[:2000]}")
    assert not wrong, "\n".join(wrong)
