"""All promises: a module registers its own when it is imported."""

from tightship_testkit.disasters.promises import bounds, following, lowering, others, raising, running

__all__ = ["bounds", "following", "lowering", "others", "raising", "running"]
