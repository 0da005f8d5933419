"""Floors for people: documents made from judgements, and how people see them. Nothing here does I/O."""

from hpa_scaler.report.build import Sights, explanation_document, plan_document
from hpa_scaler.report.document import FloorExplanation, FloorPlan, FloorRelease
from hpa_scaler.report.page import plan_page
from hpa_scaler.report.views import explanation_report, plan_report, release_report, wide_columns
from tightship.report.presentation import View

PLAN = View(plan_report, wide_columns, plan_page)
EXPLANATION = View(explanation_report)
RELEASE = View(release_report)

__all__ = [
    "EXPLANATION",
    "PLAN",
    "RELEASE",
    "FloorExplanation",
    "FloorPlan",
    "FloorRelease",
    "Sights",
    "explanation_document",
    "plan_document",
    "plan_page",
]
