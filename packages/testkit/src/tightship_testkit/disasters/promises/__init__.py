"""All promises: a module registers its own when it is imported."""

from tightship_testkit.disasters.promises import others, running

__all__ = ["others", "running"]
