"""The output for people: documents made from plans, and their formats. Does no I/O.

The package itself imports only modules that need no plan, so that a controller without plans need not load NumPy.
"""

from tightship.report.document import (
    API_VERSION,
    DEFAULT_ORDER,
    ORDERS,
    ExcessSummary,
    GateCheck,
    Generator,
    NodeExplanation,
    NodePlan,
    SettingsView,
    Source,
)
from tightship.report.terminal import Terminal

__all__ = [
    "API_VERSION",
    "DEFAULT_ORDER",
    "ORDERS",
    "ExcessSummary",
    "GateCheck",
    "Generator",
    "NodeExplanation",
    "NodePlan",
    "SettingsView",
    "Source",
    "Terminal",
]
