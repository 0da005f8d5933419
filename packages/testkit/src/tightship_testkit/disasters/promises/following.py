"""That quarrels end, and that floors follow again what is true once all that was wrong is over."""

from __future__ import annotations

import math

from tightship_testkit.disasters.floors.ledger import SCALER, Track, bounds, state_of
from tightship_testkit.disasters.floors.market import HPA, Market
from tightship_testkit.disasters.floors.wishes import Part, Wish, enabled, wish_of
from tightship_testkit.disasters.promises.base import Json, Promise
from tightship_testkit.disasters.promises.bounds import Written
from tightship_testkit.disasters.promises.lowering import SAMPLED, interval_of
from tightship_testkit.disasters.registry import promise

RESETS = 3
PAUSE = 900.0
MAXIMUM_FACTOR = 3.0
"""No floor is above so many times the user's own ``maxReplicas``, unless told; 0 is no limit."""
_CLOCKS = 15.0
"""Seconds by which clocks of replicas may differ, and a write be late."""
_ROUNDED = 0.125
"""The part of its window by which a floor may be held longer, as times are rounded up."""


@promise
class QuarrelsEnd(Written):
    """Who sets a bound back three times is left alone for the pause, and told of."""

    name = "quarrels-end"
    text = "No endless fight with whoever sets the floor back: hpa-scaler names them, and they win."

    def written(self, track: Track, old: Json, new: Json, author: str) -> None:
        settings = self.world.teams[SCALER].settings
        pause = float(settings.get("contestPause", PAUSE))
        if bounds(new)[0] <= track.ousted:  # a floor above the one that was fought waits for the shortest pause only
            pause *= 2 ** max(0, track.setbacks - RESETS)
        if bounds(old) == bounds(new) or state_of(new) is None or not enabled(old):
            return
        since = self.world.now - track.setback
        if track.setbacks >= RESETS and since < pause - _CLOCKS:
            self.broken(
                track.name,
                f"{author} set {bounds(new)} again, {since:.0f} s after it was set back for the {track.setbacks}. time",
            )

    def ended(self) -> None:
        market = self.world.market
        if market is None or self.world.scenario.faults:
            return  # an Event may have met one
        events = {
            str((each.get("regarding") or each.get("involvedObject") or {}).get("name"))
            for each in self.world.store.list("Event")
            if each.get("reason") == "Contested"
        }
        for hpa in self.world.store.list(HPA):
            track = market.ledger.of(hpa)
            contested = track.setbacks >= RESETS - 1 and track.set_back and self.world.now - track.setback > 60.0
            judged = wish_of(hpa, 1.0) is not None and track.noted < track.setback
            if contested and judged and track.name not in events:
                self.broken(track.name, "was set back again and again, and no Event says so")


@promise
class FloorsFollow(Promise):
    """At the quiet end each floor is what the true traffic needs, within its bounds."""

    name = "floors-follow"
    about = "floors"
    text = "Where nothing is wrong any more, each floor follows what is needed"

    def ended(self) -> None:
        market, team = self.world.market, self.world.team(SCALER)
        if market is None or team is None or team.dry_run:
            return
        for hpa in self.world.store.list(HPA):
            wish = wish_of(hpa, interval_of(self.world))
            if wish is not None:
                self._look(market, hpa, wish, market.ledger.of(hpa))

    def _look(self, market: Market, hpa: Json, wish: Wish, track: Track) -> None:
        now, (floor, most) = self.world.now, bounds(hpa)
        settled = now - track.edited > wish.window + wish.looks_back + 120.0
        if not settled or wish.dry_run or wish.paused or track.foreign >= RESETS or _is_off(hpa):
            return  # or it is left to somebody who seemed to quarrel, or has scaled its target to 0
        reach = 60.0
        low = high = 0
        for part in wish.parts:
            if part.source not in market.servers:
                return
            traffic = market.traffic[part.query.app]
            begin = now - wish.window - part.query.reach - reach
            low = max(low, part.replicas(SAMPLED * traffic.least(now - part.query.reach - reach, now)))
            high = max(high, part.replicas(traffic.most(begin, now) / SAMPLED))
        replicas = [count for _, count in track.replicas[-1:]]
        recent = [count for at, count in track.replicas if at > now - 60.0] + replicas
        for count in recent:
            high = max(high, count - max(1, math.floor(count * wish.ratio)) if wish.ratio < 1 else 0)
        factor = float(self.world.teams[SCALER].settings.get("maxReplicasFactor", MAXIMUM_FACTOR))
        least = min(wish.capped(low, track.own[1]), math.floor(factor * track.own[1]) or low)
        highest = wish.capped(high, track.own[1])
        behaviour = "behavior" in hpa["spec"]
        if floor < least and not wish.paused_up and not behaviour:
            self.broken(
                f"{track.name} is too low",
                f"its floor is {floor} in the end, and {least} are needed, of at most {most}",
            )
        # After traffic that fell all at once nothing is lowered for an hour, which is longer than any story.
        held = any(each.get("reason") == "CorrelatedDrop" for each in self.world.store.list("Event"))
        # After answers that failed, the range of the query has to pass, and then the window without a higher wish.
        wait = wish.looks_back + wish.window * (1 + _ROUNDED) + 3 * interval_of(self.world)
        held |= any(now - _good_since(market, part) < wait for part in wish.parts)
        if floor > highest + wish.band and not wish.paused_down and not held:
            detail = f"its floor is {floor} in the end, and no more than {highest} are needed"
            self.broken(f"{track.name} is too high", detail)


def _good_since(market: Market, part: Part) -> float:
    """Return when the present run of good answers to a query began, which failed answers and refusals end."""
    server, since = market.servers[part.source], math.inf
    refused = max((at for at, _ in server.refused), default=-math.inf)
    for each in reversed([each for each in server.log if each.text == part.text]):
        if not each.plain or each.at < refused:
            return since
        since = each.at
    return -math.inf


def _is_off(hpa: Json) -> bool:
    conditions = hpa.get("status", {}).get("conditions", ())
    return any(each["type"] == "ScalingActive" and each.get("reason") == "ScalingDisabled" for each in conditions)


__all__ = ["FloorsFollow", "QuarrelsEnd"]
