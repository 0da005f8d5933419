"""A replica is killed or frozen at an eviction of a drain on a real control plane: the next one ends the drain well.

At which write, and at which request at all, is tried exhaustively on virtual time, in
``packages/simulator/tests/running/test_kill_points.py`` and ``test_takeovers.py`` beside it. Here the process, its
clock and the API server are real.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from drains import Run, Site, site

from tightship_e2e import ControlPlane
from tightship_testkit.audit_readings import most_in_drain
from tightship_testkit.client import Client
from tightship_testkit.drains import SETTINGS, all_ready, removing, two_spare
from tightship_testkit.faults import Call, Fault, Plan, Reset
from tightship_testkit.replica import configure

ALONE = {"LEADER_ELECT": "false"}
ELECTED = {"LEASE_DURATION_SECONDS": "10", "LEASE_RENEW_DEADLINE_SECONDS": "8", "LEASE_RETRY_PERIOD_SECONDS": "1"}
LATER = {**SETTINGS, "neededMarkedTimeForRemoval": 3600}


def at_first_eviction(fault: Fault) -> Plan:
    """Disturb the first eviction that is asked for."""
    left = [fault]

    async def plan(call: Call) -> Fault | None:
        return left.pop() if left and call.write_number and call.path.endswith("/eviction") else None

    return plan


async def ends_well(on: Site) -> None:
    """The node goes, all pods are Ready, and no claim is left."""
    await on.gone("n1")
    await all_ready(on.api)
    await on.free()
    await on.checked()


def before(kill: Callable[[], Awaitable[None]]) -> Fault:
    return Reset(before=kill)


def after(kill: Callable[[], Awaitable[None]]) -> Fault:
    return Reset(done=True, after=kill)


@pytest.mark.takes(10)
@pytest.mark.parametrize("when", [before, after])
def test_killed_before_and_after_an_eviction(on_site: Run, when: Callable[..., Fault]) -> None:
    """One replica, killed and started again."""

    async def work(on: Site) -> None:
        first = on.start(**ALONE)
        on.proxy.plan = at_first_eviction(when(lambda: asyncio.to_thread(first.kill)))
        # Until it has been killed nobody takes the node away: that would end the drain.
        await on.seen(lambda: first.code is not None, "it is killed")
        async with removing(on.api):
            on.start(**ALONE)
            await ends_well(on)

    on_site(work)


@pytest.mark.takes(30)
def test_a_second_replica_takes_over(empty_plane: ControlPlane, tmp_path: Path) -> None:
    """The leader is stopped right after an eviction took effect, and wakes up once it is succeeded."""

    async def work(api: Client) -> None:
        empty_plane.audit_events()
        async with site(empty_plane, api, tmp_path, two_spare(), settings=LATER) as on:
            first = on.start(**ELECTED)
            await first.says('"leader":true')
            second = on.start(**ELECTED)
            await second.ready()  # which may lead already, where the machine kept the first from its Lease
            lost: list[bool] = []

            async def lose() -> None:
                os.kill(first.pid, signal.SIGSTOP)
                lost.append(True)

            on.proxy.plan = at_first_eviction(Fault(after=lose))
            await configure(api, on.team, SETTINGS)
            async with removing(api):
                await on.seen(lambda: bool(lost), "the leader is lost")
                await on.seen(lambda: '"leader":true' in second.log, "the second leads")
                os.kill(first.pid, signal.SIGCONT)
                await on.gone("n4")
                await ends_well(on)
            assert most_in_drain(empty_plane.audit_events()) == 1

    empty_plane.run(work)
