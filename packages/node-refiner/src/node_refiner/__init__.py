"""node-refiner: counts the nodes that a cluster could do without, and drains one at a time."""

__version__ = "0.1.0"
