"""The settings of drains, derived from a controller's settings."""

from __future__ import annotations

from tightship.app.settings.sections import NodeSettings
from tightship.drain_io.drain_task import DrainSettings, Keeps


def drain_settings(settings: NodeSettings, keeps: Keeps) -> DrainSettings:
    """Return the settings of drains under *settings*: drains share the rules of the plan before them.

    *keeps* returns the refusals that keep a node of a snapshot as a whole.
    """
    return DrainSettings(
        rules=settings.drain_rules,
        eviction=settings.eviction_rules,
        placement=settings.placement,
        ahead=settings.ahead,
        keeps=keeps,
    )
