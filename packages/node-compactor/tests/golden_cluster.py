"""The compactor's golden cluster: every reason it can give is the answer for some node, under the one configuration
beside it.

``python golden_cluster.py`` writes the files in ``golden/``; see :mod:`tightship_testkit.golden`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tightship.objects.reasons import Reason
from tightship_testkit import golden
from tightship_testkit.golden import Golden, Json, ago

FOLDER = Path(__file__).parent / "golden"

CONFIG: Json = {
    "nodePools": {
        "general": {
            "enabled": True,
            "scaleDownCPURequestRatioLimit": 0.5,
            "scaleDownRequiredUnderutilizedNodeCount": 0,
        },
        "frozen": {
            "enabled": False,
            "scaleDownCPURequestRatioLimit": 0.5,
            "scaleDownRequiredUnderutilizedNodeCount": 0,
        },
        "few": {
            "enabled": True,
            "scaleDownCPURequestRatioLimit": 0.5,
            "scaleDownRequiredUnderutilizedNodeCount": 3,
        },
        "minimum": {"enabled": True, "scaleDownCPURequestRatioLimit": 0.5, "minimumNodeCount": 1},
        "budget": {"enabled": True, "scaleDownCPURequestRatioLimit": 0.5, "maximumNodesInDrain": 1},
        "karpenter": {"enabled": True, "scaleDownCPURequestRatioLimit": 0.5},
    },
    "minimumNodeAge": "20m",
    "neededMarkedTimeForRemoval": "5m",
    "maximumNodesInPlan": 7,
}


class Compactors(Golden):
    """Nodes are marked by the older controller two hours ago, unless told otherwise."""

    def node(self, name: str, shows: str, *reasons: Reason, marked: bool = True, **given: Any) -> str:
        """Add a node."""
        notes = dict(given.pop("annotations", None) or {})
        if marked:
            state = {"enabled": "true", "scaleDownInProgress": False, "lastUpdated": ago(hours=2)}
            notes["estafette.io/node-compactor-state"] = json.dumps(state)
        return super().node(name, shows, *reasons, annotations=notes, **given)

    def left_alone(self, name: str, shows: str) -> str:
        """Add a node of the pool that is switched off."""
        return self.node(name, shows, Reason.POOL_DISABLED, pool="frozen")

    def full(self, name: str, shows: str, cpu: int = 4) -> str:
        """Add a node over the limit."""
        return self.node(name, shows, Reason.NOT_UNDERUTILIZED, cpu=cpu)


def pools(g: Compactors) -> None:
    """Pools that the configuration leaves out."""
    g.node("elsewhere", "its pool is not in the configuration", Reason.POOL_NOT_CONFIGURED, pool="elsewhere")
    g.left_alone("frozen", "its pool is switched off")


def gates(g: Compactors) -> None:
    """What the configuration asks of nodes and pools."""
    g.full("roomy", "more of its CPU is requested than the limit, and there is room left", cpu=64)
    g.pod("bulk", "roomy", cpu="33")
    g.node("young", "was made a moment ago", Reason.TOO_YOUNG, metadata={"creationTimestamp": ago(minutes=19)})
    g.node("unmarked", "nothing says since when it is underutilized", Reason.NOT_MARKED_LONG_ENOUGH, marked=False)
    g.node("few-1", "one underutilized node where three are required", Reason.REQUIRED_COUNT_NOT_REACHED, pool="few")
    g.node("minimum-1", "goes: its pool keeps its minimum", pool="minimum")
    g.node("minimum-2", "the last node its pool must keep", Reason.POOL_MIN_SIZE, pool="minimum")
    g.node("budget-1", "goes: its pool may have one node out", pool="budget")
    g.node("budget-2", "goes: a budget sets the pace, not the direction", pool="budget")
    g.node("poured", "goes: its pod fills the node beside it up to the limit")
    g.pod("drop", "poured", also_on=("filled",), cpu="1050m")
    full = (Reason.FILLED_BY_PLAN, Reason.MAX_NODES_REACHED)
    g.node("filled", "takes what comes from the node beside it, and would be the eighth", *full)
    g.pod("basin", "filled", cpu="1100m")
    g.node("last-to-go", "goes as the last of seven; its DaemonSet pod goes with it")
    g.pod("mover", "last-to-go", cpu="1800m")
    agent = g.workload("DaemonSet", "shop", "agent")
    g.pod("agent-x", "last-to-go", cpu="50m", owned_by=agent, labels={"app": "agent"})
    g.node("one-too-many", "would be the eighth, where the plan stops after seven", Reason.MAX_NODES_REACHED)
    g.pod("left-over", "one-too-many", cpu="1900m")


def build() -> Compactors:
    """Return the golden cluster and what is expected of it."""
    g = Compactors()
    golden.control_plane(g)
    pools(g)
    golden.nodes_by_themselves(g)
    gates(g)
    golden.pods_that_must_stay(g)
    golden.budgets(g)
    golden.places(g)
    # The least utilized go first, by name among equals.
    g.goes("budget-1")
    g.goes("budget-2")
    g.goes("minimum-1")
    g.goes("pdb-spent-1", **{"pair-1": "roomy"})
    g.goes("after-plan-1", first="slot-1")
    g.goes("poured", drop="filled")
    g.goes("last-to-go", mover="roomy")
    return g


def files() -> dict[str, str]:
    """Return the content of every file of the folder by name."""
    return golden.files(build(), CONFIG)


if __name__ == "__main__":
    golden.write(FOLDER, build(), CONFIG)
