"""A real Kubernetes control plane as plain processes, and what loads a cluster into it."""

from tightship_e2e.load import LoadReport, load
from tightship_e2e.plane import ControlPlane, PlaneError
from tightship_e2e.reset import reset

__all__ = [
    "ControlPlane",
    "LoadReport",
    "PlaneError",
    "load",
    "reset",
]
