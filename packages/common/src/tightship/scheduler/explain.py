"""Explains why a pod fits nowhere: each node under the first filter that excludes it, and the nearest node."""

from __future__ import annotations

from typing import SupportsInt

import numpy as np
from numpy.typing import NDArray

from tightship.objects.counting import counted
from tightship.objects.quantity import humanize
from tightship.objects.selectors import HARD_EFFECTS, untolerated
from tightship.scheduler.space import PodDemand, Space

MOST_CAUSES = 5
"""Most causes that a detail names."""


def why_nowhere(space: Space, demand: PodDemand) -> tuple[str, str]:
    """Return (detail, fix): the nodes by what excludes them, and the smallest change that would make room.

    The counts are those of kube-scheduler's own message. The fix is empty unless a single shortage is to blame, or only
    taints or the pod's own selector keep the pod from nodes with room.
    """
    spec = demand.template.spec
    names = space.resource_names()
    counts: dict[str, int] = {}

    def count(what: str, how_many: SupportsInt) -> None:
        if how_many:
            counts[what] = counts.get(what, 0) + int(how_many)

    left = space.open.copy()
    count("not receiving pods", len(space.nodes) - np.count_nonzero(left))
    tolerated, selected = space.filters.tolerated(spec), space.filters.selected(spec)
    for column in np.flatnonzero(left & ~tolerated).tolist():
        taint = untolerated(space.nodes[column].taints, spec.tolerations, HARD_EFFECTS)
        count(f"untolerated taint {taint}", 1)
    left &= tolerated
    count("not matching node selector or affinity", np.count_nonzero(left & ~selected))
    left &= selected
    virtual = space.filters.unasked(spec)
    if virtual is not None:
        count("virtual", np.count_nonzero(left & virtual))
        left &= ~virtual
    declared = space.filters.declared(spec)
    count(f"not declaring {', '.join(spec.features)}", np.count_nonzero(left & ~declared))
    left &= declared
    for _, other, mask in space.platforms.others(demand.template):
        count(f"of another {other}", np.count_nonzero(left & mask))
        left &= ~mask
    count("out of reach of the pod's volumes", np.count_nonzero(left & ~demand.static))
    left &= demand.static
    lacking = np.zeros(len(space.nodes), dtype=np.int16)
    enough = left.copy()
    for row, amount in demand.rows:
        short = space.free[row] < amount
        count(f"insufficient {names[row]}", np.count_nonzero(enough & short))
        enough &= ~short
        lacking += short
    near = np.flatnonzero(left & (lacking == 1))
    # More room helps only on a node that is large enough for the pod.
    for row, amount in demand.rows:
        near = near[space.capacity[row, near] >= amount]
    rest = enough & ~space.feasible(demand) if enough.any() else enough
    count(_other_filters(space, demand), np.count_nonzero(rest))
    total = len(space.nodes)
    parts = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    causes = [f"{number} {what}" for what, number in parts[:MOST_CAUSES]]
    if len(parts) > MOST_CAUSES:
        causes.append(f"{sum(number for _, number in parts[MOST_CAUSES:])} by {len(parts) - MOST_CAUSES} other causes")
    detail = f"fits on 0 of {counted(total, 'node')}: {', '.join(causes)}"
    if not len(near) or rest.any():
        claims = any(volume.claims for volume in spec.volumes)
        roomy = space.open & declared & (lacking == 0) & (not claims)
        return detail, _own_rules(roomy & tolerated & ~selected, roomy & ~tolerated & selected)
    share = np.zeros(len(near))
    for row, amount in demand.rows:
        share += np.maximum(amount - space.free[row, near], 0) * space.scale[row]
    best = int(near[np.argmin(share)])
    row, short = next(
        (row, amount - int(space.free[row, best])) for row, amount in demand.rows if space.free[row, best] < amount
    )
    return detail, f"free {humanize(names[row], short)} more {names[row]} on {space.names[best]}"


def _own_rules(unselected: NDArray[np.bool_], tainted: NDArray[np.bool_]) -> str:
    """Return which rule of the pod keeps it from nodes with room for it: *unselected* ones, or *tainted* ones."""
    apart, behind = int(unselected.sum()), int(tainted.sum())
    if apart and apart >= behind:
        others = counted(apart, "node that doesn't match has", "nodes that don't match have")
        return f"widen the node selector or affinity of the pod: {others} room"
    if behind:
        return f"let the pod tolerate a taint: {counted(behind, 'node with one has', 'nodes with one have')} room"
    return ""


def _other_filters(space: Space, demand: PodDemand) -> str:
    spec = demand.template.spec
    shared = any(space.constraints.volumes.users(claim) for claim, _ in demand.attachments.shared)
    parts = [
        ("pod affinity or anti-affinity", bool(spec.affinity or spec.anti_affinity)),
        ("topology spread", bool(spec.spread)),
        ("host port taken", bool(spec.host_ports)),
        ("volume attach limit", bool(demand.attachments.handles or demand.attachments.own)),
        ("disk in use", bool(demand.attachments.disks)),
        ("claim shared with pods elsewhere", shared),
    ]
    held = [name for name, has in parts if has]
    return " or ".join(held) if held else "anti-affinity of pods there"
