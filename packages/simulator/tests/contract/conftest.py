"""Every contract test runs on the embedded cluster and, where it is built, on a real control plane."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from contract_api import Api, controlplane, embedded


@pytest.fixture(params=["embedded", pytest.param("controlplane", marks=[pytest.mark.controlplane, pytest.mark.waits])])
async def api(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Api]:
    """An API server with a namespace of the test's own."""
    if request.param == "embedded":
        async with embedded(tmp_path) as made:
            yield made
    else:
        async with controlplane(request.getfixturevalue("real_cluster")) as made:
            yield made


@pytest.fixture
async def scheduler(api: Api) -> AsyncIterator[None]:
    """Pods are bound while the test runs."""
    async with api.scheduler():
        yield
