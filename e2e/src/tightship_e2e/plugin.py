"""What pytest needs for tests on a control plane: options, fixtures, and skips where something is not built."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from tightship_e2e import binaries, options
from tightship_e2e.charts import built
from tightship_e2e.components import COMPONENTS
from tightship_e2e.draining import TALLY
from tightship_e2e.exporter import Exporter
from tightship_e2e.helm import Helm
from tightship_e2e.plane import ControlPlane
from tightship_e2e.prometheus import SLOW, Prometheus
from tightship_e2e.real_cluster import RealCluster
from tightship_e2e.renderings import Renderings
from tightship_e2e.reset import reset
from tightship_simulator.life.scraping import growing

PLANES = frozenset({"control_plane", "somebodys", "on_shop_cluster"})
"""Fixtures that start a control plane."""
OLDER = os.environ.get("TIGHTSHIP_KUBERNETES", "")
"""The older minor release of Kubernetes on which the control plane's tests run; empty for the newest."""
PROGRAMS = frozenset({*PLANES, "built_program", "charts", "helm", "promtool"})
"""Fixtures without which a test is skipped where nothing is built."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let a run choose its random clusters, and the cluster for whole releases."""
    clusters = int(os.environ.get("TIGHTSHIP_CLUSTERS", "12"))
    first = int(os.environ.get("TIGHTSHIP_FIRST_SEED", "0"))
    parser.addoption("--clusters", type=int, default=clusters, help="random clusters to try on the scheduler")
    parser.addoption("--first-seed", type=int, default=first, help="seed of the first random cluster")
    options.add_options(parser)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Name the run before any test is read."""
    options.name_run(early_config.known_args_namespace)


def pytest_configure(config: pytest.Config) -> None:
    """Refuse a choice of clusters that can't be meant."""
    config.addinivalue_line("markers", options.MARKER)
    if found := options.problems(config.option):
        raise pytest.UsageError("\n".join(found))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what needs a control plane, and leave out what is for other providers."""
    for each in items:
        asked = frozenset(getattr(each, "fixturenames", ()))
        if asked & PROGRAMS:
            each.add_marker("controlplane")
        if asked & PLANES:
            each.add_marker("waits")
        if OLDER and each.get_closest_marker("newest") and each.get_closest_marker("controlplane"):
            each.add_marker(pytest.mark.skip(reason=f"Kubernetes {OLDER} does not do this yet"))
    options.deselect(config, items)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how much was compared with the scheduler."""
    if TALLY:
        counts = ", ".join(f"{count} {what}" for what, count in sorted(TALLY.items()))
        terminalreporter.write_line(f"agreement with kube-scheduler: {counts}")


def require_binaries(*names: str) -> None:
    """Skip with one line when a control plane's servers, or these too, are not built.

    Under `CI=true` that is a failure.
    """
    require_programs(*COMPONENTS, *names)


def require_programs(*names: str) -> None:
    """Skip with one line when these programs are not built; under `CI=true` that is a failure."""
    with _required():
        binaries.find(*names)


@contextmanager
def _required() -> Iterator[None]:
    try:
        yield
    except binaries.NotBuiltError as error:
        if os.environ.get("CI", "").lower() == "true":
            pytest.fail(str(error), pytrace=False)
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def control_plane() -> Iterator[ControlPlane]:
    """One control plane for the whole run, with an audit log."""
    require_binaries()
    with ControlPlane(audit=True) as plane:
        yield plane


@pytest.fixture(scope="session")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """Helm, with caches of its own, and no cluster."""
    require_programs("helm")
    return Helm(binaries.find("helm")["helm"], tmp_path_factory.mktemp("helm"))


@pytest.fixture(scope="session")
def charts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of all charts with their dependencies: built once for all workers of this run."""
    with _required():
        helm = Helm(binaries.find_or_installed("helm"), tmp_path_factory.mktemp("helm"))
    return built(helm, _shared(tmp_path_factory) / "charts")


@pytest.fixture(scope="session")
def renderings(helm: Helm, tmp_path_factory: pytest.TempPathFactory) -> Renderings:
    """What charts render: once for all workers of this run."""
    return Renderings(helm, _shared(tmp_path_factory) / "renderings")


def _shared(factory: pytest.TempPathFactory) -> Path:
    """Return a folder that all workers of this run have."""
    own = factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


@pytest.fixture
def empty_plane(control_plane: ControlPlane) -> ControlPlane:
    """The session's control plane, emptied before the test."""
    control_plane.run(reset)
    return control_plane


@pytest.fixture(scope="session")
def real_cluster(control_plane: ControlPlane) -> RealCluster:
    """The session's control plane, for tests of packages that know only its API."""
    return RealCluster(control_plane)


@pytest.fixture(scope="session")
def built_program() -> Callable[[str], Path]:
    """Where a program of the control plane's is; without it the test is skipped."""

    def find(name: str) -> Path:
        require_programs(name)
        return binaries.find(name)[name]

    return find


class Scraped(NamedTuple):
    """A real Prometheus and the exporter that it scrapes; *slow* is a query that takes it seconds."""

    exporter: Exporter
    server: Prometheus
    slow: str
    growing: Callable[[float], Callable[[], float]]


@pytest.fixture(scope="session")
def real_prometheus() -> Callable[..., AbstractContextManager[Scraped]]:
    """What starts a Prometheus with an exporter, for tests of packages that know only what it answers."""
    require_programs("prometheus")

    @contextmanager
    def start(interval: float, flags: Sequence[str] = ()) -> Iterator[Scraped]:
        with Exporter() as exporter, Prometheus(exporter.target, interval=interval, flags=flags) as server:
            yield Scraped(exporter, server, SLOW, growing)

    return start


__all__ = [
    "Scraped",
    "charts",
    "control_plane",
    "empty_plane",
    "helm",
    "real_prometheus",
    "renderings",
    "require_binaries",
    "require_programs",
]
