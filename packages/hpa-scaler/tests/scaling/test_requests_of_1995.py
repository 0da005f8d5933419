"""Four days of August 1995 with their real outage, cycle by cycle: exporter, Prometheus, API server, HPA controller and
``hpa-scaler run``, with the durations of a release.

The story. The requests of a web server, counted minute by minute, a thousandfold: a night, a day, 37.7 hours in which
nothing was counted, six more with next to no requests, the peak of an afternoon, and a night. While nothing is counted
the exporter is away, and comes back with its counter at zero. In the peak Prometheus loses its data. Meanwhile an HPA
follows the very traffic by a metric of its own: without a floor it would take all pods but one. A step down may take
half of the pods.

What is seen. Each value that ``minReplicas`` had and since when, from the store; each answer that the controller got,
from its decision log; replicas, by looking twice a minute.
"""

from __future__ import annotations

import asyncio
import bisect
import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
from traffic import longest_silence, requests_of_1995

from hpa_scaler.annotations.queries import QueryAnswer
from hpa_scaler.annotations.spec import AGE_QUERY
from hpa_scaler.judge.decision_log import DecisionLine, Line, replay
from tightship.objects.reasons import Reason
from tightship_simulator.api.store import Change
from tightship_simulator.life.living import Speeds
from tightship_simulator.life.prometheus import Prometheus
from tightship_simulator.life.scraping import Exporter, Past
from tightship_testkit.client import Json
from tightship_testkit.floors import HPA, autoscaler, deployment, hpa_annotations
from tightship_testkit.stall import NEVER, Stall, stall

pytestmark = [pytest.mark.virtual_time, pytest.mark.slow]

SCALE = 1000.0
RANGE = 300.0
SCRAPES = 15.0
HPA_EVERY = 15.0

PER_REPLICA = 40.0
PER_POD = 32.0
"""What the HPA wants a pod to do: a quarter more pods than the floor has, as long as there is traffic."""
RATIO = 0.5
LOWEST = 3
FIRST = 25
QUERY = "sum(rate(requests_total[5m]))"


def hours(day: int, hour: float) -> float:
    """Return how many seconds after the beginning it is *hour* (UTC) of a *day* in August."""
    return ((day - 1) * 24 + hour - 4) * 3600


NIGHTS = ((hours(1, 5), hours(1, 11)), (hours(4, 5), hours(4, 11)))
AFTERNOON = hours(3, 16), hours(3, 21)
LOST = hours(3, 18.5)
END = hours(4, 12)


class Story:
    """The traffic, by the seconds since its beginning; before that it is as in its first three hours."""

    def __init__(self) -> None:
        minutes = requests_of_1995()
        assert datetime.fromtimestamp(minutes[0][0], UTC) == datetime(1995, 8, 1, 4, tzinfo=UTC)
        self.rates = [rate * SCALE for _, rate in minutes[: math.ceil(END / 60) + 1]]
        silent, counted = longest_silence(self.rates)
        self.silence = (counted - silent) * 60.0
        # What was counted had dwindled for some minutes: the exporter goes before, as if that were a failure of it.
        usual = sum(self.rates[silent - 180 : silent]) / 180
        while self.rates[silent - 1] < usual / 2:
            silent -= 1
        self.down, self.up = silent * 60.0, counted * 60.0
        self.calm = sum(self.rates[:180]) / 180
        self._sums = [0.0, *itertools.accumulate(rate * 60 for rate in self.rates)]

    def total(self, at: float) -> float:
        """Return how many requests there have been since the beginning."""
        if at <= 0:
            return self.calm * at
        minute = min(int(at / 60), len(self.rates) - 1)
        return self._sums[minute] + self.rates[minute] * (at - minute * 60)

    def mean(self, at: float, seconds: float = RANGE) -> float:
        """Return the rate of the last *seconds*."""
        return (self.total(at) - self.total(at - seconds)) / seconds

    def needs(self, at: float) -> int:
        """Return the floor for the true traffic, judged with whole data and nothing else.

        What the traffic would be while nothing is counted nobody knows: it is as before, until there has been as much
        of it as the query looks back.
        """
        known = self.down if self.down <= at < self.up + RANGE else at
        return max(LOWEST, math.ceil(self.mean(known) / PER_REPLICA - 1e-9))


