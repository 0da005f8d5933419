"""What people see: documents made from plans, and their outputs. Nothing here does I/O."""

from tightship.report.build import plan_document
from tightship.report.document import API_VERSION, ExcessSummary, Generator, NodePlan, SettingsView, Source
from tightship.report.explain import explanation_document
from tightship.report.explanation import GateCheck, NodeExplanation
from tightship.report.gaps import warnings_of
from tightship.report.inputs import Facts, Inputs
from tightship.report.order import DEFAULT_ORDER, ORDERS
from tightship.report.registry import EXPLANATION_OUTPUTS, PLAN_OUTPUTS
from tightship.report.terminal import Terminal

__all__ = [
    "API_VERSION",
    "DEFAULT_ORDER",
    "EXPLANATION_OUTPUTS",
    "ORDERS",
    "PLAN_OUTPUTS",
    "ExcessSummary",
    "Facts",
    "GateCheck",
    "Generator",
    "Inputs",
    "NodeExplanation",
    "NodePlan",
    "SettingsView",
    "Source",
    "Terminal",
    "explanation_document",
    "plan_document",
    "warnings_of",
]
