"""Steps that spoil the data which floors follow: at a Prometheus, at its targets, and on the way in between.

They are drawn by :mod:`tightship_testkit.disasters.floors.making`, which is why their weight is 0 here.
"""

from __future__ import annotations

from random import Random

from tightship_testkit.disasters.drawing import MissingError, draws, named, one_of, share
from tightship_testkit.disasters.floors.market import Market
from tightship_testkit.disasters.floors.scraping import Target
from tightship_testkit.disasters.floors.serving import WAYS, Server
from tightship_testkit.disasters.registry import Args, step
from tightship_testkit.disasters.scenario import Scenario
from tightship_testkit.disasters.world import World

METRICS = "metrics"
"""The author of what happens to data."""

LONG = (5.0, 15.0, 30.0, 60.0, 120.0)
ANY_TIME = one_of(*LONG, 220.0)
"""The last is longer than any lowering window."""


SOURCE = draws(source=named(lambda scenario: scenario.floors.sources if scenario.floors is not None else ()))
APP = draws(app=named(lambda scenario: scenario.floors.apps if scenario.floors is not None else ()))


def _server(world: World, source: str) -> tuple[Market, Server]:
    if world.market is None or source not in world.market.servers:
        raise MissingError
    return world.market, world.market.servers[source]


def _targets(world: World, app: str) -> tuple[Market, list[Target]]:
    if world.market is None or app not in world.market.targets:
        raise MissingError
    return world.market, world.market.targets[app]


# Servers.


@step(SOURCE, way=one_of(*WAYS), seconds=one_of(*LONG), weight=0, author=METRICS)
async def server_answers_badly(world: World, *, source: str, way: str, seconds: float) -> None:
    """A Prometheus, or a proxy before it, answers in a wrong way for a while, or not at all."""
    market, server = _server(world, source)
    if way not in WAYS:
        return
    world.tell(f"Prometheus {source}: {way} for {seconds:g} s")
    with market.wrong(way, source=source):
        server.ways.append(way)
        await world.pause(seconds)
        server.ways.remove(way)


@step(SOURCE, wipe=share(0.6), seconds=one_of(1.0, *LONG[:4]), weight=0, author=METRICS)
async def server_restarts(world: World, *, source: str, wipe: bool, seconds: float) -> None:
    """A Prometheus is away for a while, and comes back; with *wipe* its data are lost."""
    market, server = _server(world, source)
    if not server.up:
        return
    world.tell(f"Prometheus {source} is away for {seconds:g} s{', and loses its data' if wipe else ''}")
    with market.wrong("wiped" if wipe else "restarted", source=source):
        server.up = False
        await world.pause(seconds)
        if wipe:
            server.scraper.wipe()
        else:
            server.scraper.restarted()
        server.up = True


@step(SOURCE, off=one_of(-60.0, -20.0, -8.0, 8.0, 20.0, 60.0), seconds=one_of(*LONG), weight=0, author=METRICS)
async def server_clock_off(world: World, *, source: str, off: float, seconds: float) -> None:
    """The clock of a Prometheus is ahead, or behind, for a while."""
    market, server = _server(world, source)
    if server.scraper.ahead:
        return
    world.tell(f"the clock of Prometheus {source} is {off:g} s ahead for {seconds:g} s")
    with market.wrong("server-clock", source=source):
        server.scraper.ahead = off
        await world.pause(seconds)
        server.scraper.ahead = 0.0
        # What it dated in the future keeps out what is dated right, until that comes.
        await world.pause(max(0.0, off))


@step(SOURCE, lag=one_of(8.0, 15.0, 25.0, 60.0), seconds=one_of(*LONG), weight=0, author=METRICS)
async def samples_lag(world: World, *, source: str, lag: float, seconds: float) -> None:
    """Samples can be asked for only so many seconds after they were scraped."""
    market, server = _server(world, source)
    if server.scraper.lag:
        return
    world.tell(f"the samples of Prometheus {source} lag by {lag:g} s for {seconds:g} s")
    with market.wrong("lag", source=source):
        server.scraper.lag = lag
        await world.pause(seconds)
        server.scraper.lag = 0.0


# Targets.


