"""The annexes that the program has. With a folder and its entry here deleted, the rest works as before."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TypeAlias

from hpa_scaler.backtest import add_backtest
from hpa_scaler.forecast import forecasts_of_past
from hpa_scaler.process.forecasts import ForecastMaker, Forecasts
from tightship.cli.arguments import CommandParser
from tightship.objects.money import PriceReader
from tightship.prices import prices

CommandAdder: TypeAlias = Callable[
    ["argparse._SubParsersAction[CommandParser]", CommandParser, Callable[[], Forecasts], PriceReader | None], None
]

COMMANDS: tuple[CommandAdder, ...] = (add_backtest,)
"""What adds commands: to the others, to ``replay``, with a source of forecasts, and with what reads prices."""

FORECASTS: tuple[ForecastMaker, ...] = (forecasts_of_past,)
"""What makes the source of forecasts; without one, there are none."""

PRICES: PriceReader | None = prices
"""What reads lists of prices; without it, a price is a number."""
