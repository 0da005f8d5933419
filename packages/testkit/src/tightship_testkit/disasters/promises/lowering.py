"""What lowers a floor: true traffic, known long enough, in steps; and never a whole fleet because of one thing.

These look at each lowering when its request has been answered: what counts is what was known when it was sent.
"""

from __future__ import annotations

import math

from msgspec import Struct

from tightship_simulator.api.store import Change
from tightship_testkit.disasters.floors.ledger import SCALER, Move, Track, bounds
from tightship_testkit.disasters.floors.market import HPA, Market
from tightship_testkit.disasters.floors.serving import Answered
from tightship_testkit.disasters.floors.wishes import Part, Wish, wish_of
from tightship_testkit.disasters.promises.base import Asked, Promise, ours
from tightship_testkit.disasters.registry import promise
from tightship_testkit.disasters.team import INTERVALS
from tightship_testkit.disasters.world import World

SAMPLED = 0.9
"""The part of the traffic that a query of it shows at least: ``rate()`` reads a few percent low or high."""
SAMPLED_ANEW = 0.6
"""The same where counters begin anew, as what they counted after the last scrape before is lost, or where the clock of
the server jumps, as ranges then reach over a gap."""
SPLIT = 0.45
"""The same of the largest series where each target has two names."""
_LOSING = {"counter-reset", "relabelled-renamed", "relabelled-split", "server-clock"}
DATED = 60.0
"""Seconds by which the newest sample is older where samples were dated in the future: those dated before it are
dropped, also once the clock of the server that dated them is right again, which no answer shows."""
_EDITED = 20.0
"""Seconds after an edit by somebody within which a write may be by what stood there before."""
_ASKED = 10.0
"""Seconds before a write for which answers that it goes by may have been asked."""
_PASSING = {"spike", "dip", "two-counters", "relabelled-renamed", "relabelled-split"}
"""What makes answers wrong for as long as a query looks back: one sample, another counter, a target with two names."""
_DATING = {"samples-dated", "server-clock"}
"""What dates samples wrongly: where those dated ahead meet the next ones, a counter rises by more than there was."""
_SAME_CYCLE = 0.01


class Lowering(Struct, frozen=True):
    """A floor that was lowered by a request *sent* at a time, what its HPA asked for then, and its last answers.

    *answers* are those of each of its queries to the process that lowered it, of the last cycle and the *window*.
    """

    move: Move
    track: Track
    wish: Wish
    sent: float
    answers: tuple[tuple[Part, tuple[Answered, ...]], ...]

    @property
    def cycle(self) -> float:
        """When the last cycle began."""
        return max((each.cycle for _, found in self.answers for each in found), default=self.sent)

    def ago(self, answer: Answered) -> float:
        """Return how many seconds before the last cycle an answer was asked for, more where cycles may be one."""
        last = max((each.at for _, found in self.answers for each in found), default=self.sent)
        return max(self.cycle - answer.cycle, last - answer.at)

    def last(self, found: tuple[Answered, ...]) -> Answered | None:
        """Return the answer of the last cycle, the last of them."""
        now = [each for each in found if self.cycle - each.cycle < _SAME_CYCLE]
        return now[-1] if now else None


class Lowered(Promise):
    """Gives each lowering to :meth:`lowered`."""

    about = "floors"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._pending: dict[tuple[str, str], Move] = {}

    def changed(self, change: Change, author: str) -> None:
        market = self.world.market
        if market is None or change.object["kind"] != HPA or change.type != "MODIFIED" or ours(author) != SCALER:
            return
        track = market.ledger.of(change.object)
        if change.previous is not None and bounds(change.previous)[0] > bounds(change.object)[0]:
            self._pending[author, track.name] = track.moves[-1]

    def asked(self, request: Asked) -> None:
        market = self.world.market
        if market is None or request.resource != "horizontalpodautoscalers" or request.verb != "patch":
            return
        move = self._pending.pop((request.by, request.name), None)
        if move is None:
            return
        found = self._lowering(market, move, request.at)
        if found is not None:
            self.lowered(market, found)

    def lowered(self, market: Market, lowering: Lowering) -> None:
        """Look at a lowering."""
        raise NotImplementedError

    def _lowering(self, market: Market, move: Move, sent: float) -> Lowering | None:
        track = market.ledger.tracks[move.uid]
        wish = wish_of(move.hpa, interval_of(self.world))
        if wish is None or sent - track.edited < _EDITED + _ASKED:
            return None
        answers = tuple((part, self._answers(market, part, move.author, track, sent)) for part in wish.parts)
        return Lowering(move, track, wish, sent, answers)

    def _answers(self, market: Market, part: Part, by: str, track: Track, sent: float) -> tuple[Answered, ...]:
        server = market.servers.get(part.source)
        if server is None:
            return ()
        return tuple(
            each
            for each in server.log
            if each.text == part.text and each.by == by and track.noted + _EDITED < each.at <= sent
        )


