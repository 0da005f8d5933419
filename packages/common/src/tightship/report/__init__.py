"""What people see: documents made from plans, and their outputs. Nothing here does I/O.

Only what needs no plan is imported with the package: a controller that plans nothing does without NumPy.
"""

from tightship.report.document import API_VERSION, ExcessSummary, Generator, NodePlan, SettingsView, Source
from tightship.report.explanation import GateCheck, NodeExplanation
from tightship.report.order import DEFAULT_ORDER, ORDERS
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
