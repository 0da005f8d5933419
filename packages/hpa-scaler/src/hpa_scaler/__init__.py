"""hpa-scaler: keeps the minimum of HPAs where the traffic wants it, and never lets it collapse."""

__version__ = "0.1.0"
