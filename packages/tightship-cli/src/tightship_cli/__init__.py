"""The command ``tightship``, also a plugin of kubectl: what the commands of all three controllers show."""

__version__ = "0.1.0"
