"""A replica is killed or frozen in the middle of a drain on a real control plane: the next one ends the drain well.

At which write, and at which request at all, is tried exhaustively on virtual time, in
``packages/simulator/tests/running/test_kill_points.py``. Here the process, its clock and the API server are real.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path

import pytest
from drains import Run, Site, site

from tightship_e2e import ControlPlane
from tightship_testkit.audit_readings import most_in_drain
from tightship_testkit.client import Client
from tightship_testkit.drains import SETTINGS, all_ready, removing, two_spare
from tightship_testkit.faults import Call, Fault, Reset
from tightship_testkit.replica import configure

ALONE = {"LEADER_ELECT": "false"}
ELECTED = {"LEASE_DURATION": "10s", "LEASE_RENEW_DEADLINE": "8s", "LEASE_RETRY_PERIOD": "1s"}
LATER = {**SETTINGS, "neededMarkedTimeForRemoval": "3600s"}
EVICTION = "eviction"


def named(call: Call) -> str:
    """What a call does to a drain: the phase that it writes on the node, or an eviction; empty for any other."""
    if call.write_number and call.path.endswith("/eviction"):
        return EVICTION
    phases = (b"Claimed", b"Evicting", b"Drained")
    return next((each.decode() for each in phases if b'phase\\":\\"' + each in call.body), "")


class AtFirst:
    """Disturbs the first call that does *what* to a drain."""

    def __init__(self, what: str, fault: Fault) -> None:
        self.met = False
        self._what = what
        self._fault = fault

    async def __call__(self, call: Call) -> Fault | None:
        if self.met or named(call) != self._what:
            return None
        self.met = True
        return self._fault


async def ends_well(on: Site) -> None:
    """The node goes, all pods are Ready, and no claim is left."""
    await on.gone("n1")
    await all_ready(on.api)
    await on.free()
    await on.checked()


@pytest.mark.takes(10)
@pytest.mark.parametrize(
    ("when", "what"),
    [("after", "Claimed"), ("before", EVICTION), ("after", EVICTION)],
)
def test_killed_before_or_after_a_write_of_a_drain(on_site: Run, when: str, what: str) -> None:
    """One replica, killed and started again."""

    async def work(on: Site) -> None:
        first = on.start(**ALONE)

        async def kill() -> None:
            await asyncio.to_thread(first.kill)

        plan = AtFirst(what, Reset(done=True, after=kill) if when == "after" else Reset(before=kill))
        on.proxy.plan = plan
        # Until it has been killed nobody takes the node away: that would end the drain.
        await on.seen(lambda: first.code is not None, f"it is killed {when} {what}")
        assert plan.met
        async with removing(on.api):
            on.start(**ALONE)
            await ends_well(on)

    on_site(work)


@pytest.mark.takes(30)
@pytest.mark.parametrize(("what", "how"), [("Evicting", "SIGKILL"), (EVICTION, "SIGSTOP")])
def test_a_second_replica_takes_over(empty_plane: ControlPlane, tmp_path: Path, what: str, how: str) -> None:
    """The leader is lost right after a write took effect; a stopped one wakes up once it is succeeded."""

    async def work(api: Client) -> None:
        empty_plane.audit_events()
        async with site(empty_plane, api, tmp_path, two_spare(), settings=LATER) as on:
            first = on.start(**ELECTED)
            await first.says('"leader":true')
            second = on.start(**ELECTED)
            await second.ready()  # which may lead already, where the machine kept the first from its Lease
            lost: list[float] = []

            async def lose() -> None:
                if how == "SIGKILL":
                    await asyncio.to_thread(first.kill)
                else:
                    os.kill(first.pid, signal.SIGSTOP)
                lost.append(time.monotonic())

            on.proxy.plan = AtFirst(what, Fault(after=lose))
            await configure(api, on.team, SETTINGS)
            async with removing(api):
                await on.seen(lambda: bool(lost), "the leader is lost")
                await on.seen(lambda: '"leader":true' in second.log, "the second leads")
                print(f"\n{how} after {what}: takeover {time.monotonic() - lost[0]:.1f} s")
                if how == "SIGSTOP":
                    os.kill(first.pid, signal.SIGCONT)
                await on.gone("n4")
                await ends_well(on)
            assert most_in_drain(empty_plane.audit_events()) == 1

    empty_plane.run(work)
