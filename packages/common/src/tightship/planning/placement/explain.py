"""Explains why a pod fits nowhere: each node under the first filter that excludes it, and the nearest node."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tightship.core.counting import counted
from tightship.core.objects.pod import PodSpec
from tightship.core.quantity import humanize
from tightship.core.selectors import HARD_EFFECTS, untolerated
from tightship.planning.placement.space import Ask, Space

MOST_CAUSES = 5
"""Most causes that a detail names."""


def why_nowhere(space: Space, ask: Ask) -> tuple[str, str]:
    """Return (detail, fix): the nodes by what excludes them, and the smallest change that would make room.

    The counts are those of kube-scheduler's own message. The fix is empty unless a single shortage is to blame, or only
    taints or the pod's own selector keep the pod from nodes with room.
    """
    spec = ask.template.spec
    names = space.resource_names()
    counts: dict[str, int] = {}

    def count(what: str, how_many: int) -> None:
        if how_many:
            counts[what] = counts.get(what, 0) + how_many

    left = space.open.copy()
    count("not receiving pods", len(space.nodes) - int(left.sum()))
    tolerated, selected = space.filters.tolerated(spec), space.filters.selected(spec)
    for column in np.flatnonzero(left & ~tolerated).tolist():
        taint = untolerated(space.nodes[column].taints, spec.tolerations, HARD_EFFECTS)
        count(f"untolerated taint {taint}", 1)
    left &= tolerated
    count("not matching node selector or affinity", int((left & ~selected).sum()))
    left &= selected
    declared = space.filters.declared(spec)
    count(f"not declaring {', '.join(spec.features)}", int((left & ~declared).sum()))
    left &= declared
    count("out of reach of the pod's volumes", int((left & ~ask.static).sum()))
    left &= ask.static
    lacking = np.zeros(len(space.nodes), dtype=np.int64)
    share = np.zeros(len(space.nodes))
    for row, amount in ask.rows:
        missing = np.maximum(amount - space.free[row], 0)
        count(f"insufficient {names[row]}", int((left & (missing > 0) & (lacking == 0)).sum()))
        lacking += missing > 0
        share += missing * space.scale[row]
    enough = left & (lacking == 0)
    # More room helps only on a node that is large enough for the pod.
    large_enough = np.logical_and.reduce([space.capacity[row] >= amount for row, amount in ask.rows])
    near = np.flatnonzero(left & (lacking == 1) & large_enough)
    rest = enough & ~space.feasible(ask)
    count(_other_filters(spec), int(rest.sum()))
    total = len(space.nodes)
    parts = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    told = [f"{number} {what}" for what, number in parts[:MOST_CAUSES]]
    if len(parts) > MOST_CAUSES:
        told.append(f"{sum(number for _, number in parts[MOST_CAUSES:])} by {len(parts) - MOST_CAUSES} other causes")
    detail = f"fits on 0 of {counted(total, 'node')}: {', '.join(told)}"
    if not len(near) or rest.any():
        claims = any(volume.persistent_volume_claim is not None for volume in spec.volumes)
        roomy = space.open & declared & (lacking == 0) & (not claims)
        return detail, _own_rules(roomy & tolerated & ~selected, roomy & ~tolerated & selected)
    best = int(near[np.argmin(share[near])])
    row, short = next(
        (row, amount - int(space.free[row, best])) for row, amount in ask.rows if space.free[row, best] < amount
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


def _other_filters(spec: PodSpec) -> str:
    parts = [
        ("pod affinity or anti-affinity", bool(spec.affinity or spec.anti_affinity)),
        ("topology spread", bool(spec.spread)),
        ("host port taken", bool(spec.host_ports)),
        ("volume attach limit", any(volume.persistent_volume_claim is not None for volume in spec.volumes)),
    ]
    held = [name for name, has in parts if has]
    return " or ".join(held) if held else "anti-affinity of pods there"
