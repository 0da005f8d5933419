"""A run is the same, byte for byte, for the same seed; and it is a run of its own: no socket, no real clock."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import transcripts

from tightship_simulator.virtual.simulation import Simulation, simulate
from tightship_testkit.isolation import outside, readings

# The run that others are compared with is made once.
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("runs")]

SEED = 3


@pytest.fixture(scope="module")
def run() -> list[str]:
    return transcripts.transcript(SEED)


def test_a_run_has_what_is_to_be_the_same(run: list[str]) -> None:
    """Requests, answers, changes, drains, floors, kills, and replicas that begin anew."""
    text = "\n".join(run)
    writes = ("PATCH /api/v1/nodes/", "/eviction", "leaseTransitions", "minReplicas", "ADDED")
    for each in (*writes, "-again > world", "killed ['"):
        assert each in text, each
    assert text.count("\n") > 2000


def test_the_same_seed_gives_the_same_run_twice_in_a_process(run: list[str]) -> None:
    assert not list(transcripts.differences(run, transcripts.transcript(SEED)))


def test_another_seed_gives_another_run(run: list[str]) -> None:
    assert list(transcripts.differences(run, transcripts.transcript(SEED + 1, minutes=1)))


@pytest.mark.outside
@pytest.mark.parametrize("hash_seed", ["1", "4711"])
def test_the_same_seed_gives_the_same_run_in_a_process_that_hashes_otherwise(run: list[str], hash_seed: str) -> None:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "TZ": "Pacific/Auckland"}
    script = Path(transcripts.__file__)
    done = subprocess.run([sys.executable, script, str(SEED)], env=environment, stdout=subprocess.PIPE, check=True)
    assert not list(transcripts.differences("\n".join(run).splitlines(), done.stdout.decode().splitlines()))


def test_a_run_opens_no_socket_and_reads_no_real_clock() -> None:
    with readings() as heard:
        transcripts.transcript(SEED, minutes=2)
    assert not heard


@pytest.mark.outside
def test_what_watches_over_a_run_hears_sockets_and_clocks() -> None:
    """It would find them: else the test above could not fail."""

    async def talkative(simulation: Simulation) -> None:
        # As if it were code of ours.
        exec("import socket, time; socket.socket().close(); time.time()", {"__name__": "tightship.talkative"})
        exec("import datetime, uuid; datetime.datetime.now(); uuid.uuid4()", {"__name__": "hpa_scaler"})
        await simulation.sleep(1)

    with outside() as opened, readings() as read:
        simulate(talkative)
    assert [each.partition(" ")[0] for each in opened] == ["socket.__new__"]
    assert [each.partition(" ")[0] for each in read] == ["time", "datetime.now", "uuid4"]
    with outside() as opened, readings() as read:
        time.time()
    assert not opened
    assert not read, "this test is no code of ours"


async def _looked_up() -> None:
    loop = asyncio.get_running_loop()
    with pytest.raises(OSError, match="no machine around"):
        await loop.getaddrinfo("example.com", 80)
    with pytest.raises(OSError, match="no machine around"):
        await loop.create_datagram_endpoint(asyncio.DatagramProtocol, remote_addr=("127.0.0.1", 9))


def test_a_virtual_loop_looks_up_no_name_and_sends_no_datagram() -> None:
    async def work(_: Simulation) -> None:
        await _looked_up()

    simulate(work)