@dataclass
class Run:
    """What happened, times in seconds since the beginning of the story: *floors* from then on, each until the next."""

    story: Story
    began: float = 0.0
    floors: list[tuple[float, int]] = field(default_factory=lambda: [(-math.inf, FIRST)])
    replicas: list[tuple[float, int, int]] = field(default_factory=list)
    lines: list[DecisionLine] = field(default_factory=list)

    def floor(self, at: float) -> int:
        """Return ``minReplicas`` at that time."""
        return self.floors[bisect.bisect_right(self.floors, (at, math.inf)) - 1][1]

    def between(self, begin: float, end: float) -> list[int]:
        """Return each floor that there was from *begin* to *end*."""
        return [self.floor(begin), *(floor for at, floor in self.floors if begin < at <= end)]

    def answers(self) -> Iterator[tuple[float, float | None]]:
        """Each cycle's time and what its query answered, ``None`` where that was nothing to go by."""
        for line in self.lines:
            [outcome] = [outcome for query, outcome in line.outcomes if query.text == QUERY]
            yield line.now - self.began, outcome.highest if isinstance(outcome, QueryAnswer) else None

    def dark(self, since: float) -> tuple[float, float]:
        """Return when a cycle had no answer for the first time *since* then, and when one had it again."""
        silent = next(at for at, value in self.answers() if at > since and value is None)
        return silent, next(at for at, value in self.answers() if at > silent and value is not None)

    def too_low(self, begin: float, end: float) -> list[bool]:
        """Return of each answer from *begin* to *end* that was too low whether it was known to be one that may be."""
        return [
            Reason.COLD_SOURCE in line.result.reasons
            for (at, value), line in zip(self.answers(), self.lines, strict=True)
            if begin <= at < end and value is not None and value / PER_REPLICA <= line.hpa.min_replicas - 1
        ]

    def never_lowered(self, begin: float, end: float) -> bool:
        """Whether no floor from *begin* to *end* was below the one before it."""
        return all(one <= other for one, other in itertools.pairwise(self.between(begin, end)))

    def read(self, log: Path) -> None:
        """Take over what the decision log says."""
        raw = log.read_bytes().splitlines()
        assert not replay(raw).differences
        read = msgspec.json.Decoder(Line).decode
        self.lines = [line for line in map(read, raw) if isinstance(line, DecisionLine)]


def unprotected(run: Run) -> list[tuple[float, int]]:
    """Return what the older controller would have made of the same answers, with the same ratio and lower bound.

    Its formula, from its source: an answer that is none changes nothing, any other counts. Its HPA wants as many
    pods as ours.
    """
    floor, found = FIRST, []
    for at, value in run.answers():
        replicas = max(floor, math.ceil(run.story.mean(at, 60.0) / PER_POD))
        if value is not None:
            step = math.floor(replicas * RATIO) or 1
            floor = max(math.ceil(value / PER_REPLICA), replicas - step, LOWEST)
        found.append((at, floor))
    return found


async def play(folder: Path, run: Run) -> None:
    """Let the story happen."""
    story, exporter = run.story, Exporter()
    prometheus = Prometheus(past=Past([exporter], SCRAPES, kept=3600))
    loop = asyncio.get_running_loop()
    lead = 2 * 3600.0
    zero = loop.time() + lead

    def now() -> float:
        return loop.time() - zero

    def measure(hpa: Json, metric: Json, current: int) -> float:
        del hpa, metric
        return story.mean(now(), 60.0) / PER_POD / current

    speeds = Speeds(horizontal_every=HPA_EVERY, nodes_every=NEVER.nodes_every)
    async with stall(folder, prometheus=prometheus, measure=measure, speeds=speeds) as on:
        run.began = on.simulation.wall() - now()
        exporter.set("requests_total", lambda: story.total(now()) + story.calm * lead)
        on.store.listeners.append(lambda change, _: note(run, change, now()))
        await begin(on, run, folder / "decisions.jsonl")
        watch = asyncio.create_task(look(on, run, now))
        await reaches(now, 0.0)
        await reaches(now, story.down)
        exporter.stop()
        await reaches(now, story.up)
        exporter.set("requests_total", lambda: story.total(now()) - story.total(story.up))
        exporter.start()
        await reaches(now, LOST)
        await prometheus.kill()
        await on.cycles(on.replicas[0], 2)  # the second of them has had no answer
        assert prometheus.past is not None
        prometheus.past.wipe()
        await prometheus.start()
        await reaches(now, END)
        watch.cancel()
        assert (await on.state("web"))["originalMin"] == FIRST
    run.read(folder / "decisions.jsonl")


async def reaches(now: Callable[[], float], at: float) -> None:
    """Wait until it is *at*."""
    await asyncio.sleep(max(0.0, at - now()))


async def begin(on: Stall, run: Run, log: Path) -> None:
    """Make the HPA, start the controller, and wait until floor and replicas are those of the first hours."""
    await on.configured(coldSourceGuard=True, dataAgeQuery=AGE_QUERY)
    notes = hpa_annotations(
        prometheus_query=QUERY,
        requests_per_replica=PER_REPLICA,
        minimum_replicas=LOWEST,
        scale_down_max_ratio=RATIO,
        deadband="5%",
    )
    hpa = autoscaler("web", FIRST, 100, notes)
    external = {"metric": {"name": "traffic"}, "target": {"type": "AverageValue", "averageValue": f"{PER_POD:g}"}}
    hpa["spec"]["metrics"] = [{"type": "External", "external": external}]
    hpa["spec"]["behavior"] = {"scaleDown": {"stabilizationWindowSeconds": 0}}
    target = deployment("web", FIRST)
    target["spec"]["paused"] = True
    await on.api.create(target)
    await on.api.create(hpa)
    # Until the range is full twice.
    await on.sleep(2 * RANGE)
    on.start(DECISION_LOG=str(log), LEADER_ELECT="false")
    wanted = run.story.needs(0)

    async def calm() -> bool:
        found = await on.hpa("web")
        return found["spec"]["minReplicas"] <= wanted + 1 and found["status"]["currentReplicas"] < 1.5 * wanted

    await on.until(calm, f"the floor has come down to {wanted}")


