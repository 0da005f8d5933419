"""Reports about floors: documents made from judgements, and their presentation. No I/O."""

from hpa_scaler.documents.build import PlanContext, explanation_document, plan_document
from hpa_scaler.documents.document import FloorExplanation, FloorPlan, FloorRelease
from hpa_scaler.documents.pages import plan_page
from hpa_scaler.documents.views import explanation_printout, plan_printout, plan_rows, release_printout, wide_columns
from tightship.documents.presentation import View

PLAN = View(plan_printout, wide_columns, plan_page, plan_rows)
EXPLANATION = View(explanation_printout)
RELEASE = View(release_printout)

__all__ = [
    "EXPLANATION",
    "PLAN",
    "RELEASE",
    "FloorExplanation",
    "FloorPlan",
    "FloorRelease",
    "PlanContext",
    "explanation_document",
    "plan_document",
    "plan_page",
]
