"""What scenarios call their namespaces and their release.

On a cluster that is not the tests' own each bears a suffix of the run: nothing of anybody else can have the same name.
The suffix is chosen before tests are read, see :mod:`tightship_e2e.options`.
"""

from __future__ import annotations

import os

from tightship_e2e.options import SUFFIX_VARIABLE

SUFFIX = os.environ.get(SUFFIX_VARIABLE, "")

RELEASE = f"tightship{SUFFIX}"
SYSTEM = f"tightship{SUFFIX}"
"""The namespace of the release."""
SHOP = f"shop{SUFFIX}"
"""That of the workloads."""
ELSEWHERE = f"elsewhere{SUFFIX}"
"""One that is nobody's business."""
MEASURES = f"tightship-e2e{SUFFIX}"
"""That of what controllers and HPAs measure."""

NAMESPACES = (SYSTEM, SHOP, ELSEWHERE, MEASURES)

LABELS = {"app.kubernetes.io/managed-by": "tightship-e2e", "e2e.tightship.dev/run": SUFFIX.removeprefix("-")}
"""On everything that is made on a cluster besides what Helm and the scenarios themselves make."""

__all__ = [
    "ELSEWHERE",
    "LABELS",
    "MEASURES",
    "NAMESPACES",
    "RELEASE",
    "SHOP",
    "SUFFIX",
    "SYSTEM",
]
