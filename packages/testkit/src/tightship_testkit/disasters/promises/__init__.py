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
    rates,
    restarts,
    running,
    savings,
    silence,
    stopping,
    windows,
)

__all__ = [
    "bounds", "cordons", "displaced", "drains", "evictions", "following", "gangs", "groups", "installations",
    "landings", "leading", "lowering", "others", "pace", "raising", "rates", "restarts", "running", "savings",
    "silence", "stopping", "windows",
]  # fmt: skip
