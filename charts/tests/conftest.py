"""Rendering charts with the real Helm; without it these tests are skipped."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from rendering import EVERYTHING, Feature, Render, Rendered

from tightship_charts.matrix import ALL_APIS, everything, features
from tightship_e2e.renderings import Renderings


@pytest.fixture(scope="session")
def render(charts: Path, renderings: Renderings) -> Render:
    """Render a chart with values."""
    return Render(charts, renderings)


@pytest.fixture(scope="session")
def feature(render: Render) -> Feature:
    """What a chart renders with the values of one feature, or with ``everything``; each is read once."""

    @cache
    def rendered(chart: str, name: str) -> Rendered:
        return render(chart, everything(chart) if name == EVERYTHING else features(chart)[name], apis=ALL_APIS)

    return rendered
