"""The API server's time, as its answers tell it."""

from __future__ import annotations

from collections.abc import Iterator
from email.utils import formatdate

import pytest

from tightship.kube.host import HOST, TOLERATED, Host, ServerClock, monotonic

HERE = 1_800_000_000.25


class Wall:
    """Our own clock."""

    def __init__(self) -> None:
        self.shows = HERE


@pytest.fixture
def wall() -> Iterator[Wall]:
    made = Wall()
    token = HOST.set(Host(wall=lambda: made.shows))
    yield made
    HOST.reset(token)


def answered(clock: ServerClock, at: float, *, took: float = 0.0) -> None:
    clock.observe(formatdate(at, usegmt=True), monotonic() - took)


@pytest.mark.parametrize("off", [0.0, 1.0, -1.0, TOLERATED])
def test_a_clock_that_is_nearly_right_is_left_alone(wall: Wall, off: float) -> None:
    clock = ServerClock()
    answered(clock, HERE + off)
    assert clock.now() == wall.shows


@pytest.mark.parametrize("off", [3600.0, -3600.0, 90_000.0, -20.0])
def test_a_clock_that_is_wrong_is_corrected(wall: Wall, off: float) -> None:
    clock = ServerClock()
    answered(clock, HERE + off)
    assert abs(clock.now() - (wall.shows + off)) <= TOLERATED + 1
    first = clock.now()
    answered(clock, HERE + off)
    assert abs(clock.now() - first) < 0.1, "and does not run to and fro"


def test_an_answer_that_was_read_an_hour_late_moves_nothing(wall: Wall) -> None:
    clock = ServerClock()
    answered(clock, HERE - 3600, took=3600)
    assert clock.now() == wall.shows


def test_a_clock_that_is_set_right_is_followed(wall: Wall) -> None:
    clock = ServerClock()
    answered(clock, HERE - 3600)
    wall.shows -= 3600
    answered(clock, wall.shows)
    assert abs(clock.now() - wall.shows) <= TOLERATED + 1


@pytest.mark.parametrize("date", [None, "", "soon", "Mon, 99 Foo 2026 00:00:00 GMT"])
def test_an_answer_without_a_date_says_nothing(wall: Wall, date: str | None) -> None:
    clock = ServerClock()
    clock.observe(date, monotonic())
    assert clock.now() == wall.shows
