"""Finds places for all pods of a node together.

The search is greedy at first, the hardest pods before the easy ones. A pod that finds no place goes to the front, and
the search starts again. A small case that is still open is searched exhaustively, so that its "no place" is exact.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile

import numpy as np
from msgspec import Struct

from tightship.planning.placement.scoring import Choice, best_fit, nodes_to_find
from tightship.planning.placement.space import Ask, Space
from tightship.planning.placement.together import feasible_each, left_over
from tightship.planning.placement.topology import NodeMask, Topology

RETRIES = 8
"""How often a pod without a place moves to the front before the greedy search ends."""

SEARCH_WORK = 400_000
"""Node checks (pods left times nodes, for each step) that an exhaustive search may spend. The search is deep in small
clusters, where a clever placement matters, and shallow in large ones, where one pod decides nothing."""

_Placed = tuple[tuple[int, int], ...]
"""The kinds of pods placed, with their nodes, sorted so that the order of placing does not matter."""


class Fit(Struct, frozen=True):
    """The outcome: a node index for each ask in the order given, or the positions of asks without a place.

    *alone* are asks that fit nowhere even without the others, and that no other could help to a place (as a companion,
    or by raising a spread's minimum). For these the answer is exact. *astray* are asks that have a place, but that
    kube-scheduler would send to a node where they can't run.
    """

    nodes: tuple[int, ...] = ()
    unplaced: tuple[int, ...] = ()
    alone: tuple[int, ...] = ()
    astray: tuple[int, ...] = ()

    @property
    def complete(self) -> bool:
        return not self.unplaced


def fit_all(
    space: Space, asks: Sequence[Ask], choose: Choice = best_fit, retries: int = RETRIES, *, explain: bool = True
) -> Fit:
    """Place all of *asks*. Unless all of them find a node, the space stays unchanged.

    Without *explain*, a search with a single try names just the first ask that finds none.
    """
    if not asks:
        return Fit()
    start = space.mark()
    masks = feasible_each(space, list(dict.fromkeys(asks))) if retries or explain else {}
    fitting = {ask: int(np.count_nonzero(mask)) for ask, mask in masks.items()}
    alone = _alone(asks, fitting) if fitting else ()
    order = sorted(range(len(asks)), key=lambda position: asks[position].hardness)
    # A pod that fits nowhere by itself ends the search at once. With only one try the scheduler's model chooses, which
    # may remember where it ended.
    if alone and (retries or _looks_everywhere(space, asks, order, alone, fitting)):
        return Fit(unplaced=alone, alone=alone)
    if not all(ask.apart for ask in masks):
        masks = {}
    for _ in range(retries + 1):
        failed, nodes = _greedy(space, asks, order, choose, masks)
        if failed is None:
            return Fit(nodes=tuple(nodes[position] for position in range(len(asks))))
        space.rollback(start)
        if order[0] == failed:
            break
        order.remove(failed)
        order.insert(0, failed)
    if alone:
        return Fit(unplaced=alone, alone=alone)
    if retries:
        found = _search(space, asks, order)
        if found is not None:
            for position, node in enumerate(found):
                space.place(asks[position], node)
            return Fit(nodes=found)
    return Fit(unplaced=(order[0],), astray=(order[0],) if order[0] in nodes else ())


def _looks_everywhere(
    space: Space, asks: Sequence[Ask], order: Sequence[int], alone: Sequence[int], fitting: Mapping[Ask, int]
) -> bool:
    """Whether the scheduler's model looks at all nodes on which asks fit that it places before the first *alone*."""
    placed = [asks[position] for position in takewhile(lambda each: each not in alone, order)]
    more = any(ask.affinity.group is not None or ask.spread.own for ask in placed)  # others may open nodes to these
    most = len(space.nodes) if more else max((fitting[ask] for ask in placed), default=0)
    return most <= nodes_to_find(len(space.nodes))


def _alone(asks: Sequence[Ask], fitting: Mapping[Ask, int]) -> tuple[int, ...]:
    """Return the positions of asks that fit nowhere, wherever the others go."""
    if all(fitting.values()):
        return ()
    everyone = range(len(asks))
    return tuple(
        position for position, ask in enumerate(asks) if not fitting[ask] and not _helped(asks, position, everyone)
    )


def _greedy(
    space: Space, asks: Sequence[Ask], order: Sequence[int], choose: Choice, masks: Mapping[Ask, NodeMask]
) -> tuple[int | None, dict[int, int]]:
    """Place *asks* in *order*. If all are apart, *masks* may tell on which nodes each fits alone.

    Return the position that failed, and the nodes chosen: also for that one, if the choice is a stray.
    """
    nodes: dict[int, int] = {}
    queue = list(order)
    while queue:
        postponed: list[int] = []
        for number, position in enumerate(queue):
            ask = asks[position]
            feasible = (left_over(space, ask, masks[ask], nodes) if masks else space.feasible(ask)).nonzero()[0]
            if not len(feasible):
                if not _helped(asks, position, queue[number + 1 :]):
                    return position, nodes
                postponed.append(position)
                continue
            alone = len(feasible) == 1 and ask.strays is None
            nodes[position] = node = int(feasible[0]) if alone else choose(space, ask, feasible)
            if not ask.static[node]:
                return position, nodes
            space.place(ask, node)
        queue = postponed
    return None, nodes


def _helped(asks: Sequence[Ask], position: int, others: Iterable[int]) -> bool:
    """Whether placing one of *others* can open a node to the pod, as a companion or by raising a spread's minimum."""
    ask = asks[position]
    if ask.plain or (ask.affinity.group is None and not ask.spread.own):
        return False
    own = {id(counter) for counter in ask.spread.own}
    group = ask.affinity.group
    for other in others:
        if other == position:
            continue
        if group is not None and any(joined is group for joined in asks[other].affinity.joins):
            return True
        if any(id(counter) in own for counter in asks[other].spread.joins):
            return True
    return False


def _search(space: Space, asks: Sequence[Ask], order: Sequence[int]) -> tuple[int, ...] | None:
    """Search all placements depth first, the pod with the fewest nodes left next; ``None`` if none was found in time.

    If a pod may open nodes to another, the order matters too, so the search then tries every pod next.
    """
    work = SEARCH_WORK
    kinds = _kinds(asks)
    chosen: dict[int, int] = {}
    hopeless: set[_Placed] = set()
    ordered = any(_helped(asks, position, order) for position in order)

    def descend(left: frozenset[int], placed: _Placed) -> bool:
        nonlocal work
        if not left:
            return True
        if placed in hopeless:
            return False
        work -= len(left) * len(space.nodes)
        if work <= 0:
            return False
        options = {position: np.flatnonzero(space.feasible(asks[position])) for position in left}
        nearest = sorted(left, key=lambda each: (len(options[each]), order.index(each)))
        for position in _one_of_each(nearest, kinds) if ordered else nearest[:1]:
            for node in options[position].tolist():
                mark = space.mark()
                space.place(asks[position], node)
                if descend(left - {position}, _with(placed, kinds[position], node)):
                    chosen[position] = node
                    return True
                space.rollback(mark)
        hopeless.add(placed)
        return False

    start = space.mark()
    found = descend(frozenset(range(len(asks))), ())
    space.rollback(start)
    return tuple(chosen[position] for position in range(len(asks))) if found else None


class Leaving(Struct, frozen=True):
    """A pod on its way to node *target*; if it *waits*, its budget lets it go only when others are Ready again."""

    ask: Ask
    target: int
    waits: bool


def stuck_in_turn(space: Space, origin: int, leaving: Sequence[Leaving]) -> tuple[int, ...]:
    """Return the positions of pods that could never land, although each has its place once all have landed.

    Pods that wait leave node *origin* one after another, each only when the previous one runs. Until then they count
    for affinity, anti-affinity and spread on *origin*: a pod that must be beside one of them can't start elsewhere, and
    the other may not leave before it has started. The space has every pod at its target before and after this call.
    """
    if not any(each.waits and not each.ask.plain for each in leaving):
        return ()
    mark = space.mark()
    for each in leaving:
        space.lift(each.ask, each.target)
        if each.waits:
            space.place(each.ask, origin)
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
        space.lift(pod.ask, origin)
    if space.accepts(pod.ask, pod.target):
        space.place(pod.ask, pod.target)
        return True
    if pod.waits:
        space.place(pod.ask, origin)
    return False


def certain(space: Space, asks: Sequence[Ask]) -> bool:
    """Whether every pod finds a place **whatever** feasible node kube-scheduler picks for each, in whatever order.

    This is cheap if room is ample (:func:`_ample`). Otherwise the search plays all choices through, those of equal pods
    once. Running out of :data:`SEARCH_WORK` counts as no.
    """
    if any(ask.affinity.group is not None and ask.affinity.group.nowhere for ask in asks):
        # The last pods of an affinity group leave with this node. A replacement tried while one of them still
        # terminates finds its companion only on the cordoned node, and kube-scheduler does not try it again when that
        # pod has gone (``isSchedulableAfterAssignedPodChange`` skips deletions), but only minutes later.
        return False
    if any(ask.strays is not None and (space.open & ask.strays).any() for ask in asks):
        return False  # the scheduler may choose a node where the pod can't run
    work = SEARCH_WORK
    kinds = _kinds(asks)
    safe_states: set[_Placed] = set()

    def safe(left: tuple[int, ...], placed: _Placed) -> bool:
        nonlocal work
        if not left or placed in safe_states:
            return True
        work -= len(left) * len(space.nodes)
        if work <= 0:
            return False
        masks = {position: space.feasible(asks[position]) for position in left}
        if not all(mask.any() for mask in masks.values()):
            return False
        if _ample(space, asks, left, masks):
            return True
        for position in _one_of_each(left, kinds):
            rest = tuple(each for each in left if each != position)
            for node in np.flatnonzero(masks[position]).tolist():
                mark = space.mark()
                space.place(asks[position], node)
                fine = safe(rest, _with(placed, kinds[position], node))
                space.rollback(mark)
                if not fine:
                    return False
        safe_states.add(placed)
        return True

    return safe(tuple(range(len(asks))), ())


def _kinds(asks: Sequence[Ask]) -> list[int]:
    """Return for each ask the position of the first equal one: replicas can stand in for one another."""
    first: dict[int, int] = {}
    return [first.setdefault(id(ask), position) for position, ask in enumerate(asks)]


def _one_of_each(left: Iterable[int], kinds: Sequence[int]) -> list[int]:
    """Return the first position of each kind, in the order of *left*."""
    first: dict[int, int] = {}
    for position in left:
        first.setdefault(kinds[position], position)
    return list(first.values())


def _with(placed: _Placed, kind: int, node: int) -> _Placed:
    """Return *placed* with one more pod."""
    return tuple(sorted((*placed, (kind, node))))


def _ample(space: Space, asks: Sequence[Ask], left: Sequence[int], masks: Mapping[int, NodeMask]) -> bool:
    """Whether no pod can be shut out of all its feasible nodes by the others, however they are placed.

    A node that has room for all pods together stays open to one that asks for nothing but resources.
    Another pod takes away at most its own node, or, if constraints tie the two together by a topology key, that node's
    whole domain. The first member of a required affinity group ties the group to a single domain, so for a group
    without members nothing is ample.
    """
    together: Counter[int] = Counter()
    for position in left:
        together.update(dict(asks[position].rows))
    for position in left:
        ask = asks[position]
        if ask.affinity.group is not None and ask.affinity.group.nowhere and len(left) > 1:
            return False
        mask = masks[position]
        if ask.plain and _holds_all(space, ask, mask, together):
            continue
        at_stake = 0
        largest: dict[Topology, int] = {}
        for other in left:
            if other == position:
                continue
            loss = 1
            for topology in _tied_by(ask, asks[other]):
                if topology not in largest:
                    largest[topology] = int(topology.nodes_in(mask).max(initial=1))
                loss = max(loss, largest[topology])
            at_stake += loss
        if at_stake >= int(np.count_nonzero(mask)):
            return False
    return True


def _holds_all(space: Space, ask: Ask, mask: NodeMask, together: Mapping[int, int]) -> bool:
    """Whether a node in *mask* has the amounts *together* of every resource that *ask* needs."""
    roomy = mask.copy()
    for row, _ in ask.rows:
        roomy &= space.free[row] >= together[row]
    return bool(roomy.any())


def _tied_by(ask: Ask, other: Ask) -> set[Topology]:
    """Return the topologies by which a pod with *other* can shut a pod with *ask* out of a whole domain."""
    if ask.plain or other.plain:
        return set()
    holding, matching = {id(anti) for anti in other.affinity.own}, {id(anti) for anti in other.affinity.against}
    tied = {anti.matching.topology for anti in ask.affinity.own if id(anti) in matching}
    tied |= {anti.holding.topology for anti in ask.affinity.against if id(anti) in holding}
    joined = {id(counter) for counter in other.spread.joins}
    return tied | {counter.topology for counter in ask.spread.own if id(counter) in joined}
