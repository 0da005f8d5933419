"""All promises: a module registers its own when it is imported."""

from tightship_testkit.disasters.promises import (
    bounds,
    cordons,
    drains,
    evictions,
    following,
    gangs,
    landings,
    leading,
    lowering,
    others,
    pace,
    raising,
    running,
    silence,
)

__all__ = [
    "bounds", "cordons", "drains", "evictions", "following", "gangs", "landings", "leading", "lowering", "others",
    "pace", "raising", "running", "silence",
]  # fmt: skip
