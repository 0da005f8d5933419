"""What the document of a plan says of the nodes that Karpenter consolidates itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from tightship.objects.counting import counted
from tightship.objects.reasons import Reason, Refusal
from tightship.rules.karpenter import karpenter_pool

if TYPE_CHECKING:
    # hpa-scaler uses documents too, and has no numpy, which plans need.
    from tightship.cluster import Snapshot
    from tightship.planning.plan import Plan

POOLS_NAMED = 3
"""Most NodePools that a line names."""


class KarpenterSummary(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The *nodes* that are left to Karpenter, of which *node_pools*. *unknown* are those whose settings were not read.

    As if Karpenter did not consolidate, the same plan would leave *nodes_after* nodes of the cluster with *evictions*;
    both are ``None`` where nobody asked.
    """

    nodes: int
    node_pools: tuple[str, ...]
    unknown: tuple[str, ...] = ()
    nodes_after: int | None = None
    evictions: int | None = None


def karpenter_summary(
    snapshot: Snapshot, refusals: Mapping[str, tuple[Refusal, ...]], as_if: Plan | None, nodes: int = 0
) -> KarpenterSummary | None:
    """Return what is left to Karpenter by *refusals* of a plan on *snapshot*, ``None`` if nothing is.

    *as_if* is the plan of the *nodes* nodes without the rule.
    """
    left = [
        snapshot.nodes[name].node
        for name, found in refusals.items()
        if name in snapshot.nodes and any(each.reason is Reason.KARPENTER_MANAGED for each in found)
    ]
    if not left:
        return None
    pools = sorted({name for node in left if (name := karpenter_pool(node)) is not None})
    return KarpenterSummary(
        nodes=len(left),
        node_pools=tuple(pools),
        unknown=tuple(name for name in pools if name not in snapshot.node_pools or snapshot.node_pools[name].problem),
        nodes_after=None if as_if is None else nodes - len(as_if.removals),
        evictions=None if as_if is None else as_if.evictions,
    )


def karpenter_line(summary: KarpenterSummary, nodes: int) -> str:
    """Return *summary* of a cluster of *nodes* nodes in one line for people."""
    names, unknown = summary.node_pools, len(summary.unknown)
    more = len(names) - POOLS_NAMED
    listed = ", ".join(names[:POOLS_NAMED]) + (f" and {more} more" if more > 0 else "")
    pools = f"{counted(summary.nodes, 'node')} of NodePool{'s' if len(names) > 1 else ''} {listed}"
    if not unknown:
        said = f"consolidates {pools} itself; the plan leaves them to it"
    elif unknown == len(names):
        said = f"may consolidate {pools}, whose settings were not read; the plan leaves them to it"
    else:
        said = f"consolidates, or may consolidate, {pools}; the plan leaves them to it"
    if summary.nodes_after is None:
        return said
    asked = f"asked as if it did not: {nodes:,} → {summary.nodes_after:,} nodes"
    return f"{said} ({asked}, --disable-rule {Reason.KARPENTER_MANAGED})"
