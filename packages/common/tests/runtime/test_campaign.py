"""Running for the Lease while there is something to do with it, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import cast

import pytest
from lease_server import LeaseServer, MemoryConnection, now, virtually

from tightship.kube.connection import Connection
from tightship.kube.election import Elector
from tightship.runtime.campaign import Campaign

PATH = "/apis/coordination.k8s.io/v1/namespaces/ns/leases/leader"


class Scene:
    """One replica with a switch."""

    def __init__(self, on: bool, on_change: Callable[[bool], None] | None = None) -> None:
        self.api = LeaseServer()
        self.on = on
        self.stop = asyncio.Event()
        connection = cast("Connection", MemoryConnection(self.api))
        self.elector = Elector(connection, namespace="ns", name="leader", identity="a", clock=now, on_change=on_change)
        self.task = asyncio.create_task(Campaign(self.elector, lambda: self.on).run(self.stop))

    @property
    def holder(self) -> str:
        return str(self.api.objects[PATH]["spec"]["holderIdentity"])

    async def ended(self) -> None:
        self.stop.set()
        await self.task


def scene(test: Callable[[], Awaitable[None]]) -> Callable[[], None]:
    def run() -> None:
        virtually(test)

    run.__name__ = test.__name__
    return run


@scene
async def test_off_from_the_start_not_a_single_request_is_made() -> None:
    made = Scene(on=False)
    await asyncio.sleep(600)
    await made.ended()
    assert made.api.seen == []


@scene
async def test_switched_on_it_leads_and_switched_off_the_lease_is_free_at_once() -> None:
    made = Scene(on=False)
    await asyncio.sleep(10)
    made.on = True
    first = await made.elector.wait_for_leadership()
    assert made.holder == "a"
    made.on = False
    await made.elector.wait_for_loss()
    await asyncio.sleep(5)
    assert made.holder == ""
    quiet = len(made.api.seen)
    await asyncio.sleep(600)
    assert len(made.api.seen) == quiet
    made.on = True
    assert await made.elector.wait_for_leadership() > first
    await made.ended()
    assert made.holder == ""


@scene
async def test_a_stop_gives_the_lease_up() -> None:
    made = Scene(on=True)
    await made.elector.wait_for_leadership()
    await made.ended()
    assert made.holder == ""
    assert not made.elector.is_leader


@scene
async def test_a_defect_of_the_election_is_raised() -> None:
    def defect(leads: bool) -> None:
        raise ZeroDivisionError(leads)

    made = Scene(on=True, on_change=defect)
    with pytest.raises(ZeroDivisionError):
        await made.task


@scene
async def test_cancelled_the_lease_is_left_to_run_out() -> None:
    made = Scene(on=True)
    await made.elector.wait_for_leadership()
    made.task.cancel()
    await asyncio.gather(made.task, return_exceptions=True)
    assert not made.elector.is_leader
    assert made.holder == "a"