def _on_and_off(rng: Random, _: Scenario) -> Args:
    on, off = rng.choice(((0.0, 0.0), (0.0, 0.0), (4.0, 6.0), (3.0, 9.0), (10.0, 20.0)))
    return {"on": on, "off": off}


@step(APP, _on_and_off, left=one_of(0.0, 0.0, 0.5, 0.5), seconds=ANY_TIME, weight=0, author=METRICS)
async def targets_away(world: World, *, app: str, left: float, on: float, off: float, seconds: float) -> None:
    """Targets can't be scraped for a while, all but a part of them; with *on* and *off* they come and go."""
    market, targets = _targets(world, app)
    chosen = targets[: max(1, round(len(targets) * (1 - left)))]
    what = "targets-away" if len(chosen) == len(targets) else "targets-partly-away"
    world.tell(f"{len(chosen)} of {len(targets)} targets of {app} away for {seconds:g} s, on {on:g} s, off {off:g} s")
    end = world.now + seconds
    with market.wrong("targets-flapping" if on else what, app=app):
        while not world.quiet and world.now < end:
            for each in chosen:
                each.away = True
            await world.pause(min(off or seconds, end - world.now))
            for each in chosen:
                each.away = False
            if on:
                await world.pause(min(on, end - world.now))


@step(APP, how=one_of("split", "split", "renamed"), seconds=ANY_TIME, weight=0, author=METRICS)
async def targets_relabelled(world: World, *, app: str, how: str, seconds: float) -> None:
    """The series of targets get another label for a while, or become two, each with a part of the traffic."""
    market, targets = _targets(world, app)
    world.tell(f"the series of {app} are {how} for {seconds:g} s")
    with market.wrong(f"relabelled-{how}", app=app):
        for each in targets:
            if how == "renamed":
                each.version = "v1b"
            else:
                each.split(world.now, 0.5)
        await world.pause(seconds)
        for each in targets:
            each.version = "v1"
            if how != "renamed":
                each.split(world.now, 0.0)


@step(APP, every=one_of(30.0, 60.0, 500.0), seconds=one_of(*LONG), weight=0, author=METRICS)
async def counters_reset(world: World, *, app: str, every: float, seconds: float) -> None:
    """The counters of targets begin anew, again and again for a while."""
    market, targets = _targets(world, app)
    world.tell(f"the counters of {app} begin anew every {every:g} s for {seconds:g} s")
    end = world.now + seconds
    with market.wrong("counter-reset", app=app):
        while not world.quiet and world.now < end:
            for each in targets:
                each.reset(world.now)
            await world.pause(min(every, max(0.1, end - world.now)))


@step(APP, factor=one_of(0.0, 10.0, 1000.0), weight=0, author=METRICS)
async def sample_spikes(world: World, *, app: str, factor: float) -> None:
    """One scrape of one target has values that are wrong by a factor."""
    market, targets = _targets(world, app)
    world.tell(f"a sample of {app} is wrong by a factor of {factor:g}")
    with market.wrong("spike" if factor > 1 else "dip", app=app):
        targets[0].spike = factor
        await world.pause(10.0)


@step(APP, other=one_of(1e3, 1e6, 1e9), seconds=one_of(*LONG[:3]), weight=0, author=METRICS)
async def counters_alternate(world: World, *, app: str, other: float, seconds: float) -> None:
    """Two counters are behind one address: each scrape gets the other one."""
    market, targets = _targets(world, app)
    world.tell(f"two counters behind one address of {app} for {seconds:g} s")
    with market.wrong("two-counters", app=app):
        targets[0].twin = other
        await world.pause(seconds)
        targets[0].twin = 0.0


@step(APP, ahead=one_of(10.0, 60.0, -60.0), seconds=one_of(*LONG[:4]), weight=0, author=METRICS)
async def samples_dated_wrong(world: World, *, app: str, ahead: float, seconds: float) -> None:
    """Targets date their samples in the future, or in the past, for a while."""
    market, targets = _targets(world, app)
    world.tell(f"the samples of {app} are dated {ahead:g} s ahead for {seconds:g} s")
    with market.wrong("samples-dated", app=app):
        for each in targets:
            each.ahead = ahead
        await world.pause(seconds)
        for each in targets:
            each.ahead = 0.0
        await world.pause(max(0.0, ahead))


__all__ = ["LONG", "METRICS"]
