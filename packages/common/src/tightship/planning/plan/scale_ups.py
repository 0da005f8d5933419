"""Replicas that HPAs are about to start, and pods that others will move: the room that a plan keeps for them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from tightship.core.objects import Pod
from tightship.core.reasons import Reason, Refusal
from tightship.planning.cluster import Starting
from tightship.planning.placement.space import Ask, Space

MOST_IN_THE_WAY = 100
"""Most replicas for which to look for another place to let one node go; about as many pods as a node may have."""

SHOWN = 3
"""HPAs that a refusal names."""


class Guest(Struct, frozen=True):
    """A pod in the space: the node from which this plan took it, and its demands.

    A guest without an *origin* is not an eviction of ours and only needs room: it is pending, it leaves a node in
    drain, somebody else will move it *because* of something, or it is one of the replicas *starting*.
    """

    pod: Pod
    ask: Ask
    origin: str
    starting: Starting | None = None
    because: str = ""


def is_starting(guest: Guest) -> bool:
    """Whether *guest* is a replica about to start."""
    return guest.starting is not None


def is_displaced(guest: Guest) -> bool:
    """Whether *guest* is on a node that somebody else empties, or that has failed."""
    return bool(guest.because)


class RoomOf:
    """Adds up the amounts that guests of one *kind* take on each node of *space*. Other guests leave it as it is."""

    def __init__(self, space: Space, kind: Callable[[Guest], bool]) -> None:
        self._space = space
        self._kind = kind
        self._held: NDArray[np.int64] | None = None
        self._count: NDArray[np.int64] = np.zeros(len(space.nodes), dtype=np.int64)

    def copied(self) -> RoomOf:
        """Return the same amounts, to be changed apart."""
        copy = RoomOf(self._space, self._kind)
        copy._held = None if self._held is None else self._held.copy()
        copy._count = self._count.copy()
        return copy

    def add(self, guest: Guest, node: int, step: int = 1) -> None:
        """Record that *guest* is on *node*, or, with *step* -1, that it no longer is."""
        if not self._kind(guest):
            return
        if self._held is None:
            self._held = np.zeros_like(self._space.free)
        for row, amount in guest.ask.rows:
            self._held[row, node] += step * amount
        self._count[node] += step

    def shift(self, guest: Guest, origin: int, target: int) -> None:
        """Record the move of *guest*."""
        self.add(guest, origin, -1)
        self.add(guest, target)

    def in_the_way(self, asks: Sequence[Ask], waiting: Mapping[int, Sequence[Guest]]) -> list[tuple[int, Guest]]:
        """Return the guests of the kind, with their nodes, that take places from one of *asks*.

        *waiting* holds the guests of each node. Only open nodes count.
        """
        space, held = self._space, self._held
        if held is None:
            return []
        nodes = np.flatnonzero((self._count > 0) & space.open)
        useful = np.zeros(len(nodes), dtype=np.bool_)
        for ask in dict.fromkeys(asks):
            fits = ask.static[nodes].copy()
            for row, amount in ask.rows:
                fits &= space.free[row, nodes] + held[row, nodes] >= amount
            useful |= fits
        found: list[tuple[int, Guest]] = []
        for node in nodes[useful].tolist():
            found += [(node, guest) for guest in waiting[node] if self._kind(guest)]
            if len(found) >= MOST_IN_THE_WAY:
                break
        return found


def needed(node: str, homeless: Iterable[Guest], *, sure: bool = True) -> Refusal:
    """Return why *node* can't go: replicas about to start, among them *homeless*, would not all have room.

    If that is not *sure*, kube-scheduler could still place them all by choosing well.
    """
    hpas = {guest.starting.hpa: guest.starting for guest in homeless if guest.starting is not None}
    first = [str(hpas[key]) for key in sorted(hpas)][:SHOWN]
    more = f" and {len(hpas) - SHOWN} more" if len(hpas) > SHOWN else ""
    lacking = (
        "not all of them would have room"
        if sure
        else "kube-scheduler's own choices could leave them, or pods of the node, without a place"
    )
    detail = f"{'; '.join(first)}{more}: without this node {lacking}"
    fix = "wait until they run, or add capacity for them"
    return Refusal(Reason.SCALE_UP_NEEDS_NODE, node, detail, fix)


def needed_by_displaced(node: str, guests: Iterable[Guest]) -> Refusal:
    """Return why *node* can't go: without it there is not room for all of *guests*, pods that others will move."""
    homes = {guest.pod.node: guest.because for guest in guests}
    names = sorted(homes)
    first = ", ".join(f"{name} ({homes[name]})" for name in names[:SHOWN])
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    what = "node" if len(names) == 1 else "nodes"
    detail = f"pods of {what} {first}{more} will have to move: without this node not all would have room"
    fix = f"wait until no pod is left on {', '.join(names[:SHOWN])}{more}"
    return Refusal(Reason.OTHER_DRAIN_NEEDS_NODE, node, detail, fix)
