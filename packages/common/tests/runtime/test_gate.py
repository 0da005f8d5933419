"""What connections may take before an HTTP server has anything to do with them."""

from __future__ import annotations

import asyncio
import logging

import pytest

from tightship.process.http import ConnectionLimits, Gate

pytestmark = pytest.mark.virtual_time

HEAD = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
LIMITS = ConnectionLimits(connections=3, head_bytes=100, head_timeout=5, answer_timeout=30)


class Answering(asyncio.Protocol):
    """Keeps what it is given, and never answers."""

    def __init__(self) -> None:
        self.heard = b""
        self.lost = False

    def data_received(self, data: bytes) -> None:
        self.heard += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True


class Link(asyncio.Transport):
    """The server's end of a connection."""

    def __init__(self, scene: Scene, address: str) -> None:
        super().__init__({"peername": (address, 1)})
        self.sent = b""
        self.aborted = self.closing = self.paused = False
        self.protocol = scene.gate()
        self.protocol.connection_made(self)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.sent += bytes(data)

    def close(self) -> None:
        self.closing = True

    def is_closing(self) -> bool:
        return self.closing

    def abort(self) -> None:
        self.aborted = self.closing = True
        asyncio.get_running_loop().call_soon(self.protocol.connection_lost, None)

    def pause_reading(self) -> None:
        self.paused = True

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass


class Scene:
    def __init__(self) -> None:
        self.answering: list[Answering] = []
        self.gate = Gate(self._answers, LIMITS, logging.getLogger("scene"))

    def _answers(self) -> Answering:
        self.answering.append(Answering())
        return self.answering[-1]

    def link(self, address: str = "10.0.0.1", data: bytes = b"") -> Link:
        found = Link(self, address)
        found.protocol.data_received(data)
        return found


@pytest.mark.parametrize("size", [1, 3, 7, 1000])
async def test_a_head_is_handed_over_when_it_is_complete(size: int) -> None:
    scene = Scene()
    link = scene.link()
    for start in range(0, len(HEAD), size):
        assert not scene.answering
        link.protocol.data_received(HEAD[start : start + size])
    [answering] = scene.answering
    assert answering.heard == HEAD


async def test_empty_lines_before_a_request_are_ignored() -> None:
    scene = Scene()
    scene.link(data=b"\r\n\r\n" + HEAD)
    assert [each.heard for each in scene.answering] == [HEAD]


async def test_what_follows_the_first_request_is_not_read() -> None:
    scene = Scene()
    link = scene.link(data=HEAD * 3)
    link.protocol.data_received(HEAD)
    assert [each.heard for each in scene.answering] == [HEAD]
    assert link.paused


@pytest.mark.parametrize("data", [b"x" * 101, b"GET / HTTP/1.1\r\nA: " + b"x" * 100 + b"\r\n\r\n"])
async def test_a_head_that_is_too_large_is_refused(data: bytes) -> None:
    scene = Scene()
    link = scene.link(data=data)
    assert link.sent.startswith(b"HTTP/1.1 431 Request Header Fields Too Large\r\n")
    assert link.closing
    assert not scene.answering


async def test_a_head_that_comes_byte_by_byte_has_no_more_time_than_another() -> None:
    scene = Scene()
    link = scene.link()
    for _ in range(9):
        link.protocol.data_received(b"x")
        await asyncio.sleep(0.5)
    assert not link.aborted
    await asyncio.sleep(0.5)
    assert link.aborted
    assert len(scene.gate) == 0


async def test_an_answer_that_is_not_taken_in_time_is_broken_off() -> None:
    scene = Scene()
    link = scene.link(data=HEAD)
    await asyncio.sleep(29.5)
    assert not link.aborted
    await asyncio.sleep(1)
    assert link.aborted
    assert scene.answering[0].lost


async def test_a_refusal_that_is_not_read_is_broken_off_too() -> None:
    link = Scene().link(data=b"x" * 101)
    await asyncio.sleep(6)
    assert link.aborted


async def test_one_connection_too_many_costs_who_has_most_of_them() -> None:
    scene = Scene()
    modest = scene.link("10.0.0.2")
    greedy = [scene.link("10.0.0.1", HEAD), scene.link("10.0.0.1")]
    newest = scene.link("10.0.0.1")
    # The one that has asked for something is kept rather than the one that has not.
    assert [each.aborted for each in (modest, *greedy, newest)] == [False, False, True, False]
    another = scene.link("10.0.0.2", HEAD)
    assert [each.aborted for each in (modest, greedy[0], newest, another)].count(True) == 1
    assert len(scene.gate) == LIMITS.connections


async def test_a_newcomer_is_served_where_all_others_are_being_answered() -> None:
    scene = Scene()
    busy = [scene.link(data=HEAD) for _ in range(3)]
    newest = scene.link()
    assert [each.aborted for each in (*busy, newest)] == [True, False, False, False]
