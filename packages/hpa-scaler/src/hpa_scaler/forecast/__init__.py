"""An annex: what queries will ask for soon, learned from their past.

:func:`forecasts_of_past` is the only entry. Nothing but the command line and the process imports this folder.
"""

from hpa_scaler.forecast.reader import forecasts_of_past

__all__ = ["forecasts_of_past"]
