"""All promises: a module registers its own when it is imported."""

from tightship_testkit.disasters.promises import (
    bounds,
    cordons,
    displaced,
    drains,
    evictions,
    following,
    gangs,
    groups,
    installations,
    landings,
    leading,
    lowering,
    others,
    pace,
    raising,
    restarts,
    running,
    savings,
    silence,
    stopping,
)

__all__ = [
    "bounds", "cordons", "displaced", "drains", "evictions", "following", "gangs", "groups", "installations",
    "landings", "leading", "lowering", "others", "pace", "raising", "restarts", "running", "savings", "silence",
    "stopping",
]  # fmt: skip
