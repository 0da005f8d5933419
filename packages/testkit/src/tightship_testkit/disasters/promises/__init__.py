"""All promises: a module registers its own when it is imported."""

from tightship_testkit.disasters.promises import (
    books,
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
    running,
    silence,
)

__all__ = [
    "books", "bounds", "cordons", "displaced", "drains", "evictions", "following", "gangs", "groups", "installations",
    "landings", "leading", "lowering", "others", "pace", "raising", "running", "silence",
]  # fmt: skip
