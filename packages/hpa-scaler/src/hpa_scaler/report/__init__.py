"""Floors for people: documents made from judgements, and their output formats. Nothing here does I/O."""

from collections.abc import Callable, Mapping

from hpa_scaler.report.as_html import plan_page, render_html
from hpa_scaler.report.as_release import render_release
from hpa_scaler.report.as_table import render_table
from hpa_scaler.report.as_text import render_text
from hpa_scaler.report.as_wide import render_wide
from hpa_scaler.report.build import Sights, explanation_document, plan_document
from hpa_scaler.report.document import FloorExplanation, FloorPlan, FloorRelease
from tightship.report.as_json import render_json
from tightship.report.as_yaml import render_yaml
from tightship.report.terminal import Terminal

PLAN_OUTPUTS: Mapping[str, Callable[[FloorPlan, Terminal], str]] = {
    "table": render_table,
    "wide": render_wide,
    "json": render_json,
    "yaml": render_yaml,
    "html": render_html,
}
"""Outputs of a plan, the default first."""

EXPLANATION_OUTPUTS: Mapping[str, Callable[[FloorExplanation, Terminal], str]] = {
    "table": render_text,
    "json": render_json,
    "yaml": render_yaml,
}
"""Outputs of an explanation, the default first."""

RELEASE_OUTPUTS: Mapping[str, Callable[[FloorRelease, Terminal], str]] = {
    "table": render_release,
    "json": render_json,
    "yaml": render_yaml,
}
"""Outputs of a release, the default first."""

__all__ = [
    "EXPLANATION_OUTPUTS",
    "PLAN_OUTPUTS",
    "RELEASE_OUTPUTS",
    "FloorExplanation",
    "FloorPlan",
    "FloorRelease",
    "Sights",
    "explanation_document",
    "plan_document",
    "plan_page",
]
