"""A plugin: how tests are handed out to pytest's workers (``-n``), in which order, and how many workers there are.

A worker that gets a test on a control plane starts a plane of its own. There a test mostly waits; the others compute.
More programs at once than there are processors take half as much processor time again, for caches that each finds cold;
longer time slices (:mod:`tightship_testkit.slices`) make that less. So half as many workers as there are processors
compute while others wait for planes, which compute meanwhile, and those that compute give way to the planes. What is
left of the processors goes to workers for tests on virtual time: these may starve, because such a test has no deadline
on the machine's clock. Once no test is left that waits, as many compute as there are processors. Each begins with the
longest. A test goes to any worker of its kind, but those marked ``xdist_group`` to one together.

Every worker reads all tests, which pytest compiles anew where it finds no byte-code: two thirds of that work in a fresh
clone. So each begins to read elsewhere, and finds compiled what another has read.

The plugin pytest-xdist has ``--dist loadgroup`` for groups. In version 3.8 it tells groups by a suffix of a test's id,
which it can't write with pytest 9.2: groups are torn apart without a word. Here workers write them into a file.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Generator, Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Struct
from xdist.scheduler import LoadScopeScheduling

from tightship_testkit import slices

WAITING = 3.0
"""Seconds of a test that mostly waits and does not say how long it takes."""
COMPUTING = 0.1
"""The same of another."""
PER_CPU = 2
"""Workers for each processor: of four, one computes, two have control planes and mostly wait, and one may starve."""
GIVING_WAY = 5
"""By how much workers that compute are nicer than planes."""
SLICE = 0.02
"""The time slice of workers, planes, and whatever else a test starts, in seconds."""
PROGRAMS = {"GOMAXPROCS": "1"}
"""Environment of what a worker starts: servers of a plane need a fifth less processor time if each uses one at once."""
MEMORY = 2 * 2**30
"""Bytes that a worker and its control plane may need, and what a test starts beside them."""
FOLDER = "tightship_groups"
"""Under which name a worker is told the directory for the file with what it found."""

WAITS, COMPUTES, VIRTUAL = "waits", "computes", "virtual"
"""The kinds of tests: on virtual time it computes, and may do so as slowly as it likes."""


class Found(Struct, frozen=True):
    """The unit of each test that is in a group, by the test's id, and the kind of each unit."""

    groups: dict[str, str] = {}
    kinds: dict[str, str] = {}


class Kinds(LoadScopeScheduling):  # type: ignore[misc]  # without types
    """Hands out tests one by one in the order in which workers have them, to workers for their kind; groups whole."""

    def __init__(self, config: pytest.Config, log: Any, folder: Path) -> None:
        config.option.loadscopereorder = False
        super().__init__(config, log)
        self._folder = folder
        self._found = Found()

    def schedule(self) -> None:
        """Begin, once all workers have found the same tests."""
        if self.collection is None:
            # Workers write nothing if they could collect nothing.
            written = next(self._folder.iterdir(), None)
            if written is not None:
                self._found = msgspec.json.decode(written.read_bytes(), type=Found)
        super().schedule()

    def _split_scope(self, nodeid: str) -> str:
        return self._found.groups.get(nodeid, nodeid)

    def _assign_work_unit(self, node: Any) -> None:
        found = self._found.kinds
        own: tuple[str, ...] = (COMPUTES, VIRTUAL)
        if WAITS in found.values():
            own = kinds(_number(node.gateway.id, self.numnodes), self.numnodes, processors())
        unit = next((each for kind in own for each in self.workqueue if found.get(each, COMPUTES) == kind), None)
        if unit is None:
            node.shutdown()
            return
        self.workqueue.move_to_end(unit, last=False)
        super()._assign_work_unit(node)


