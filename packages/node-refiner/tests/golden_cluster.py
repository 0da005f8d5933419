"""The refiner's golden cluster: every reason it gives is the answer for some node, by the one configuration beside it.

``python golden_cluster.py`` writes the files in ``golden/``; see :mod:`tightship_testkit.golden`.

Eight nodes could go, the last one when a budget has been renewed. Their plan is ended three times, one turn after the
other: after four nodes by its length, then by the minimum of nodes, then by the threshold.
"""

from __future__ import annotations

import json
from pathlib import Path

from tightship.objects.reasons import Reason
from tightship_testkit import golden
from tightship_testkit.golden import Golden, Json

FOLDER = Path(__file__).parent / "golden"

GOING = 8
"""Nodes that could go."""

LENGTH = 4
"""Removals after which the plan stops."""


class Refiners(Golden):
    """What is left alone or full is opted out: the refiner knows neither pools nor a limit."""

    def left_alone(self, name: str, shows: str) -> str:
        """Add a node that is opted out."""
        no = {"tightship.dev/do-not-drain": "true"}
        return self.node(name, shows, Reason.NODE_DO_NOT_DRAIN, annotations=no)

    def full(self, name: str, shows: str, cpu: int = 4) -> str:
        """Add a node that is opted out; what runs on it is added by others."""
        no = {"tightship.dev/do-not-drain": "true"}
        return self.node(name, shows, Reason.NODE_DO_NOT_DRAIN, annotations=no, cpu=cpu)


def tainted(g: Refiners) -> None:
    """Taints that keep pods away, and one that does not."""
    taints = [
        {"key": "dedicated", "value": "gpu", "effect": "NoSchedule"},
        {"key": "drained-for-repair", "effect": "NoExecute"},
    ]
    g.node("tainted", "is kept for some pods by a taint", Reason.TAINTED, spec={"taints": taints})
    mark = {"v": 1, "controller": "node-compactor", "phase": "Marked", "since": {"Marked": "2026-10-01T10:00:00.000Z"}}
    soft = [{"key": "tightship.dev/candidate", "value": "node-compactor", "effect": "PreferNoSchedule"}]
    g.node(
        "marked",
        "goes: node-compactor has marked it and would take it next, which is no obstacle",
        annotations={"tightship.dev/drain": json.dumps(mark)},
        spec={"taints": soft},
    )
    g.pod("on-marked", "marked", cpu="50m")


def ends(g: Refiners) -> None:
    """The nodes that could go after those of the other parts, fuller than all that are tried before them."""
    g.full("roomy", "has room for everything", cpu=64)
    g.pod("bulk", "roomy", cpu="33")
    g.node("last-to-go", "goes as the last of four; its DaemonSet pod goes with it")
    g.pod("mover", "last-to-go", cpu="1800m")
    agent = g.workload("DaemonSet", "shop", "agent")
    g.pod("agent-x", "last-to-go", cpu="50m", owned_by=agent, labels={"app": "agent"})
    g.node("one-too-many", "would be the fifth, where the plan stops after four", Reason.MAX_NODES_REACHED)
    g.pod("left-over", "one-too-many", cpu="2")
    g.node(
        "one-too-few",
        "without it the cluster would have a node less than its minimum, besides",
        Reason.MAX_NODES_REACHED,
        Reason.MIN_NODES,
    )
    g.pod("needed", "one-too-few", cpu="2200m")
    g.node(
        "margin",
        "only one more could go after it, where the threshold is three, besides",
        Reason.MAX_NODES_REACHED,
        Reason.MIN_NODES,
        Reason.EXCESS_BELOW_THRESHOLD,
    )
    g.pod("spare", "margin", cpu="2400m")


def build() -> Refiners:
    """Return the golden cluster and what is expected of it."""
    g = Refiners()
    golden.control_plane(g)
    golden.nodes_by_themselves(g)
    tainted(g)
    ends(g)
    golden.pods_that_must_stay(g)
    golden.budgets(g)
    golden.places(g)
    # It would be the turn of the second of the pair after all others.
    ending = (Reason.MAX_NODES_REACHED, Reason.MIN_NODES, Reason.EXCESS_BELOW_THRESHOLD)
    g.refusals["pdb-spent-2"] += [(reason, "pdb-spent-2") for reason in ending]
    # The lowest score goes first.
    g.goes("marked", **{"on-marked": "roomy"})
    g.goes("pdb-spent-1", **{"pair-1": "roomy"})
    g.goes("after-plan-1", first="slot-1")
    g.goes("last-to-go", mover="roomy")
    return g


def config(g: Refiners) -> Json:
    """Return the configuration: a minimum that the sixth node would break, of the nodes as they are counted."""
    return {
        "excessNodesThreshold": 3,
        "minimumNodeCount": remaining(g) - GOING + 3,
        "minimumNonTaintedNodeCount": 2,
        "maximumNodesInPlan": LENGTH,
    }


def remaining(g: Refiners) -> int:
    """Nodes that the cluster keeps: Ready, with CPU to allocate, not cordoned, and taken away by nobody."""
    gone = {"cordoned", "draining", "autoscaler", "karpenter", "terminating", "not-ready", "no-allocatable"}
    names = {item["metadata"]["name"] for item in g.items if item["kind"] == "Node"}
    assert gone <= names
    return len(names - gone)


def files() -> dict[str, str]:
    """Return the content of every file of the folder by name."""
    g = build()
    return golden.files(g, config(g))


if __name__ == "__main__":
    cluster = build()
    golden.write(FOLDER, cluster, config(cluster))
