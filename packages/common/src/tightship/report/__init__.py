"""What people see: documents made from plans, and their outputs. Nothing here does I/O.

Only what needs no plan is imported with the package: a controller that plans nothing does without NumPy.
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
