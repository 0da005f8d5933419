"""The misbehaving API server of the tests of ``tightship.kube``."""

from kube.conftest import api, connection, sleeper

__all__ = ["api", "connection", "sleeper"]
