"""All promises: a module registers its own when it is imported."""

from tightship_testkit.disasters.promises import cordons, drains, evictions, leading, others, pace, running, silence

__all__ = ["cordons", "drains", "evictions", "leading", "others", "pace", "running", "silence"]
