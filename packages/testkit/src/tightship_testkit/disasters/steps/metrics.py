"""Steps that spoil the data which floors follow: at a Prometheus, at its targets, and on the way in between.

They are drawn by :mod:`tightship_testkit.disasters.floors.making`, which is why their weight is 0 here.
"""

from __future__ import annotations

from random import Random

from tightship_testkit.disasters.floors.market import Market
from tightship_testkit.disasters.floors.scraping import Target
from tightship_testkit.disasters.floors.serving import WAYS
from tightship_testkit.disasters.registry import Args, step
from tightship_testkit.disasters.scenario import Scenario
from tightship_testkit.disasters.world import World

METRICS = "metrics"
"""The author of what happens to data."""

LONG = (5.0, 15.0, 30.0, 60.0, 120.0)
LONGER = 220.0
"""Longer than any lowering window."""


def _source(rng: Random, scenario: Scenario) -> str | None:
    if scenario.floors is None or not scenario.floors.sources:
        return None
    return rng.choice(scenario.floors.sources).name


def _app(rng: Random, scenario: Scenario) -> str | None:
    if scenario.floors is None or not scenario.floors.apps:
        return None
    return rng.choice(scenario.floors.apps).name


def _targets(world: World, app: str) -> tuple[Market, list[Target]] | None:
    if world.market is None or app not in world.market.targets:
        return None
    return world.market, world.market.targets[app]


# Servers.


def _answers(rng: Random, scenario: Scenario) -> Args | None:
    source = _source(rng, scenario)
    return None if source is None else {"source": source, "way": rng.choice(WAYS), "seconds": rng.choice(LONG)}


@step(_answers, weight=0, author=METRICS)
async def server_answers_badly(world: World, *, source: str, way: str, seconds: float) -> None:
    """A Prometheus, or a proxy before it, answers in a wrong way for a while, or not at all."""
    server = world.market.servers.get(source) if world.market is not None else None
    if world.market is None or server is None or way not in WAYS:
        return
    world.tell(f"Prometheus {source}: {way} for {seconds:g} s")
    with world.market.wrong(way, source=source):
        server.ways.append(way)
        await world.pause(seconds)
        server.ways.remove(way)


def _restarted(rng: Random, scenario: Scenario) -> Args | None:
    source = _source(rng, scenario)
    return (
        None
        if source is None
        else {"source": source, "wipe": rng.random() < 0.6, "seconds": rng.choice((1.0, *LONG[:4]))}
    )


@step(_restarted, weight=0, author=METRICS)
async def server_restarts(world: World, *, source: str, wipe: bool, seconds: float) -> None:
    """A Prometheus is away for a while, and comes back; with *wipe* its data are lost."""
    server = world.market.servers.get(source) if world.market is not None else None
    if world.market is None or server is None or not server.up:
        return
    world.tell(f"Prometheus {source} is away for {seconds:g} s{', and loses its data' if wipe else ''}")
    with world.market.wrong("wiped" if wipe else "restarted", source=source):
        server.up = False
        await world.pause(seconds)
        if wipe:
            server.scraper.wipe()
        else:
            server.scraper.restarted()
        server.up = True


def _clock(rng: Random, scenario: Scenario) -> Args | None:
    source = _source(rng, scenario)
    offs = (-60.0, -20.0, -8.0, 8.0, 20.0, 60.0)
    return None if source is None else {"source": source, "off": rng.choice(offs), "seconds": rng.choice(LONG)}


@step(_clock, weight=0, author=METRICS)
async def server_clock_off(world: World, *, source: str, off: float, seconds: float) -> None:
    """The clock of a Prometheus is ahead, or behind, for a while."""
    server = world.market.servers.get(source) if world.market is not None else None
    if world.market is None or server is None or server.scraper.ahead:
        return
    world.tell(f"the clock of Prometheus {source} is {off:g} s ahead for {seconds:g} s")
    with world.market.wrong("server-clock", source=source):
        server.scraper.ahead = off
        await world.pause(seconds)
        server.scraper.ahead = 0.0
        # What it dated in the future keeps out what is dated right, until that comes.
        await world.pause(max(0.0, off))


def _lagging(rng: Random, scenario: Scenario) -> Args | None:
    source = _source(rng, scenario)
    lag = rng.choice((8.0, 15.0, 25.0, 60.0))
    return None if source is None else {"source": source, "lag": lag, "seconds": rng.choice(LONG)}


@step(_lagging, weight=0, author=METRICS)
async def samples_lag(world: World, *, source: str, lag: float, seconds: float) -> None:
    """Samples can be asked for only so many seconds after they were scraped."""
    server = world.market.servers.get(source) if world.market is not None else None
    if world.market is None or server is None or server.scraper.lag:
        return
    world.tell(f"the samples of Prometheus {source} lag by {lag:g} s for {seconds:g} s")
    with world.market.wrong("lag", source=source):
        server.scraper.lag = lag
        await world.pause(seconds)
        server.scraper.lag = 0.0


