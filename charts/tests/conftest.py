"""Rendering charts with the real Helm; without it these tests are skipped."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from rendering import EVERYTHING, Feature, Render, Rendered

from tightship_charts.matrix import APIS, Values, everything, features
from tightship_e2e.renderings import Renderings


@pytest.fixture(scope="session")
def render(charts: Path, renderings: Renderings) -> Render:
    """Render a chart with values."""

    def rendered(
        chart: str,
        values: Values | None = None,
        *,
        release: str = "rel",
        namespace: str = "ns",
        apis: Sequence[str] = (),
    ) -> Rendered:
        return Rendered(renderings(charts / chart, values, release=release, namespace=namespace, apis=apis))

    return rendered


@pytest.fixture(scope="session")
def feature(render: Render) -> Feature:
    """What a chart renders with the values of one feature, or with ``everything``; each is read once."""
    known: dict[tuple[str, str], Rendered] = {}

    def rendered(chart: str, name: str) -> Rendered:
        if (chart, name) not in known:
            values = everything(chart) if name == EVERYTHING else features(chart)[name]
            known[chart, name] = render(chart, values, apis=APIS)
        return known[chart, name]

    return rendered
