"""The night: what is done to the cluster from outside."""

from __future__ import annotations

import pytest

from tightship_simulator.demo.story import (
    BEGIN,
    END,
    FAILURE,
    FALLEN,
    LOW,
    MOST,
    RISEN,
    Night,
    Passing,
    delivered,
    demand,
    fails,
)


def test_traffic_falls_to_the_night_and_is_back_in_the_morning() -> None:
    assert demand(BEGIN) == pytest.approx(1.0)
    assert demand(FALLEN) == pytest.approx(LOW)
    assert demand(RISEN) == demand(END) == pytest.approx(1.0)
    falling = [demand(BEGIN + step / 10) for step in range(int((FALLEN - BEGIN) * 10) + 1)]
    assert falling == sorted(falling, reverse=True)


def test_while_the_gateway_fails_a_tenth_arrives_of_what_is_demanded() -> None:
    middle = sum(FAILURE) / 2
    assert fails(middle)
    assert delivered(middle) == pytest.approx(demand(middle) / 10)
    assert not fails(FAILURE[1])
    assert delivered(FAILURE[1]) == demand(FAILURE[1])


def test_a_night_passes_while_it_is_looked_at_and_a_machine_that_stood_still_missed_nothing() -> None:
    night = Passing(Night(100))
    assert [night.hour(at) for at in (7.0, 7.25, 7.5, 8.0)] == [Night(100).hour(at) for at in (0, 0.25, 0.5, 1.0)]
    assert night.hour(3600.0) == Night(100).hour(1.0 + MOST)
    assert night.hour(3600.25) == Night(100).hour(1.25 + MOST)


def test_a_night_can_be_held_and_goes_on_from_there() -> None:
    night = Passing(Night(100))
    night.hour(0.0)
    held = night.hour(0.25)
    night.standing = True
    assert night.hour(0.5) == night.hour(99.0) == held
    night.standing = False
    assert night.hour(99.25) == Night(100).hour(0.5)
