"""A plugin: how tests are handed out to pytest's workers (``-n``), in which order, and how many workers there are.

Each worker has a control plane of its own, once it needs one. There a test mostly waits; the others compute. Were the
first all handed out before the rest, half of the machine would be idle at first. So both go out side by side, each kind
with its longest first, so that they end together and what comes last is short. A test goes to any worker, but those
marked ``xdist_group`` go to one together.

The plugin pytest-xdist has ``--dist loadgroup`` for that. In version 3.8 it tells groups by a suffix of a test's id,
which it can't write with pytest 9.2: groups are torn apart without a word. Here workers write them into a file.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest
from xdist.scheduler import LoadScopeScheduling

WAITING = 3.0
"""Seconds of a test that mostly waits and does not say how long it takes."""
COMPUTING = 0.1
"""The same of another."""
PER_CPU = 2
"""Workers for each processor: of those that wait for a control plane another runs meanwhile."""
MEMORY = 2 * 2**30
"""Bytes that a worker and its control plane may need, and what a test starts beside them."""
FOLDER = "tightship_groups"
"""Under which name a worker is told the directory for the file with its groups."""

Unit = TypeVar("Unit")


class Groups(LoadScopeScheduling):  # type: ignore[misc]  # without types
    """Hands out tests one by one in the order in which workers have them, and groups of them whole."""

    def __init__(self, config: pytest.Config, log: Any, folder: Path) -> None:
        config.option.loadscopereorder = False
        super().__init__(config, log)
        self._folder = folder
        self._group_of: dict[str, str] = {}

    def schedule(self) -> None:
        """Begin, once all workers have found the same tests."""
        if self.collection is None:
            # Workers write nothing if they could collect nothing.
            written = next(self._folder.iterdir(), None)
            if written is not None:
                self._group_of = msgspec.json.decode(written.read_bytes(), type=dict[str, str])
        super().schedule()

    def _split_scope(self, nodeid: str) -> str:
        return self._group_of.get(nodeid, nodeid)


class Distribution:
    """Has the controlling process hand tests out as above."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="tightship-groups-"))

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Tell a worker where to write."""
        node.workerinput[FOLDER] = str(self._folder)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Any) -> Groups | None:
        """Hand tests out as above, unless another way was asked for."""
        return Groups(config, log, self._folder) if config.getoption("dist") == "load" else None

    def pytest_unconfigure(self) -> None:
        """Clean up."""
        shutil.rmtree(self._folder)


def pytest_configure(config: pytest.Config) -> None:
    """Say what the markers are, and hand tests out if there are workers."""
    config.addinivalue_line("markers", "waits: for servers, more than it computes")
    config.addinivalue_line("markers", "takes(seconds): about how long it takes, if long: the longest begin first")
    if not hasattr(config, "workerinput") and config.getoption("numprocesses", None):
        config.pluginmanager.register(Distribution())


@pytest.hookimpl(tryfirst=True, optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Return how many workers ``-n auto`` means: as many control planes as the machine carries.

    Where nothing waits for one, more workers than processors would only read all tests once more each.
    """
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    each = 1 if "not controlplane" in config.option.markexpr else PER_CPU
    return max(1, min(each * processors, memory // MEMORY))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Order what workers are to run; alone, pytest keeps its own order."""
    told = getattr(config, "workerinput", {})
    if FOLDER in told:
        items[:] = handed_out(items)
        groups = {each.nodeid: _group(each) for each in items if each.get_closest_marker("xdist_group")}
        (Path(told[FOLDER]) / told["workerid"]).write_bytes(msgspec.json.encode(groups))


def handed_out(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """Return the tests in the order in which workers should begin them; those of a group stay together."""
    units: dict[str, list[pytest.Item]] = {}
    for each in items:
        units.setdefault(_group(each), []).append(each)
    waiting = [each for each in units.values() if _waits(each[0])]
    computing = [each for each in units.values() if not _waits(each[0])]
    return [item for unit in side_by_side(waiting, computing, _seconds) for item in unit]


def side_by_side(first: list[Unit], second: list[Unit], seconds: Callable[[Unit], float]) -> Iterator[Unit]:
    """Yield all of both, each the longest first, and as large a part of the one as of the other at any time."""
    queues = [sorted(each, key=seconds, reverse=True) for each in (first, second)]
    totals = [sum(map(seconds, each)) or 1.0 for each in queues]
    spent, places = [0.0, 0.0], [0, 0]
    while any(place < len(queue) for place, queue in zip(places, queues, strict=True)):
        which = min((n for n in (0, 1) if places[n] < len(queues[n])), key=lambda n: spent[n] / totals[n])
        unit = queues[which][places[which]]
        places[which] += 1
        spent[which] += seconds(unit)
        yield unit


def _group(item: pytest.Item) -> str:
    mark = item.get_closest_marker("xdist_group")
    if mark is None:
        return item.nodeid
    return str(mark.args[0] if mark.args else mark.kwargs["name"])


def _waits(item: pytest.Item) -> bool:
    return item.get_closest_marker("waits") is not None


def _seconds(unit: list[pytest.Item]) -> float:
    return sum(_alone(each) for each in unit)


def _alone(item: pytest.Item) -> float:
    mark = item.get_closest_marker("takes")
    if mark is not None:
        return float(mark.args[0])
    return WAITING if _waits(item) else COMPUTING


__all__ = ["handed_out", "side_by_side"]
