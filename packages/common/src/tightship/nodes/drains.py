"""The settings of drains, from those of a controller."""

from __future__ import annotations

from tightship.app.settings.sections import NodeSettings
from tightship.drain_io.drain_task import DrainSettings, Keeps


def drain_settings(settings: NodeSettings, keeps: Keeps) -> DrainSettings:
    """Return how drains proceed under *settings*: by the same rules as the plan before them.

    *keeps* says what keeps a node of a snapshot as a whole.
    """
    return DrainSettings(
        rules=settings.drain_rules,
        eviction=settings.eviction_rules,
        placement=settings.placement,
        ahead=settings.ahead,
        keeps=keeps,
    )
