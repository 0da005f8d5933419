"""Whatever single write of a drain a replica dies at, before or after its effect: the next one ends the drain well."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path

import pytest
from drains import Site, site

from tightship_e2e import ControlPlane
from tightship_e2e.reset import reset
from tightship_testkit.client import Client, Json, wait_for
from tightship_testkit.drains import SETTINGS, all_ready, removing, small, spare
from tightship_testkit.fault_proxy import Record
from tightship_testkit.faults import Call, Fault, Reset
from tightship_testkit.invariants import most_in_drain
from tightship_testkit.manifests import replicas
from tightship_testkit.replica import claims, configure

ALONE = {"LEADER_ELECT": "false"}
ELECTED = {"LEASE_DURATION_SECONDS": "3", "LEASE_RENEW_DEADLINE_SECONDS": "2", "LEASE_RETRY_PERIOD_SECONDS": "0.3"}
EVERY = int(os.environ.get("TIGHTSHIP_KILL_EVERY", "1"))
"""Only each so manieth kill point is tried."""
FIRST = int(os.environ.get("TIGHTSHIP_KILL_FROM", "1"))
"""Writes before this one are not tried."""
LATER = {**SETTINGS, "neededMarkedTimeForRemoval": 3600}


def counts(call: Call) -> bool:
    """Whether a call is a write of the drain itself: Events change nothing, and elections have tests of their own."""
    election = call.path.endswith("/leases") and b"-leader" in call.body
    return call.write_number > 0 and "/events" not in call.path and not call.path.endswith("-leader") and not election


class AtWrite:
    """Disturbs the drain's own write number *number*, once."""

    def __init__(self, number: int, fault: Fault) -> None:
        self.met: Call | None = None
        self.seen = 0
        self._number = number
        self._fault = fault

    async def __call__(self, call: Call) -> Fault | None:
        if not counts(call):
            return None
        self.seen += 1
        if self.seen != self._number:
            return None
        self.met = call
        return self._fault


def named(call: Call) -> str:
    phase = ""
    for each in (b"Claimed", b"Evicting", b"Drained", b"Restoring", b"Backoff", b"Marked"):
        if b'phase\\":\\"' + each in call.body:
            phase = each.decode()
    return f"{call.verb} {call.path.rpartition('/')[2] if 'eviction' not in call.path else 'eviction'} {phase}".strip()


def own(records: list[Record]) -> list[Record]:
    return [record for record in records if counts(record.call)]


async def ends_well(on: Site) -> None:
    """The node goes, all pods are Ready, and no claim is left."""
    await on.gone("n1")
    await all_ready(on.api)
    await on.free()
    await on.checked()


@pytest.mark.timeout(1800)
def test_killed_before_and_after_each_write_of_a_drain(empty_plane: ControlPlane, tmp_path: Path) -> None:
    """One replica, killed and started again."""

    async def undisturbed(api: Client) -> list[Record]:
        async with site(empty_plane, api, tmp_path, small()) as on:
            on.start(**ALONE)
            async with removing(api):
                await ends_well(on)
            return own(on.proxy.log)

    async def killed(api: Client, number: int, after: bool) -> str:
        await reset(api)
        async with site(empty_plane, api, tmp_path, small()) as on:
            first = on.start(**ALONE)

            async def kill() -> None:
                await asyncio.to_thread(first.kill)

            plan = AtWrite(number, Reset(done=True, after=kill) if after else Reset(before=kill))
            on.proxy.plan = plan
            async with removing(api):

                async def dead() -> bool:
                    ended = on.recorder.node("n1") is None and "drain ended" in first.log
                    return first.code is not None or (ended and await claims(api, on.team) == [])

                await wait_for(dead, 120, f"write {number} kills it")
                if plan.met is not None:
                    on.start(**ALONE)
                try:
                    await ends_well(on)
                except AssertionError as error:
                    raise AssertionError(f"killed {'after' if after else 'before'} write {number}: {error}") from None
            return named(plan.met) if plan.met else ""

    writes = empty_plane.run(undisturbed)
    points: list[str] = []
    began = time.monotonic()
    chosen = [(number, after) for number in range(FIRST, len(writes) + 1) for after in (False, True)][::EVERY]
    for number, after in chosen:
        met = empty_plane.run(lambda api, number=number, after=after: killed(api, number, after))  # type: ignore[misc]
        if met:
            points.append(f"{'after' if after else 'before'} {number} {met}")
    print(
        f"\n{len(points)} kill points of {len(writes)} writes in {time.monotonic() - began:.0f} s:", "; ".join(points)
    )
    # The last writes of a drain race with the node's end; how often a budget refuses, and how often somebody else has
    # written the node first, is a matter of time.
    refused = sum(record.status in (409, 429) for record in writes)
    assert len(points) >= len(chosen) - 4 - 2 * refused


def two_spare() -> Json:
    """Two nodes may go, and the cluster's budget is one: a successor that forgot a claim would take the other."""
    return small(spare("n4"), *replicas("two", ["n4", "n4"], app="two"))


@pytest.mark.parametrize("how", ["SIGKILL", "SIGSTOP"])
@pytest.mark.parametrize("number", [3, 5, 6, 8, 10])
def test_a_second_replica_takes_over(empty_plane: ControlPlane, tmp_path: Path, number: int, how: str) -> None:
    """The leader is lost right after its write *number* took effect; a stopped one wakes up once it is succeeded."""

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

            plan = AtWrite(number, Fault(after=lose))
            on.proxy.plan = plan
            await configure(api, on.team, SETTINGS)
            async with removing(api):
                await on.seen(lambda: bool(lost), "the leader is lost")
                await on.seen(lambda: '"leader":true' in second.log, "the second leads")
                print(
                    f"\n{how} after {named(plan.met) if plan.met else ''}: takeover {time.monotonic() - lost[0]:.1f} s"
                )
                if how == "SIGSTOP":
                    os.kill(first.pid, signal.SIGCONT)
                await on.gone("n4")
                await ends_well(on)
            assert most_in_drain(empty_plane.audit_events()) == 1

    empty_plane.run(work)
