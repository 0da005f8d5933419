"""How far a floor may go up."""

from __future__ import annotations

from tightship_simulator.api.store import Change
from tightship_testkit.disasters.floors.ledger import SCALER, Move, bounds
from tightship_testkit.disasters.floors.market import HPA, Market
from tightship_testkit.disasters.floors.wishes import Part, wish_of
from tightship_testkit.disasters.promises.base import Promise, ours
from tightship_testkit.disasters.promises.lowering import interval_of
from tightship_testkit.disasters.registry import promise

FACTOR = 3
"""Times what was truly needed: what the controller's ``suddenRiseFactor`` is by default."""
FREE = 10
"""Pods up to which any floor may go up at once."""
_BEFORE = 60.0
"""Seconds before a raise within which its answers were asked for."""


@promise
class NoFloorRaisedWithoutBound(Promise):
    """No floor goes up to more than :data:`FACTOR` times what the true traffic needed since the beginning."""

    name = "no-floor-raised-without-bound"
    about = "floors"
    text = "No floor is raised without limit by bad data"

    def changed(self, change: Change, author: str) -> None:
        market = self.world.market
        if market is None or change.object["kind"] != HPA or change.type != "MODIFIED" or ours(author) != SCALER:
            return
        old = change.previous
        if old is not None and bounds(old)[0] < bounds(change.object)[0]:
            self._raised(market, market.ledger.of(change.object).moves[-1])

    def _raised(self, market: Market, move: Move) -> None:
        track, floor = market.ledger.tracks[move.uid], move.after[0]
        wish = wish_of(move.hpa, interval_of(self.world))
        if wish is None:
            return
        replicas = max((count for _, count in track.replicas), default=0)
        highest = max((self._needed(market, part) for part in wish.parts), default=0)
        limit = max(FREE, FACTOR * max(highest, wish.capped(0, track.own[1]), track.own[0]), replicas)
        if floor <= limit:
            return
        wrong = set()
        for part in wish.parts:
            begin = self.world.now - part.query.reach - _BEFORE
            wrong |= set(market.wrong_between(begin, self.world.now, part.query.app, part.source))
        if {"samples-dated", "server-clock"} & wrong and floor <= FACTOR * track.own[1]:
            return  # samples dated ahead stay the newest for longer than their query looks back, as a true rise does
        known = self._answered(market, move, wish.parts)
        self.broken(
            f"{move.name} with {', '.join(sorted(wrong)) or 'nothing wrong'}",
            f"raised from {move.before[0]} to {floor}, though no more than {highest} were needed; {known}",
        )

    def _needed(self, market: Market, part: Part) -> int:
        return part.replicas(market.traffic[part.query.app].most(0.0, self.world.now) / 0.9)

    def _answered(self, market: Market, move: Move, parts: tuple[Part, ...]) -> str:
        """Say whether an answer that could be used wanted as much."""
        for part in parts:
            server = market.servers.get(part.source)
            for each in server.log if server is not None else ():
                recent = each.by == move.author and each.text == part.text and each.at > self.world.now - _BEFORE
                if recent and each.plain and part.replicas(max(each.values)) >= move.after[0]:
                    return f"an answer of {max(each.values):g} at {each.cycle:.0f} s wanted it"
        return "no answer wanted it"


__all__ = ["NoFloorRaisedWithoutBound"]
