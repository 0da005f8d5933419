"""The misbehaving API server of the tests of ``tightship.kube``."""

from kube.conftest import api, connection, fake_sleep

__all__ = ["api", "connection", "fake_sleep"]
