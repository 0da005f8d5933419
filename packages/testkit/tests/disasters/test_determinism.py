"""A run is the same, byte for byte, for the same seed; and it is a run of its own: no socket, no real clock."""

from __future__ import annotations

import asyncio
import hashlib
import os
import socket
import subprocess
import sys
import time

import pytest

from tightship_simulator.virtual.simulation import Simulation, simulate
from tightship_testkit.disasters.making import make
from tightship_testkit.disasters.observer import Observer
from tightship_testkit.disasters.run import run
from tightship_testkit.disasters.scenario import Scenario, decode, encode
from tightship_testkit.disasters.world import World
from tightship_testkit.isolation import outside, readings

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("runs"), pytest.mark.takes(2)]

SEEDS = (70, 76)
"""Nodes, and floors."""


def transcript(scenario: Scenario) -> str:
    """Return a digest of all changes and requests, and of every byte that anybody sends, with its time."""
    reported = hashlib.sha256()

    def ready(world: World, _: Observer) -> None:
        simulation = world.simulation
        simulation.network.tap = lambda sender, reader, data: reported.update(
            f"{simulation.loop.time():.9f} {sender} {reader} ".encode() + data
        )

    return f"{run(scenario, ready).digest} {reported.hexdigest()}"


@pytest.fixture(scope="module")
def first() -> list[str]:
    return [transcript(make(seed)) for seed in SEEDS]


def test_the_same_seed_gives_the_same_run_from_a_story_file_too_and_another_seed_another(first: list[str]) -> None:
    assert [transcript(decode(encode(make(seed)))) for seed in SEEDS] == first
    assert len(set(first)) == len(SEEDS)


def test_the_same_seed_gives_the_same_run_in_a_process_that_hashes_otherwise(first: list[str]) -> None:
    environment = {**os.environ, "PYTHONHASHSEED": "4711", "TZ": "Pacific/Auckland"}
    done = subprocess.run([sys.executable, __file__], env=environment, stdout=subprocess.PIPE, text=True, check=True)
    assert done.stdout.splitlines() == first


def test_a_run_opens_no_socket_and_reads_no_real_clock() -> None:
    with outside() as opened, readings() as read:
        run(make(SEEDS[0]))
    assert (opened, read) == ([], [])


def test_what_watches_over_a_run_hears_sockets_and_clocks() -> None:
    """It would find them: else the test above could not fail."""

    async def talkative(simulation: Simulation) -> None:
        # As if it were code of ours.
        exec("import socket, time; socket.socket().close(); time.time()", {"__name__": "tightship.talkative"})
        exec("import datetime, uuid; datetime.datetime.now(); uuid.uuid4()", {"__name__": "hpa_scaler"})
        await simulation.sleep(1)

    with outside() as opened, readings() as read:
        simulate(talkative)
        time.time()  # this test is no code of ours
    assert [each.partition(" ")[0] for each in opened] == ["socket.__new__"]
    assert [each.partition(" ")[0] for each in read] == ["time", "datetime.now", "uuid4"]


def test_a_virtual_loop_looks_up_no_name_sends_no_datagram_and_takes_no_socket() -> None:
    async def work(_: Simulation) -> None:
        loop = asyncio.get_running_loop()
        with pytest.raises(OSError, match="no machine around"):
            await loop.getaddrinfo("example.com", 80)
        with pytest.raises(OSError, match="no machine around"):
            await loop.create_datagram_endpoint(asyncio.DatagramProtocol, remote_addr=("127.0.0.1", 9))
        with socket.socket() as real, pytest.raises(OSError, match="no machine around"):
            await loop.create_server(asyncio.Protocol, sock=real)

    simulate(work)


if __name__ == "__main__":
    sys.stdout.writelines(f"{transcript(make(seed))}\n" for seed in SEEDS)
