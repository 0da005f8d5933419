"""What pytest needs for tests of any package; pyproject.toml has it loaded for all of them."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

from tightship_testkit.browser import browser

# How long an example takes says nothing of the property, and on a busy machine much of the machine.
settings.register_profile("patient", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

__all__ = ["browser"]
