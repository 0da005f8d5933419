"""pytest fixtures: `pytest_plugins = ["tightship_e2e.plugin"]` in a conftest.py."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tightship_e2e import binaries
from tightship_e2e.components import COMPONENTS
from tightship_e2e.plane import ControlPlane
from tightship_e2e.reset import reset


def require_binaries(*names: str) -> None:
    """Skip with one line when the servers, or these too, are not built.

    Under `CI=true` that is a failure.
    """
    try:
        binaries.find(*COMPONENTS, *names)
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


@pytest.fixture
def empty_plane(control_plane: ControlPlane) -> ControlPlane:
    """The session's control plane, emptied before the test."""
    control_plane.run(reset)
    return control_plane
