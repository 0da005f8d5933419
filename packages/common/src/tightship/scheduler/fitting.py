"""Finds places for all pods of a node together.

The search is greedy at first, the hardest pods before the easy ones. A pod that finds no place goes to the front, and
the search starts again. A small case that is still open is searched exhaustively, so that its "no place" is exact.

:func:`why_nowhere` explains why a pod fits nowhere: each node under the first filter that excludes it, and the nearest
node.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile
from typing import SupportsInt

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from tightship.objects.counting import counted
from tightship.objects.quantity import humanize
from tightship.objects.selectors import HARD_EFFECTS, untolerated
from tightship.scheduler.scoring import Choice, best_fit, nodes_to_find
from tightship.scheduler.space import PodDemand, Space
from tightship.scheduler.topology import NodeMask

RETRIES = 8
"""How often a pod without a place moves to the front before the greedy search ends."""

SEARCH_WORK = 400_000
"""Node checks (pods left times nodes, for each step) that an exhaustive search may spend. The search is deep in small
clusters, where a clever placement matters, and shallow in large ones, where one pod decides nothing."""

_MANY = 4
"""Asks from which judging all at once is faster than one after another."""

_FEW = 3
"""Nodes up to which looking at each is faster than looking at all."""

_NOTHING = -(2**62)
"""What any node has left, even one whose pods request more than it has."""

_Placed = tuple[tuple[int, int], ...]
"""The kinds of pods placed, with their nodes, sorted so that the order of placing does not matter."""


class Fit(Struct, frozen=True):
    """The outcome: a node index for each demand in the order given, or the positions of demands without a place.

    *alone* are demands that fit nowhere even without the others, and that no other could help to a place (as a
    companion, or by raising a spread's minimum). For these the answer is exact. *astray* are demands that have a place,
    but that kube-scheduler would send to a node where they can't run.
    """

    nodes: tuple[int, ...] = ()
    unplaced: tuple[int, ...] = ()
    alone: tuple[int, ...] = ()
    astray: tuple[int, ...] = ()

    @property
    def complete(self) -> bool:
        return not self.unplaced


def fit_all(
    space: Space,
    demands: Sequence[PodDemand],
    choose: Choice = best_fit,
    retries: int = RETRIES,
    *,
    explain: bool = True,
) -> Fit:
    """Place all of *demands*. Unless all of them find a node, the space stays unchanged.

    Without *explain*, a search with a single try names just the first demand that finds none.
    """
    if not demands:
        return Fit()
    start = space.mark()
    masks = feasible_each(space, list(dict.fromkeys(demands))) if retries or explain else {}
    fitting = {demand: int(np.count_nonzero(mask)) for demand, mask in masks.items()}
    alone = _alone(demands, fitting) if fitting else ()
    order = sorted(range(len(demands)), key=lambda position: demands[position].hardness)
    # A pod that fits nowhere by itself ends the search at once. With only one try the scheduler's model chooses, which
    # may remember where it ended.
    if alone and (retries or _looks_everywhere(space, demands, order, alone, fitting)):
        return Fit(unplaced=alone, alone=alone)
    if not all(demand.node_local for demand in masks):
        masks = {}
    for _ in range(retries + 1):
        failed, nodes = _greedy(space, demands, order, choose, masks)
        if failed is None:
            return Fit(nodes=tuple(nodes[position] for position in range(len(demands))))
        space.rollback(start)
        if order[0] == failed:
            break
        order.remove(failed)
        order.insert(0, failed)
    if alone:
        return Fit(unplaced=alone, alone=alone)
    if retries:
        found = _search(space, demands, order)
        if found is not None:
            for position, node in enumerate(found):
                space.place(demands[position], node)
            return Fit(nodes=found)
    return Fit(unplaced=(order[0],), astray=(order[0],) if order[0] in nodes else ())


def feasible_each(space: Space, demands: Sequence[PodDemand]) -> dict[PodDemand, NodeMask]:
    """Return what :meth:`Space.feasible` does for each of *demands*, which differ."""
    if len(demands) < _MANY:
        return {demand: space.feasible(demand) for demand in demands}
    masks = np.array([demand.static for demand in demands])
    masks &= space.open
    wanted: dict[int, list[int]] = {}
    for number, demand in enumerate(demands):
        for row, amount in demand.rows:
            wanted.setdefault(row, [_NOTHING] * len(demands))[number] = amount
    for row, amounts in wanted.items():
        masks &= space.free[row] >= np.array(amounts)[:, None]
    space.constraints.restrict_all(masks, demands)
    return dict(zip(demands, masks, strict=True))


def _left_over(space: Space, demand: PodDemand, mask: NodeMask, nodes: Mapping[int, int]) -> NodeMask:
    """Return where *demand* still fits of the nodes in *mask*, now that node-local others have *nodes*."""
    taken = [node for node in set(nodes.values()) if mask[node]]
    if len(taken) > _FEW:
        return space.feasible(demand)
    gone = [node for node in taken if not space.accepts(demand, node)]
    if gone:
        mask = mask.copy()
        mask[gone] = False
    return mask


def _looks_everywhere(
    space: Space,
    demands: Sequence[PodDemand],
    order: Sequence[int],
    alone: Sequence[int],
    fitting: Mapping[PodDemand, int],
) -> bool:
    """Whether the scheduler's model looks at all nodes on which demands fit that it places before the first *alone*."""
    placed = [demands[position] for position in takewhile(lambda each: each not in alone, order)]
    more = any(
        demand.affinity.group is not None or demand.spread.own for demand in placed
    )  # others may open nodes to these
    most = len(space.nodes) if more else max((fitting[demand] for demand in placed), default=0)
    return most <= nodes_to_find(len(space.nodes))


def _alone(demands: Sequence[PodDemand], fitting: Mapping[PodDemand, int]) -> tuple[int, ...]:
    """Return the positions of demands that fit nowhere, wherever the others go."""
    if all(fitting.values()):
        return ()
    everyone = range(len(demands))
    return tuple(
        position
        for position, demand in enumerate(demands)
        if not fitting[demand] and not _helped(demands, position, everyone)
    )


def _greedy(
    space: Space,
    demands: Sequence[PodDemand],
    order: Sequence[int],
    choose: Choice,
    masks: Mapping[PodDemand, NodeMask],
) -> tuple[int | None, dict[int, int]]:
    """Place *demands* in *order*. If all are node-local, *masks* may tell on which nodes each fits alone.

    Return the position that failed, and the nodes chosen: also for that one, if the choice is a stray.
    """
    nodes: dict[int, int] = {}
    queue = list(order)
    while queue:
        postponed: list[int] = []
        for number, position in enumerate(queue):
            demand = demands[position]
            feasible = (_left_over(space, demand, masks[demand], nodes) if masks else space.feasible(demand)).nonzero()[
                0
            ]
            if not len(feasible):
                if not _helped(demands, position, queue[number + 1 :]):
                    return position, nodes
                postponed.append(position)
                continue
            alone = len(feasible) == 1 and demand.strays is None
            nodes[position] = node = int(feasible[0]) if alone else choose(space, demand, feasible)
            if not demand.static[node]:
                return position, nodes
            space.place(demand, node)
        queue = postponed
    return None, nodes


def _helped(demands: Sequence[PodDemand], position: int, others: Iterable[int]) -> bool:
    """Whether placing one of *others* can open a node to the pod, as a companion or by raising a spread's minimum."""
    demand = demands[position]
    if demand.plain or (demand.affinity.group is None and not demand.spread.own):
        return False
    own = {id(counter) for counter in demand.spread.own}
    group = demand.affinity.group
    for other in others:
        if other == position:
            continue
        if group is not None and any(joined is group for joined in demands[other].affinity.joins):
            return True
        if any(id(counter) in own for counter in demands[other].spread.joins):
            return True
    return False


def _search(space: Space, demands: Sequence[PodDemand], order: Sequence[int]) -> tuple[int, ...] | None:
    """Search all placements depth first, the pod with the fewest nodes left next; ``None`` if none was found in time.

    If a pod may open nodes to another, the order matters too, so the search then tries every pod next.
    """
    work = SEARCH_WORK
    kinds = _kinds(demands)
    chosen: dict[int, int] = {}
    hopeless: set[_Placed] = set()
    ordered = any(_helped(demands, position, order) for position in order)

    def descend(left: frozenset[int], placed: _Placed) -> bool:
        nonlocal work
        if not left:
            return True
        if placed in hopeless:
            return False
        work -= len(left) * len(space.nodes)
        if work <= 0:
            return False
        options = {position: np.flatnonzero(space.feasible(demands[position])) for position in left}
        nearest = sorted(left, key=lambda each: (len(options[each]), order.index(each)))
        for position in _one_of_each(nearest, kinds) if ordered else nearest[:1]:
            for node in options[position].tolist():
                mark = space.mark()
                space.place(demands[position], node)
                if descend(left - {position}, _with(placed, kinds[position], node)):
                    chosen[position] = node
                    return True
                space.rollback(mark)
        hopeless.add(placed)
        return False

    start = space.mark()
    found = descend(frozenset(range(len(demands))), ())
    space.rollback(start)
    return tuple(chosen[position] for position in range(len(demands))) if found else None


class Leaving(Struct, frozen=True):
    """A pod on its way to node *target*; if it *waits*, its budget lets it go only when others are Ready again."""

    demand: PodDemand
    target: int
    waits: bool


def stuck_in_turn(space: Space, origin: int, leaving: Sequence[Leaving]) -> tuple[int, ...]:
    """Return the positions of pods that could never land, although each has its place once all have landed.

    Pods that wait leave node *origin* one after another, each only when the previous one runs. Until then they count
    for affinity, anti-affinity and spread on *origin*: a pod that must be beside one of them can't start elsewhere, and
    the other may not leave before it has started. The space has every pod at its target before and after this call.
    """
    if not any(each.waits and not each.demand.plain for each in leaving):
        return ()
    mark = space.mark()
    for each in leaving:
        space.remove(each.demand, each.target)
        if each.waits:
            space.place(each.demand, origin)
    left = list(range(len(leaving)))
    while left:
        landed = next((position for position in left if _lands(space, origin, leaving[position])), None)
        if landed is None:
            break
        left.remove(landed)
    space.rollback(mark)
    return tuple(left)


def _lands(space: Space, origin: int, pod: Leaving) -> bool:
    if pod.waits:
        space.remove(pod.demand, origin)
    if space.accepts(pod.demand, pod.target):
        space.place(pod.demand, pod.target)
        return True
    if pod.waits:
        space.place(pod.demand, origin)
    return False


def _kinds(demands: Sequence[PodDemand]) -> list[int]:
    """Return for each demand the position of the first equal one: replicas can stand in for one another."""
    first: dict[int, int] = {}
    return [first.setdefault(id(demand), position) for position, demand in enumerate(demands)]


def _one_of_each(left: Iterable[int], kinds: Sequence[int]) -> list[int]:
    """Return the first position of each kind, in the order of *left*."""
    first: dict[int, int] = {}
    for position in left:
        first.setdefault(kinds[position], position)
    return list(first.values())


def _with(placed: _Placed, kind: int, node: int) -> _Placed:
    """Return *placed* with one more pod."""
    return tuple(sorted((*placed, (kind, node))))


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