def kinds(number: int, workers: int, cpus: int) -> tuple[str, ...]:
    """Return which kinds of tests the worker of that *number* takes, in this order.

    At first half as many compute as there are *cpus*; these help with what waits in the end. Once nothing waits any
    more, others compute, too, until as many do as there are *cpus*. The last, if there are enough, may starve.
    """
    if number < min(max(1, cpus // 2), (workers + 1) // 2):
        return COMPUTES, VIRTUAL, WAITS
    if number >= workers - _spare(workers, cpus):
        return (VIRTUAL,)
    return (WAITS, COMPUTES, VIRTUAL) if number < cpus else (WAITS,)


def _spare(workers: int, cpus: int) -> int:
    """Return how many workers run only while nothing else does."""
    return max(0, workers - cpus - max(1, cpus // 2))


def _number(worker: str, workers: int) -> int:
    """Return the number of a worker that pytest-xdist calls ``gw`` and a number, which for a substitute goes on."""
    return int(worker.removeprefix("gw")) % workers


def processors() -> int:
    """Return how many processors we may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Distribution:
    """Has the controlling process hand tests out as above."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="tightship-groups-"))

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Tell a worker where to write."""
        node.workerinput[FOLDER] = str(self._folder)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Any) -> Kinds | None:
        """Hand tests out as above, unless another way was asked for."""
        return Kinds(config, log, self._folder) if config.getoption("dist") == "load" else None

    def pytest_unconfigure(self) -> None:
        """Clean up."""
        shutil.rmtree(self._folder)


def pytest_configure(config: pytest.Config) -> None:
    """Say what the markers are, and hand tests out if there are workers."""
    config.addinivalue_line("markers", "waits: for servers, more than it computes")
    config.addinivalue_line("markers", "takes(seconds): about how long it takes, if long: the longest begin first")
    if hasattr(config, "workerinput"):
        os.environ |= PROGRAMS
    elif config.getoption("numprocesses", None):
        slices.lengthen(SLICE)
        config.pluginmanager.register(Distribution())


@pytest.hookimpl(tryfirst=True, optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Return how many workers ``-n auto`` means: as many control planes as the machine carries.

    Where nothing waits for one, half as many workers again as processors: some tests wait all the same, for a moment.
    """
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    cpus = processors()
    many = cpus + cpus // 2 if "not controlplane" in config.option.markexpr else PER_CPU * cpus
    return max(1, min(many, memory // MEMORY))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Have each worker begin at another entry of a folder."""
    report = yield
    reported = getattr(collector.config, "workerinput", {})
    if FOLDER in reported and isinstance(collector, pytest.Directory):
        workers = reported["workercount"]
        first = len(report.result) * _number(reported["workerid"], workers) // workers
        report.result = [*report.result[first:], *report.result[:first]]
    return report


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Order what workers are to run, in the same way in each; alone, pytest keeps its own order."""
    reported = getattr(config, "workerinput", {})
    if FOLDER in reported:
        units = _units(sorted(items, key=lambda each: each.path))
        ordered = sorted(units.values(), key=_seconds, reverse=True)
        items[:] = [item for unit in ordered for item in unit]
        found = Found(
            groups={each.nodeid: _group(each) for each in items if each.get_closest_marker("xdist_group")},
            kinds={name: kind for name, unit in units.items() if (kind := _kind(unit[0])) != COMPUTES},
        )
        (Path(reported[FOLDER]) / reported["workerid"]).write_bytes(msgspec.json.encode(found))
        if WAITS in found.kinds.values():
            workers = reported["workercount"]
            _give_way(kinds(_number(reported["workerid"], workers), workers, processors())[0])


def _give_way(kind: str) -> None:
    """Let tests that wait, and their planes, go before those of *kind*."""
    if kind == VIRTUAL and hasattr(os, "SCHED_IDLE"):
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    elif kind != WAITS:
        os.nice(GIVING_WAY)


def _units(items: Iterable[pytest.Item]) -> dict[str, list[pytest.Item]]:
    """Return the tests as they are handed out: those of a group together."""
    units: dict[str, list[pytest.Item]] = {}
    for each in items:
        units.setdefault(_group(each), []).append(each)
    return units


def _group(item: pytest.Item) -> str:
    mark = item.get_closest_marker("xdist_group")
    if mark is None:
        return item.nodeid
    return str(mark.args[0] if mark.args else mark.kwargs["name"])


def _kind(item: pytest.Item) -> str:
    if item.get_closest_marker("waits") is not None:
        return WAITS
    return VIRTUAL if item.get_closest_marker("virtual_time") is not None else COMPUTES


def _seconds(unit: list[pytest.Item]) -> float:
    return sum(_alone(each) for each in unit)


def _alone(item: pytest.Item) -> float:
    mark = item.get_closest_marker("takes")
    if mark is not None:
        return float(mark.args[0])
    return WAITING if _kind(item) == WAITS else COMPUTING
