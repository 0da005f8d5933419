"""All kinds of steps: a module registers its own when it is imported."""

from tightship_testkit.disasters.steps import clouds, configuration, people, replicas, trouble, workloads

__all__ = ["clouds", "configuration", "people", "replicas", "trouble", "workloads"]