def interval_of(world: World) -> float:
    """Return the seconds between two cycles."""
    team = world.team(SCALER)
    return float(team.controller.variables.get(INTERVALS[SCALER], "75")) if team is not None else 75.0


def needed(market: Market, part: Part, answer: Answered) -> int:
    """Return how many replicas the lowest true traffic needs that an answer of good data may have shown."""
    source = market.servers[part.source].source
    back = part.query.reach + source.scrape + (source.rules if part.query.kind == "rule" else 0.0) + 2.0
    dated = market.wrong_between(answer.cycle - back - DATED, answer.at, part.query.app, part.source)
    if _DATING & set(dated):
        back += DATED
    begin = answer.cycle - back
    lost = market.wrong_between(begin - source.scrape, answer.at, part.query.app, part.source)
    shown = SAMPLED_ANEW if _LOSING & set(lost) else SAMPLED
    if part.query.kind == "by" and "relabelled-split" in lost:
        shown = SPLIT
    return part.replicas(shown * market.traffic[part.query.app].least(begin, answer.at))


def wrong_with(market: Market, lowering: Lowering) -> list[str]:
    """Return what was wrong with the data of an HPA within its window, and as far as its queries look back."""
    found: set[str] = set()
    for part, answers in lowering.answers:
        window = [each for each in answers if lowering.cycle - each.cycle <= lowering.wish.window]
        begin = min((each.at for each in window), default=lowering.sent) - part.query.reach - 30.0
        found |= set(market.wrong_between(begin, lowering.sent, part.query.app, part.source))
    return sorted(found)


def by(market: Market, lowering: Lowering, answer: Answered | None) -> str:
    """Return what a floor seems to have been lowered by, in a word or two; *answer* is the one that says otherwise.

    Known findings go by it: that a query is not guarded at all, that a leader whose term is new does not know of an
    answer, or what was wrong with the data.
    """
    if answer is not None and market.ledger.new_term(answer.at, lowering.sent):
        return "in a new term"
    last = [each for _, found in lowering.answers if (each := lowering.last(found)) is not None]
    unguarded = not lowering.wish.window and not lowering.wish.window_given
    if unguarded and last and all(each.plain for each in last):
        return "unguarded"
    return "with " + (", ".join(wrong_with(market, lowering)) or "nothing wrong")


def reported(market: Market, lowering: Lowering) -> str:
    """Return what a lowering was by, in words."""
    lines = []
    for part, answers in lowering.answers:
        last = lowering.last(answers)
        guard = "guarded by a range" if part.query.range else "without a visible range"
        if lowering.wish.window_given:
            guard += f", lowering-window {lowering.wish.window:g} s"
        elif lowering.wish.range_given:
            guard += f", query-range {lowering.wish.looks_back:g} s"
        said = "no answer" if last is None else f"{last.way or 'good'} answer {list(last.values)}"
        lines.append(f"{part.query.kind} query {guard}: {said}")
    wrong = ", ".join(wrong_with(market, lowering)) or "nothing"
    return f"{'; '.join(lines) or 'no query'}; wrong with the data: {wrong}"


@promise
class NoFloorLoweredOnBadData(Lowered):
    """No floor comes down below what the true traffic needed, at any time that its lowering window reaches."""

    name = "no-floor-lowered-on-bad-data"
    text = "No floor is lowered on bad data"

    def lowered(self, market: Market, lowering: Lowering) -> None:
        wish, floor = lowering.wish, lowering.move.after[0]
        lower = wish.capped(0, lowering.track.own[1])
        if floor < lower:
            self.broken(lowering.move.name, f"lowered to {floor}, below its lower bound {lower}")
        if wish.window_given and (not wish.window or any(wish.window < part.query.reach for part in wish.parts)):
            return  # who says so takes the older controller's risk
        for part, answers in lowering.answers:
            for each in answers:
                if each is not answers[-1] and lowering.ago(each) >= wish.window - 0.5:
                    continue
                wanted = wish.capped(needed(market, part, each), lowering.track.own[1])
                if floor < wanted:
                    self.broken(
                        f"{lowering.move.name} {by(market, lowering, each)}",
                        f"lowered from {lowering.move.before[0]} to {floor}, though {wanted} were needed "
                        f"{lowering.sent - each.at:.0f} s before; {reported(market, lowering)}",
                    )
                    return


