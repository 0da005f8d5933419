"""What pytest needs for tests of any package; pyproject.toml has it loaded for all of them."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Mapping

import pytest
from hypothesis import HealthCheck, settings

from tightship_simulator.virtual.loop import VirtualLoop
from tightship_testkit.browser import browser

# How long an example takes says nothing of the property, and on a busy machine much of the machine.
settings.register_profile("patient", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Have one worker open all pages: a browser is the work of seconds, and has processes for every processor."""
    for each in items:
        if "browser" in getattr(each, "fixturenames", ()):
            each.add_marker(pytest.mark.xdist_group("browser"))
            each.add_marker(pytest.mark.takes(1))


def pytest_collection() -> None:
    """Look for no garbage while tests are collected: nearly all of it stays."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Look for garbage less often: the tests themselves stay, and most of what a simulation makes soon goes by itself.

    By default the looking takes an eighth of a run's time.
    """
    gc.enable()
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


def pytest_asyncio_loop_factories(item: pytest.Item) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Run tests marked ``virtual_time`` on a loop whose clock is virtual."""
    if item.get_closest_marker("virtual_time") is not None:
        return {"virtual": VirtualLoop}
    return {"asyncio": asyncio.new_event_loop}


__all__ = ["browser"]
