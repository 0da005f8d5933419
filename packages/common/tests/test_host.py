"""What a process has from its machine: clocks, chance, the way to a server."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from contextvars import copy_context

import aiohttp
import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest

from tightship.kube.connector import Connector, connector
from tightship.kube.host import HOST, Host, monotonic, token, wall
from tightship.process.metrics import new_registry


def _on(host: Host, work: Callable[[], object]) -> object:
    """Return what *work* returns on that host."""
    context = copy_context()
    context.run(HOST.set, host)
    return context.run(work)


def test_without_a_loop_the_monotonic_clock_is_the_systems() -> None:
    before = time.monotonic()
    assert before <= monotonic() <= time.monotonic()


async def test_within_a_loop_the_monotonic_clock_is_the_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: 12.5)
    assert monotonic() == 12.5


def test_a_process_of_its_own_has_the_systems_wall_clock() -> None:
    before = time.time()
    assert before <= wall() <= time.time()


async def test_tasks_and_threads_inherit_the_host_and_others_keep_theirs() -> None:
    async def inner() -> list[float]:
        HOST.set(Host(wall=lambda: 42.0))
        return [wall(), await asyncio.to_thread(wall), await asyncio.create_task(_wall())]

    assert await asyncio.create_task(inner()) == [42.0, 42.0, 42.0]
    assert wall() != 42.0


async def _wall() -> float:
    return wall()


async def test_a_client_opens_its_connections_as_the_host_says() -> None:
    usual = connector()
    assert isinstance(usual, Connector)
    await usual.close()
    own = aiohttp.BaseConnector()
    assert _on(Host(connector=lambda: own), connector) is own
    await own.close()


@pytest.mark.parametrize("digits", [1, 8, 32])
def test_a_token_has_its_digits_and_is_of_the_seeded_chance(digits: int) -> None:
    state = random.getstate()
    try:
        random.seed(3)
        first = token(digits)
        random.seed(3)
        assert token(digits) == first
        assert len(first) == digits
        assert int(first, 16) >= 0
        assert token(16) != token(16)
    finally:
        random.setstate(state)


def test_only_a_process_of_its_own_has_metrics_of_the_process() -> None:
    def families() -> bytes:
        return generate_latest(new_registry("node-compactor"))

    alone, beside = _on(Host(), families), _on(Host(own_process=False), families)
    assert isinstance(alone, bytes)
    assert isinstance(beside, bytes)
    assert b"python_gc_objects" in alone
    assert b"python_gc_objects" not in beside
    assert b"python_info" not in beside
    assert b"tightship_build_info" in beside
    assert isinstance(_on(Host(own_process=False), lambda: new_registry("x")), CollectorRegistry)
