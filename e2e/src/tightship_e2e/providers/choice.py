"""Which cluster the scenarios of a run are on, and what becomes of what a cluster can't do."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from tightship_e2e.plane import ControlPlane
from tightship_e2e.providers.existing import Chosen, RefusedError, on_existing
from tightship_e2e.providers.kind import on_kind
from tightship_e2e.providers.local import on_plane
from tightship_e2e.providers.protocol import ImpossibleError, Provider, UnavailableError
from tightship_e2e.providers.remote import Images
from tightship_testkit.invariants import Watched


@contextmanager
def available(provider: str) -> Iterator[None]:
    """Skip what the cluster can't do, in a line. Under `CI=true` it fails, if a cluster of this provider could."""
    try:
        yield
    except UnavailableError as error:
        line = f"{provider}: {error}"
        # Which nodes somebody's cluster has is not for a workflow of ours to say.
        could = provider != "existing" and not isinstance(error, ImpossibleError)
        if could and os.environ.get("CI", "").lower() == "true":
            pytest.fail(line, pytrace=False)
        pytest.skip(line)
    except RefusedError as error:
        pytest.exit(str(error), returncode=pytest.ExitCode.USAGE_ERROR)


@asynccontextmanager
async def chosen(
    config: pytest.Config, plane: ControlPlane | None, folder: Path, *, keep: bool
) -> AsyncIterator[tuple[Watched, Provider]]:
    """Provide the chosen cluster; *plane* is an empty control plane if that is it, *keep* keeps what is installed."""
    images = Images(config.getoption("registry"), config.getoption("tag"))
    match config.getoption("provider"):
        case "kind":
            images = Images(images.registry, images.tag, "Never")  # they are loaded: a pull would be of others
            async with on_kind(config.getoption("kind_cluster"), images, folder, keep=keep) as on:
                yield on.cluster, on
        case "existing":
            said = Chosen(config.getoption("yes_use_this_cluster"), config.getoption("existing_nodes"), images)
            async with on_existing(said, folder, _teller(config)) as somebodys:
                yield somebodys.cluster, somebodys
        case _:
            assert plane is not None
            async with plane.client() as api, on_plane(plane, api, folder) as local:
                yield plane, local


def _teller(config: pytest.Config) -> Callable[[str], None]:
    """Return what writes to the terminal past pytest's capturing."""

    def tell(text: str) -> None:
        capture = config.pluginmanager.getplugin("capturemanager")
        reporter = config.pluginmanager.getplugin("terminalreporter")
        with capture.global_and_fixture_disabled():
            reporter.ensure_newline()
            reporter.write_line(text)

    return tell


__all__ = ["available", "chosen"]
