"""The annexes that the program has. With a folder and its entry here deleted, the rest works as before."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TypeAlias

from hpa_scaler.backtest import add_backtest
from hpa_scaler.forecast import forecasts_of_past
from hpa_scaler.process.forecasts import ForecastMaker, Forecasts
from tightship.cli.arguments import CommandParser

CommandAdder: TypeAlias = Callable[
    ["argparse._SubParsersAction[CommandParser]", CommandParser, Callable[[], Forecasts]], None
]

COMMANDS: tuple[CommandAdder, ...] = (add_backtest,)
"""What adds commands: to the others, to ``replay``, and with a source of forecasts."""

FORECASTS: tuple[ForecastMaker, ...] = (forecasts_of_past,)
"""What makes the source of forecasts; without one, there are none."""
