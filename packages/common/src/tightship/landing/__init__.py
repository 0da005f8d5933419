"""Leads the replacements of evicted pods to the nodes that a plan chose: the annex of ``steering: hints``."""

from tightship.landing.controller import landing_guide

__all__ = ["landing_guide"]
