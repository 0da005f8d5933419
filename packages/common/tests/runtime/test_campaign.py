"""Running for the Lease while there is something to do with it, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from links import Client, term

from tightship.kube.leases import Elector
from tightship.process.serving import campaign
from tightship_testkit.simulated import Simulated, simulated, until

pytestmark = pytest.mark.virtual_time


class Scene:
    """One replica with a switch."""

    def __init__(self, api: Simulated, on: bool, on_change: Callable[[bool], None] | None = None) -> None:
        self.api = api
        self.on = on
        self.stop = asyncio.Event()
        client = Client(api, "a")
        self.elector = Elector(client.connection, namespace="ns", name="leader", identity="a", on_change=on_change)
        self.task = client.process.run(campaign(self.elector, lambda: self.on, self.stop))

    @property
    def asked(self) -> int:
        return len(self.api.proxy.log)

    @property
    def holder(self) -> str:
        return str(self.api.holder("leader", "ns"))

    async def ended(self) -> None:
        self.stop.set()
        await self.task


@asynccontextmanager
async def scene(folder: Path, on: bool, on_change: Callable[[bool], None] | None = None) -> AsyncIterator[Scene]:
    async with simulated(folder, {"kind": "Namespace", "metadata": {"name": "ns"}}) as api:
        yield Scene(api, on, on_change)


async def test_off_from_the_start_not_a_single_request_is_made(tmp_path: Path) -> None:
    async with scene(tmp_path, on=False) as made:
        await asyncio.sleep(600)
        await made.ended()
        assert made.asked == 0


async def test_switched_on_it_leads_and_switched_off_the_lease_is_free_at_once(tmp_path: Path) -> None:
    async with scene(tmp_path, on=False) as made:
        await asyncio.sleep(10)
        made.on = True
        first = await term(made.elector)
        assert made.holder == "a"
        made.on = False
        await until(lambda: not made.elector.is_leader)
        await asyncio.sleep(5)
        assert made.holder == ""
        quiet = made.asked
        await asyncio.sleep(600)
        assert made.asked == quiet
        made.on = True
        assert await term(made.elector) > first
        await made.ended()
        assert made.holder == ""


async def test_a_stop_gives_the_lease_up(tmp_path: Path) -> None:
    async with scene(tmp_path, on=True) as made:
        await term(made.elector)
        await made.ended()
        assert made.holder == ""
        assert not made.elector.is_leader


async def test_a_defect_of_the_election_is_raised(tmp_path: Path) -> None:
    def defect(leads: bool) -> None:
        raise ZeroDivisionError(leads)

    async with scene(tmp_path, on=True, on_change=defect) as made:
        with pytest.raises(ZeroDivisionError):
            await made.task


async def test_cancelled_the_lease_is_left_to_run_out(tmp_path: Path) -> None:
    async with scene(tmp_path, on=True) as made:
        await term(made.elector)
        made.task.cancel()
        await asyncio.gather(made.task, return_exceptions=True)
        assert not made.elector.is_leader
        assert made.holder == "a"
