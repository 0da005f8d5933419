"""Where the charts are, and which there are."""

from __future__ import annotations

from pathlib import Path

CHARTS = Path(__file__).resolve().parents[2]
"""The folder of all charts."""

CONTROLLERS = ("node-compactor", "node-refiner", "hpa-scaler")
"""Charts of one controller each, which install alone."""

UMBRELLA = "tightship"
LIBRARY = "tightship-lib"
INSTALLABLE = (*CONTROLLERS, UMBRELLA)

SHARED = "# --- What all charts of Tightship share: `make charts` copies it from charts/tooling/shared-values.yaml ---"
"""From this line on ``values.yaml`` of a controller's chart is made from :data:`SHARED_VALUES`."""

SHARED_VALUES = CHARTS / "tooling" / "shared-values.yaml"
"""The values that the charts of all controllers have in common."""
