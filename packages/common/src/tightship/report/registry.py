"""The outputs there are, by the word after ``-o``."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tightship.report.as_html import render_html
from tightship.report.as_json import render_json
from tightship.report.as_table import render_table
from tightship.report.as_text import render_text
from tightship.report.as_wide import render_wide
from tightship.report.as_yaml import render_yaml
from tightship.report.document import NodePlan
from tightship.report.explanation import NodeExplanation
from tightship.report.terminal import Terminal

PLAN_OUTPUTS: Mapping[str, Callable[[NodePlan, Terminal], str]] = {
    "table": render_table,
    "wide": render_wide,
    "json": render_json,
    "yaml": render_yaml,
    "html": render_html,
}
"""Outputs of a plan, the default first."""

EXPLANATION_OUTPUTS: Mapping[str, Callable[[NodeExplanation, Terminal], str]] = {
    "table": render_text,
    "json": render_json,
    "yaml": render_yaml,
}
"""Outputs of an explanation, the default first."""