@promise
class LoweredByGoodAnswers(Lowered):
    """What a floor is lowered to, good answers have wanted: all that came within the lowering window, and the last one.

    After an answer that failed, the range of the query has to pass. An answer that held bad samples need not count once
    these are over: what was needed then, :class:`NoFloorLoweredOnBadData` knows.
    """

    name = "lowered-by-good-answers"
    text = "A floor comes down by good answers only, and by those of its whole lowering window"

    def lowered(self, market: Market, lowering: Lowering) -> None:
        wish, floor, name = lowering.wish, lowering.move.after[0], lowering.move.name
        for part, answers in lowering.answers:
            last = lowering.last(answers)
            if last is None or not usable(last, wish):
                said = "no answer" if last is None else f"an answer {last.way}"
                self.broken(f"{name} by {said}", f"lowered to {floor}; {reported(market, lowering)}")
                return
            for each in answers:
                ago = lowering.ago(each)
                if not usable(each, wish):
                    if ago < wish.looks_back - 0.5:
                        self.broken(
                            f"{name} after an answer {each.way}",
                            f"lowered to {floor} {ago:.0f} s after it; {reported(market, lowering)}",
                        )
                        return
                elif each is last or (ago < wish.window - 0.5 and not _by_passing_samples(market, part, each)):
                    wanted = wish.capped(part.replicas(max(each.values)), lowering.track.own[1])
                    if floor < wanted:
                        self.broken(
                            f"{name} {by(market, lowering, each)}",
                            f"lowered to {floor}, though an answer {ago:.0f} s before wanted {wanted}; "
                            f"{reported(market, lowering)}",
                        )
                        return


def _by_passing_samples(market: Market, part: Part, answer: Answered) -> bool:
    """Whether samples may be in *answer* that were far too high or low, counted twice, or dated wrongly."""
    begin = answer.at - part.query.reach - market.servers[part.source].source.scrape
    wrong = market.wrong_between(begin, answer.at, part.query.app, part.source)
    dated = market.wrong_between(begin - DATED, answer.at, part.query.app, part.source)
    return bool(_PASSING & set(wrong) or _DATING & set(dated))


def usable(answer: Answered, wish: Wish) -> bool:
    """Whether an answer can be gone by."""
    return answer.plain and (len(answer.values) == 1 or wish.several != "error")


@promise
class LoweredInSteps(Lowered):
    """One step takes no more of the replicas than ``scale-down-max-ratio`` allows."""

    name = "lowered-in-steps"
    text = "From the present replicas one step down may take `scale-down-max-ratio` of them"

    def lowered(self, market: Market, lowering: Lowering) -> None:
        del market
        wish, floor = lowering.wish, lowering.move.after[0]
        recent = [count for at, count in lowering.track.replicas[-1:] + _since(lowering.track, lowering.sent - 40.0)]
        if wish.ratio >= 1 or not recent:
            return
        least = min(recent)
        wanted = least - max(1, math.floor(least * wish.ratio))
        if wish.clamp or wish.upper is not None or wanted > lowering.track.own[1]:
            wanted = min(wanted, lowering.track.own[1], wish.upper or wanted)
        if floor < wanted:
            before = lowering.move.before[0]
            self.broken(
                lowering.move.name,
                f"lowered from {before} to {floor} with {least} replicas and a ratio of {wish.ratio:g}",
            )


def _since(track: Track, begin: float) -> list[tuple[float, int]]:
    """Return what replicas there were since *begin*, the ones at that time too."""
    older = [each for each in track.replicas if each[0] < begin][-1:]
    return older + [each for each in track.replicas if each[0] >= begin]


@promise
class NoFleetLoweredAtOnce(Lowered):
    """Where the floors of many are guarded, more than half of them don't fall in one cycle by what is not true."""

    name = "no-fleet-lowered-at-once"
    text = "No fleet of floors is lowered at once because one thing upstream broke."

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._fallen: dict[tuple[str, int], set[str]] = {}

    def lowered(self, market: Market, lowering: Lowering) -> None:
        settings = self.world.teams[SCALER].settings
        before, floor = lowering.move.before[0], lowering.move.after[0]
        if before - floor <= 0.3 * before or "correlatedDropHold" in settings:
            return
        wanted = max(
            (needed(market, part, each) for part, found in lowering.answers if (each := lowering.last(found))),
            default=0,
        )
        if floor >= lowering.wish.capped(wanted, lowering.track.own[1]):
            return
        fallen = self._fallen.setdefault((lowering.move.author, round(lowering.cycle)), set())
        fallen.add(lowering.move.name)
        counted = [each for each in self.world.store.list(HPA) if (wish := wish_of(each, 1.0)) and wish.parts]
        least = int(settings.get("correlatedDropMinimumCount", 10))
        if len(counted) >= least and len(fallen) > len(counted) / 2:
            names = ", ".join(sorted(fallen))
            self.broken("fleet", f"{names} of {len(counted)} were lowered in one cycle; {reported(market, lowering)}")


__all__ = [
    "SAMPLED", "Lowered", "LoweredByGoodAnswers", "LoweredInSteps", "Lowering", "NoFleetLoweredAtOnce",
    "NoFloorLoweredOnBadData", "interval_of", "needed", "reported", "usable", "wrong_with",
]  # fmt: skip
