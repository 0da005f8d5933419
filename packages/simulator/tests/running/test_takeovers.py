"""Two replicas of a controller: the leader is lost or stopped at any moment of its drains, and the other goes on."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tightship_testkit.audit_readings import evictions_by
from tightship_testkit.drains import SETTINGS, two_spare
from tightship_testkit.embedded import EmbeddedCluster, embedded_cluster
from tightship_testkit.faults import Fault
from tightship_testkit.kill_points import AtWrite, named
from tightship_testkit.replica import COMPACTOR, configure
from tightship_testkit.virtual import run_virtually

pytestmark = [pytest.mark.virtual_time, pytest.mark.slow, pytest.mark.takes(7)]

INTERVAL = "1"
"""Seconds between two passes."""
ELECTED = {
    "LEASE_DURATION": "15s",
    "LEASE_RENEW_DEADLINE": "10s",
    "LEASE_RETRY_PERIOD": "2s",
}
"""As they are by default."""
TAKEOVER = 15 + 2 * 2 + 0.5
"""Seconds after which a lost leader has been succeeded: what its Lease may last, and two looks of the standby, 1.5 to
2.5 s apart: one that sees the last renewal, and one after that has run out."""
LATER = {**SETTINGS, "neededMarkedTimeForRemoval": "3600s"}
STEPS = 12
"""Steps of two drains, evenly apart, at which the leader is lost."""
HOW = pytest.mark.parametrize("how", ["SIGKILL", "SIGSTOP"])


class Two:
    """Two replicas of node-compactor: *how* the leader is lost, and what has to come of it."""

    def __init__(self, on: EmbeddedCluster, how: str) -> None:
        self.on = on
        self.how = how
        self.lost = 0.0

    async def begin(self) -> None:
        """Have one of them lead; both wait for the configuration that has them drain."""
        self.first = self.on.start(**ELECTED, **{COMPACTOR.interval: INTERVAL})
        await self.first.says('"leader":true')
        self.second = self.on.start(**ELECTED, **{COMPACTOR.interval: INTERVAL})
        await self.second.ready()

    async def drain(self) -> None:
        """Let them drain."""
        await configure(self.on.api, self.on.team, SETTINGS)

    async def lose(self) -> None:
        self.lose_now()

    def lose_now(self) -> None:
        self.on.machine.signal(self.first.name, signal.Signals[self.how])
        self.lost = self.on.yard.simulation.wall()

    async def succeeded(self) -> None:
        """See the second lead in time, wake the first if it was only stopped, and both nodes go."""
        on = self.on
        with on.removing():
            await on.seen(lambda: self.lost > 0, "the leader is lost")
            await on.seen(lambda: '"leader":true' in self.second.log, "the second leads", TAKEOVER)
            if self.how == "SIGSTOP":
                on.machine.signal(self.first.name, signal.SIGCONT)
            await on.ended_well("n1", "n4")
        self.all_moved()

    def all_moved(self) -> None:
        pods = [*(f"shop/two-{each}" for each in range(2)), *(f"shop/web-{each}" for each in range(3))]
        assert self.on.recorder.most_in_drain == 1
        assert evictions_by(self.on.events, COMPACTOR.user) == dict.fromkeys(pods, 1)


async def undisturbed(folder: Path) -> tuple[list[str], range]:
    """Return the writes of two drains, one after the other, and the steps of the leader meanwhile."""
    async with embedded_cluster(folder, two_spare(), LATER) as on:
        two = Two(on, "")
        await two.begin()
        process = on.machine.replica(two.first.name).process
        on.audit.plan = plan = AtWrite(0, Fault())
        await two.drain()
        begun = process.steps
        with on.removing():
            await on.ended_well("n1", "n4")
        two.all_moved()
        return [named(call) for call in plan.seen], range(begun + 1, process.steps + 1)


async def lost_after_write(folder: Path, number: int, how: str) -> str:
    async with embedded_cluster(folder, two_spare(), LATER) as on:
        two = Two(on, how)
        await two.begin()
        on.audit.plan = plan = AtWrite(number, Fault(after=two.lose))
        await two.drain()
        await two.succeeded()
        assert plan.met is not None
        return named(plan.met)


async def lost_at_step(folder: Path, step: int, how: str) -> None:
    async with embedded_cluster(folder, two_spare(), LATER) as on:
        two = Two(on, how)
        await two.begin()
        process = on.machine.replica(two.first.name).process
        process.at_step, process.stop_at = two.lose_now, step
        on.audit.plan = AtWrite(0, Fault())
        await two.drain()
        await two.succeeded()


@HOW
def test_lost_after_any_write_of_two_drains_the_leader_is_succeeded(tmp_path: Path, how: str) -> None:
    """A stopped one wakes up once it is succeeded."""
    writes, _ = run_virtually(undisturbed(tmp_path))
    wrong: list[str] = []
    for number, write in enumerate(writes, 1):
        try:
            assert run_virtually(lost_after_write(tmp_path, number, how)) == write
        except Exception as error:
            wrong.append(f"{how} after write {number}, {write}: {type(error).__name__}: {str(error)[:2000]}")
    assert not wrong, "\n".join(wrong)


@HOW
def test_lost_at_any_step_of_two_drains_the_leader_is_succeeded(tmp_path: Path, how: str) -> None:
    """Between any two awaits, with requests under way and answers unheard."""
    _, steps = run_virtually(undisturbed(tmp_path))
    wrong: list[str] = []
    for step in steps[:: max(1, len(steps) // STEPS)]:
        try:
            run_virtually(lost_at_step(tmp_path, step, how))
        except Exception as error:
            wrong.append(f"{how} at step {step} of {steps}: {type(error).__name__}: {str(error)[:2000]}")
    assert not wrong, "\n".join(wrong)
