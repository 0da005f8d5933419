"""PriorityClasses for pods whose priority the file holds as a number.

The API server computes a pod's priority from its class and refuses another number, so a
pod whose class is absent, or has another value by now, gets a class made for its number.
"""

from __future__ import annotations

from tightship_e2e.source import clean
from tightship_testkit.client import Json

BUILT_IN = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
PREEMPTS = "PreemptLowerPriority"


def assign(pods: list[Json], declared: list[Json]) -> list[Json]:
    """Set each pod's class so that its number comes out; returns the classes to create."""
    classes: dict[str, Json] = {}
    for item in declared:
        if item["metadata"]["name"] not in BUILT_IN:
            # A default for pods without a class would change those that are older than it.
            classes[item["metadata"]["name"]] = {**clean(item), "globalDefault": False}
    values = {name: (item["value"], _policy(item)) for name, item in classes.items()}
    values |= {name: (value, PREEMPTS) for name, value in BUILT_IN.items()}
    for pod in pods:
        spec = pod["spec"]
        name = spec.get("priorityClassName") or ""
        wanted = (spec.pop("priority", None), _policy(spec))
        if wanted[0] is None:
            wanted = values.get(name, (0, wanted[1]))
        spec.pop("preemptionPolicy", None)
        if values.get(name, (0, PREEMPTS) if not name else None) == wanted:
            continue
        if not name or name in values:
            sign = "minus-" if wanted[0] < 0 else ""
            name = f"e2e-{sign}{abs(wanted[0])}-{wanted[1].lower()}"
        spec["priorityClassName"] = name
        values[name] = wanted
        classes[name] = {
            "kind": "PriorityClass",
            "metadata": {"name": name},
            "value": wanted[0],
            "preemptionPolicy": wanted[1],
        }
    return list(classes.values())


def _policy(item: Json) -> str:
    return item.get("preemptionPolicy") or PREEMPTS