# Targets.


def _away(rng: Random, scenario: Scenario) -> Args | None:
    app = _app(rng, scenario)
    on, off = rng.choice(((0.0, 0.0), (0.0, 0.0), (4.0, 6.0), (3.0, 9.0), (10.0, 20.0)))
    share, seconds = rng.choice((0.0, 0.0, 0.5, 0.5)), rng.choice((*LONG, LONGER))
    return None if app is None else {"app": app, "left": share, "on": on, "off": off, "seconds": seconds}


@step(_away, weight=0, author=METRICS)
async def targets_away(world: World, *, app: str, left: float, on: float, off: float, seconds: float) -> None:
    """Targets can't be scraped for a while, all but a part of them; with *on* and *off* they come and go."""
    found = _targets(world, app)
    if found is None:
        return
    market, targets = found
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


def _relabelled(rng: Random, scenario: Scenario) -> Args | None:
    app = _app(rng, scenario)
    how = rng.choice(("split", "split", "renamed"))
    return None if app is None else {"app": app, "how": how, "seconds": rng.choice((*LONG, LONGER))}


@step(_relabelled, weight=0, author=METRICS)
async def targets_relabelled(world: World, *, app: str, how: str, seconds: float) -> None:
    """The series of targets get another label for a while, or become two, each with a part of the traffic."""
    found = _targets(world, app)
    if found is None:
        return
    market, targets = found
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


def _resets(rng: Random, scenario: Scenario) -> Args | None:
    app = _app(rng, scenario)
    return None if app is None else {"app": app, "every": rng.choice((30.0, 60.0, 500.0)), "seconds": rng.choice(LONG)}


@step(_resets, weight=0, author=METRICS)
async def counters_reset(world: World, *, app: str, every: float, seconds: float) -> None:
    """The counters of targets begin anew, again and again for a while."""
    found = _targets(world, app)
    if found is None:
        return
    market, targets = found
    world.tell(f"the counters of {app} begin anew every {every:g} s for {seconds:g} s")
    end = world.now + seconds
    with market.wrong("counter-reset", app=app):
        while not world.quiet and world.now < end:
            for each in targets:
                each.reset(world.now)
            await world.pause(min(every, max(0.1, end - world.now)))


def _spike(rng: Random, scenario: Scenario) -> Args | None:
    app = _app(rng, scenario)
    return None if app is None else {"app": app, "factor": rng.choice((0.0, 10.0, 1000.0))}


@step(_spike, weight=0, author=METRICS)
async def sample_spikes(world: World, *, app: str, factor: float) -> None:
    """One scrape of one target has values that are wrong by a factor."""
    found = _targets(world, app)
    if found is None:
        return
    market, targets = found
    world.tell(f"a sample of {app} is wrong by a factor of {factor:g}")
    with market.wrong("spike" if factor > 1 else "dip", app=app):
        targets[0].spike = factor
        await world.pause(10.0)


def _twins(rng: Random, scenario: Scenario) -> Args | None:
    app = _app(rng, scenario)
    return None if app is None else {"app": app, "other": rng.choice((1e3, 1e6, 1e9)), "seconds": rng.choice(LONG[:3])}


@step(_twins, weight=0, author=METRICS)
async def counters_alternate(world: World, *, app: str, other: float, seconds: float) -> None:
    """Two counters are behind one address: each scrape gets the other one."""
    found = _targets(world, app)
    if found is None:
        return
    market, targets = found
    world.tell(f"two counters behind one address of {app} for {seconds:g} s")
    with market.wrong("two-counters", app=app):
        targets[0].twin = other
        await world.pause(seconds)
        targets[0].twin = 0.0


def _future(rng: Random, scenario: Scenario) -> Args | None:
    app = _app(rng, scenario)
    ahead = rng.choice((10.0, 60.0, -60.0))
    return None if app is None else {"app": app, "ahead": ahead, "seconds": rng.choice(LONG[:4])}


@step(_future, weight=0, author=METRICS)
async def samples_dated_wrong(world: World, *, app: str, ahead: float, seconds: float) -> None:
    """Targets date their samples in the future, or in the past, for a while."""
    found = _targets(world, app)
    if found is None:
        return
    market, targets = found
    world.tell(f"the samples of {app} are dated {ahead:g} s ahead for {seconds:g} s")
    with market.wrong("samples-dated", app=app):
        for each in targets:
            each.ahead = ahead
        await world.pause(seconds)
        for each in targets:
            each.ahead = 0.0
        await world.pause(max(0.0, ahead))


__all__ = ["LONG", "METRICS"]
