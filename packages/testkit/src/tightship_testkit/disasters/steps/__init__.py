"""All kinds of steps: a module registers its own when it is imported."""

from tightship_testkit.disasters.steps import people, replicas, workloads

__all__ = ["people", "replicas", "workloads"]
