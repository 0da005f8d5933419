"""Fills machines with pods by their amounts, and tries again where the room is worth least for its price."""

from __future__ import annotations

import heapq
import random
from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct

from tightship.fit.program import Bools, Floats, Indices, Program, Solved

ROUNDS = 400
"""How often some machines are given up and their pods are placed anew."""

STALE = 150
"""Rounds without a cheaper outcome after which no more follow."""

SLACK = 0.004
"""How much dearer than the best the machines may become meanwhile, at first, as a share."""

OFFERED = 6
"""Columns that each of these rounds may buy from, besides those given up."""

WORTHY = 0.85
"""What a machine's room must be worth for its price to be bought."""

_EPSILON = 1e-12


class Filled(Struct, frozen=True):
    """A machine of a *column*, how many pods of each kind are on it, what they *need* together and are *worth*."""

    column: int
    pods: dict[int, int]
    need: Floats
    worth: float


class Packing:
    """Packs the kinds of *program* on columns *on_offer*, with *solved* as a guide."""

    def __init__(self, program: Program, solved: Solved, on_offer: Bools) -> None:
        self._program, self._solved = program, solved
        self._columns = np.flatnonzero(on_offer & (solved.yields > WORTHY))
        self._order = np.argsort(-solved.worth, kind="stable")

    def pack(self) -> list[Filled]:
        """Return machines with as many pods as have a place by their amounts."""
        left = self._program.count.copy()
        bins = self._planned(left)
        self._put(left, bins)
        return self._improved(bins + self._bought(left, self._columns))

    def bought(self, left: Mapping[int, int]) -> list[Filled]:
        """Return machines for so many pods of each kind."""
        count = np.zeros_like(self._program.count)
        count[list(left)] = list(left.values())
        return self._bought(count, self._columns)

    def _planned(self, left: Floats) -> list[Filled]:
        """Fill the whole machines of the program with the pods that it has on them."""
        flows: dict[int, dict[int, int]] = {}
        for kind, column, pods in self._solved.flows:
            flows.setdefault(column, {})[kind] = pods
        bins: list[Filled] = []
        for column, flow in flows.items():
            kinds = np.array(list(flow), dtype=np.intp)
            count = np.zeros_like(left)
            count[kinds] = list(flow.values())
            empty = Filled(column, {}, np.zeros_like(self._program.room[column]), 0.0)
            own = [empty] * int(self._solved.machines[column] + 1e-6)
            before = count.copy()
            self._put(count, own)
            left -= before - count
            bins += own
        return bins

    def _put(self, left: Floats, bins: list[Filled]) -> None:
        """Put pods that are *left* on *bins*, the dearest first, each where the room has its proportions best."""
        program, worth = self._program, self._solved.worth
        if not bins:
            return
        columns = np.array([each.column for each in bins], dtype=np.intp)
        room = program.room[columns]
        free = room - np.array([each.need for each in bins])
        scale = 1 / np.maximum(room.max(axis=0), _EPSILON)
        length = np.sqrt(((free * scale) ** 2).sum(axis=1))
        for kind in self._order[left[self._order] > 0].tolist():
            request, open_to, group = program.request[kind], program.allowed[columns, kind], program.group[kind]
            fits = np.flatnonzero(open_to & (free >= request - _EPSILON).all(axis=1))
            if group >= 0:
                fits = fits[[group not in program.group[list(bins[place].pods)] for place in fits.tolist()]]
            along = request * scale**2
            while left[kind] > 0 and len(fits):
                at = int((free[fits] @ along / (length[fits] + _EPSILON) - 1e-3 * length[fits]).argmax())
                place = int(fits[at])
                free[place] -= request
                length[place] = np.sqrt(((free[place] * scale) ** 2).sum())
                left[kind] -= 1
                old = bins[place]
                pods = {**old.pods, kind: old.pods.get(kind, 0) + 1}
                bins[place] = Filled(old.column, pods, old.need + request, old.worth + worth[kind])
                if group >= 0 or (free[place] < request - _EPSILON).any():
                    fits = np.delete(fits, at)

    def _bought(self, left: Floats, columns: Indices, most: float = np.inf) -> list[Filled]:
        """Return machines for the pods *left*, until they cost *most*: each time the one worth most for its price.

        What a column was worth before is no less than what it is worth now that fewer pods are left (lazy greedy).
        """
        cost = self._program.cost
        found: list[Filled] = []
        queue = [(-np.inf, column) for column in columns.tolist()]
        while queue and most > 0:
            _, column = heapq.heappop(queue)
            kinds = self._order[left[self._order] > 0]
            made = self._fill(column, kinds, left)
            if not made.pods:
                continue
            value = made.worth / cost[column]
            if queue and value < -queue[0][0]:
                heapq.heappush(queue, (-value, column))
                continue
            heapq.heappush(queue, (-value, column))
            for _ in range(int(min(left[kind] // pods for kind, pods in made.pods.items()))):
                found.append(made)
                most -= cost[column]
                for kind, pods in made.pods.items():
                    left[kind] -= pods
        return found

    def _fill(self, column: int, kinds: Indices, count: Floats) -> Filled:
        """Return an empty machine with pods of *kinds*, each time the largest along the room that is left."""
        program, pods, full = self._program, dict[int, int](), self._program.room[column]
        kinds = kinds[program.allowed[column, kinds] & (count[kinds] > 0)]
        request, room = program.request[kinds], full.copy()
        weight = 1 / np.maximum(room, _EPSILON) ** 2
        left, group = count[kinds], program.group[kinds]
        while len(kinds):
            fits = (request <= room + _EPSILON).all(axis=1) & (left > 0)
            if not fits.all():
                kinds, request, left, group = kinds[fits], request[fits], left[fits], group[fits]
                if not len(kinds):
                    break
            best = int((request @ (room * weight)).argmax())
            kind = int(kinds[best])
            pods[kind] = pods.get(kind, 0) + 1
            room -= request[best]
            left[best] -= 1
            if group[best] >= 0:
                left[group == group[best]] = 0
        worth = float(sum(self._solved.worth[kind] * number for kind, number in pods.items()))
        return Filled(column, pods, full - room, worth)

    def _improved(self, bins: list[Filled]) -> list[Filled]:
        """Give up some machines at a time, place their pods on others, and buy anew for the rest if that is cheaper."""
        cost, draw = self._program.cost, random.Random(0)  # noqa: S311
        best, least, now, found = bins, 0.0, 0.0, 0
        total = sum(float(cost[each.column]) for each in bins)
        for turn in range(ROUNDS):
            if len(bins) < 2 or turn - found > STALE:
                break
            used = np.array([each.worth for each in bins]) / cost[[each.column for each in bins]]
            order = np.argsort(used, kind="stable").tolist()
            gone = {order[int(len(bins) * draw.random() ** 3)] for _ in range(draw.choice((1, 2, 3, 4, 5)))}
            slack = SLACK * (1 - turn / ROUNDS) * total - (now - least)
            tried = self._redone(bins, gone, draw, slack)
            if tried is None:
                continue
            bins, change = tried
            now += change
            if now < least - 1e-9:
                best, least, found = bins, now, turn
        return best

    def _redone(
        self, bins: Sequence[Filled], gone: set[int], draw: random.Random, slack: float
    ) -> tuple[list[Filled], float] | None:
        """Return machines without those *gone*, and how much more they cost; ``None`` if more than *slack*."""
        program = self._program
        kept = [each for number, each in enumerate(bins) if number not in gone]
        price = sum(float(program.cost[bins[number].column]) for number in gone)
        left = np.zeros_like(program.count)
        for number in gone:
            for kind, pods in bins[number].pods.items():
                left[kind] += pods
        self._put(left, kept)
        some = {bins[number].column for number in gone} | set(draw.choices(self._columns.tolist(), k=OFFERED))
        made = self._bought(left, np.array(sorted(some), dtype=np.intp), price + slack) if left.any() else []
        change = sum(float(program.cost[each.column]) for each in made) - price
        if left.any() or change > slack:
            return None
        return kept + made, change