def note(run: Run, change: Change, now: float) -> None:
    """Note a floor that was set."""
    thing = change.object
    if thing["kind"] == HPA and (floor := thing["spec"]["minReplicas"]) != run.floors[-1][1]:
        run.floors.append((now, floor))


async def look(on: Stall, run: Run, now: Callable[[], float]) -> None:
    """Note the replicas twice a minute."""
    while True:
        found = await on.hpa("web")
        run.replicas.append((now(), found["status"].get("currentReplicas", 0), found["spec"]["minReplicas"]))
        await asyncio.sleep(30)


async def test_the_floor_outlives_the_outage_and_follows_the_traffic(tmp_path: Path) -> None:
    run = Run(Story())
    await play(tmp_path, run)
    story = run.story
    assert story.silence / 3600 == pytest.approx(37.7, abs=0.1)
    low = [*held_outage(run), *held_loss(run)]
    assert low
    assert all(low)
    followed_up(run)
    came_down(run)
    assert len(run.floors) < len(run.lines) / 3


def held_outage(run: Run) -> list[bool]:
    """Nothing is lowered while nothing is counted, and nothing by the rates that read low before and after it.

    Returns of each answer that was too low afterwards whether it was known.
    """
    story, before = run.story, run.story.needs(run.story.down)
    silent, again = run.dark(story.down)
    assert min(run.between(story.down, again + RANGE)) >= before
    assert run.never_lowered(silent, again + RANGE)
    # The HPA would have taken all pods but one, and has taken them down to the floor.
    alone = [(replicas, floor) for at, replicas, floor in run.replicas if silent + 600 < at < story.up]
    assert alone
    assert all(replicas == floor for replicas, floor in alone)
    assert any(replicas > floor for at, replicas, floor in run.replicas if hours(1, 13) < at < story.down)
    assert min(floor for at, floor in unprotected(run) if story.down < at < again + RANGE) <= before / 2
    return run.too_low(again, again + RANGE)


def held_loss(run: Run) -> list[bool]:
    """Nothing is lowered by a Prometheus that has lost its data, and reads low until its range is filled.

    The traffic goes on, and by how much it rises meanwhile nobody can know. Returns of each answer that was too low
    whether it was known.
    """
    silent, again = run.dark(LOST)
    assert run.never_lowered(silent, again + RANGE)
    for at in moments(silent, again + RANGE):
        assert enough(run, at, run.story.needs(at))
    bare = [floor / run.story.needs(at) for at, floor in unprotected(run) if silent < at < again + RANGE]
    assert min(bare) < 0.85
    return run.too_low(again, again + RANGE)


def followed_up(run: Run) -> None:
    """A floor is raised to what an answer asks for in the same cycle, and is what true traffic needs in three.

    While nothing can be known of a rise nothing follows it.
    """
    for (_, value), line in zip(run.answers(), run.lines, strict=True):
        if value is not None:
            assert line.result.target >= math.ceil(value / PER_REPLICA)
    for line, after in itertools.pairwise(run.lines):
        assert after.hpa.min_replicas == line.result.target
    silent, again = run.dark(LOST)
    cycles = [at for at, _ in run.answers()]
    for at in moments(0, END):
        behind = cycles[max(0, bisect.bisect_right(cycles, at) - 4)] - 2 * SCRAPES
        if not silent - RANGE <= at <= again + 2 * RANGE:
            needed = min(run.story.needs(each) for each in moments(behind, at))
            assert enough(run, at, needed), f"{at:.0f} s: {run.floor(at)} of {needed}"


def enough(run: Run, at: float, needed: int) -> bool:
    """Whether the floor is as *needed*, but for a tenth and one pod: ``rate()`` is an estimate."""
    return run.floor(at) >= 0.9 * needed - 1


def came_down(run: Run) -> None:
    """In a night the floor is what the night needs, and in the afternoon three times that."""
    peak = max(run.between(*AFTERNOON))
    for night in NIGHTS:
        needed = max(run.story.needs(at) for at in moments(*night))
        assert min(run.between(*night)) <= 1.25 * needed
        assert peak >= 3 * min(run.between(*night))


def moments(begin: float, end: float) -> Iterator[float]:
    """Yield a time every 30 s."""
    return (begin + 30.0 * number for number in range(int((end - begin) / 30) + 1))
