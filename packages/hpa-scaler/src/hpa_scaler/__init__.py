"""hpa-scaler: raises and lowers the minReplicas of HPAs with the traffic, and never lets them collapse."""

__version__ = "0.1.0"
