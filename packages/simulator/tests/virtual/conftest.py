"""No test on virtual time reaches for the machine around it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tightship_testkit.isolation import outside


@pytest.fixture(autouse=True)
def _alone(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test that opens a socket, starts a thread or a process, or sleeps; its mark ``outside`` lets it."""
    if request.node.get_closest_marker("outside"):
        yield
        return
    with outside() as heard:
        yield
    assert not heard
