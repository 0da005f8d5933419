"""Where a scenario runs: a cluster with Helm, controllers that a chart has installed, and what they are measured by."""

from tightship_e2e.providers.local import ControlPlaneProvider
from tightship_e2e.providers.protocol import (
    Controller,
    ImpossibleError,
    Metrics,
    Provider,
    UnavailableError,
    Values,
)

__all__ = ["ControlPlaneProvider", "Controller", "ImpossibleError", "Metrics", "Provider", "UnavailableError", "Values"]
