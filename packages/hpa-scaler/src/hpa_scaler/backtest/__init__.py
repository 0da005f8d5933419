"""An annex: what annotations would have done over the recorded past, and which ones to write.

:func:`add_backtest` is the only entry. Nothing but the command line imports this folder.
"""

from hpa_scaler.backtest.commands import add_backtest

__all__ = ["add_backtest"]
