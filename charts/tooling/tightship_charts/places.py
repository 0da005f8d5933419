"""Where the charts are, and which there are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

CHARTS = Path(__file__).resolve().parents[2]
"""The folder of all charts."""

TOOLING = CHARTS / "tooling"
"""The folder with what files of the charts are made from."""

NODE_CONTROLLERS = ("node-compactor", "node-refiner")
"""Charts whose controllers drain nodes."""

CONTROLLERS = (*NODE_CONTROLLERS, "hpa-scaler")
"""Charts of one controller each, which install alone."""

UMBRELLA = "tightship"
LIBRARY = "tightship-lib"
INSTALLABLE = (*CONTROLLERS, UMBRELLA)

AUDIENCES: Mapping[str, Sequence[str]] = {
    "every chart": INSTALLABLE,
    "every controller": CONTROLLERS,
    "controllers of nodes": NODE_CONTROLLERS,
}
"""The charts that something shared is for, by the words for them in the files of :data:`TOOLING`."""
