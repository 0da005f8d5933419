"""All kinds of steps: a module registers its own when it is imported."""

from tightship_testkit.disasters.steps import (
    autoscalers,
    clouds,
    configuration,
    extensions,
    groups,
    installations,
    landings,
    metrics,
    people,
    replicas,
    trouble,
    workloads,
)

__all__ = [
    "autoscalers", "clouds", "configuration", "extensions", "groups", "installations", "landings", "metrics",
    "people", "replicas", "trouble", "workloads",
]  # fmt: skip
