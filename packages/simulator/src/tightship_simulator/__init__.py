"""Clusters made from a seed, and an independent judge of what fits where."""

from tightship_simulator.checker import Move, Removal, check
from tightship_simulator.random_clusters import random_cluster
from tightship_simulator.random_volumes import with_volumes
from tightship_simulator.world import World

__all__ = ["Move", "Removal", "World", "check", "random_cluster", "with_volumes"]
