"""Where the forecasts of HPAs come from. Without the annex there are none, and a floor follows its queries alone."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from hpa_scaler.annotations.queries import NOTHING_FORECAST, Expectations, ForecastKey
from hpa_scaler.judge.decision import FloorDecision
from hpa_scaler.prometheus.client import PrometheusClient
from hpa_scaler.prometheus.samples import Trace


class Forecasts:
    """No forecasts. A source of some overrides the methods."""

    def want(self, keys: Iterable[ForecastKey]) -> None:
        """Keep the pasts of *keys* alone, and read those that are new."""

    def forget(self) -> None:
        """Forget everything: from now on another replica gets the answers."""

    def expected(self, now: float) -> Expectations:
        """Return all forecasts at *now*."""
        del now
        return NOTHING_FORECAST

    def learn(self, decisions: Iterable[FloorDecision]) -> None:
        """Learn the answers that led to *decisions*."""

    def know(self, key: ForecastKey, past: Trace, until: float) -> None:
        """Learn the *past* of *key* before the time *until* from a recording, so that nobody has to read it."""

    async def run(self) -> None:
        """Read one past after the other, until cancelled."""

    async def read(self, keys: Iterable[ForecastKey], now: float, say: Callable[[str], None]) -> Expectations:
        """Return the forecasts of *keys* at *now*, one read after the other."""
        del keys, now, say
        return NOTHING_FORECAST


ForecastMaker: TypeAlias = Callable[[PrometheusClient, logging.Logger, Callable[[], float]], Forecasts]


def offline(make: ForecastMaker) -> Callable[[], Forecasts]:
    """Return what makes a source that reads no past by itself."""
    return lambda: make(PrometheusClient({}), logging.getLogger(__name__), lambda: 0.0)


def made_by(makers: Sequence[ForecastMaker]) -> ForecastMaker:
    """Return what makes the source of forecasts: the first of *makers*, if there is one."""
    return makers[0] if makers else lambda *_: Forecasts()
