"""Four days of August 1995 with their real outage, through everything that is real: exporter, Prometheus, API server,
HPA controller and ``hpa-scaler run``.

The story. The requests of a web server, counted minute by minute, a thousandfold: a night, a day, 37.7 hours in which
nothing was counted, six more with next to no requests, the peak of an afternoon, and a night. While nothing is counted
the exporter is away, and comes back with its counter at zero. In the peak Prometheus loses its data. Meanwhile an HPA
follows the very traffic by a metric of its own: without a floor it would take all pods but one.

The time. One second here is 36 minutes there (``SPEED``), 80 hours are 133 s. The durations of the controller are those
of its documentation divided by 150 (``SHORTER``): a cycle of half a second instead of 75 s, a range of 2 s instead of
5 minutes, and so by default a lowering window of 4 s instead of 10 minutes. So for the controller traffic changes 14
times as fast as in life: following it is harder, never easier. A step down may take half of the pods, so that it gets
down in a night.

What is seen. Each value that ``minReplicas`` had and since when, from the API server's audit log; each answer that the
controller got, from its decision log; replicas, by looking twice a second.
"""

from __future__ import annotations

import asyncio
import bisect
import itertools
import json
import math
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
from floors import Open, Shop
from traffic import august_1995, longest_silence

from hpa_scaler.decision_log import DecisionLine, Line, replay
from hpa_scaler.queries import AGE_QUERY, Answer
from hpa_scaler.reasons import Reason
from tightship_e2e.exporter import Exporter
from tightship_e2e.external_metrics import ExternalMetrics
from tightship_e2e.plugin import require_programs
from tightship_e2e.prometheus import Prometheus
from tightship_testkit.audit import AuditEvent
from tightship_testkit.floors import autoscaler, deployment, hpa_annotations
from tightship_testkit.replica import SCALER

SPEED = 36 * 60.0
SHORTER = 150
SCALE = 1000.0
CYCLE, RANGE = 75 / SHORTER, 300 / SHORTER
SCRAPES = 0.2

PER_REPLICA = 40.0
PER_POD = 32.0
"""What the HPA wants a pod to do: a quarter more pods than the floor has, as long as there is traffic."""
RATIO = 0.5
LOWEST = 3
FIRST = 25
QUERY = f"sum(rate(requests_total[{RANGE:g}s]))"


def hours(day: int, hour: float) -> float:
    """Return how long after the beginning, in seconds of the test, it is *hour* (UTC) of a *day* in August."""
    return ((day - 1) * 24 + hour - 4) * 3600 / SPEED


NIGHTS = ((hours(1, 5), hours(1, 11)), (hours(4, 5), hours(4, 11)))
AFTERNOON = hours(3, 16), hours(3, 21)
LOST = hours(3, 18.5)
END = hours(4, 12)


class Story:
    """The traffic, by the seconds since its beginning; before that it is as in its first three hours."""

    def __init__(self) -> None:
        minutes = august_1995()
        assert datetime.fromtimestamp(minutes[0][0], UTC) == datetime(1995, 8, 1, 4, tzinfo=UTC)
        self.rates = [rate * SCALE for _, rate in minutes[: math.ceil(END * SPEED / 60) + 1]]
        self.down, self.up = (minute * 60 / SPEED for minute in longest_silence(self.rates))
        self.calm = sum(self.rates[:180]) / 180
        self._sums = [0.0]
        for rate in self.rates:
            self._sums.append(self._sums[-1] + rate * 60 / SPEED)

    def total(self, at: float) -> float:
        """Return how many requests there have been since the beginning."""
        if at <= 0:
            return self.calm * at
        minute = min(int(at * SPEED / 60), len(self.rates) - 1)
        return self._sums[minute] + self.rates[minute] * (at - minute * 60 / SPEED)

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
    made: float = field(default_factory=time.time)
    began: float | None = None
    floors: list[tuple[float, int]] = field(default_factory=list)
    replicas: list[tuple[float, int, int]] = field(default_factory=list)
    lines: list[DecisionLine] = field(default_factory=list)

    @property
    def now(self) -> float:
        """How long ago the story began; 0 until then."""
        return 0.0 if self.began is None else time.time() - self.began

    def counted(self) -> float:
        """Return how many requests there have been, those before the story too."""
        began = time.time() if self.began is None else self.began
        return self.story.calm * (began - self.made) + self.story.total(self.now)

    async def reaches(self, at: float) -> None:
        """Wait until it is *at*."""
        await asyncio.sleep(max(0.0, at - self.now))

    def since(self, when: float) -> float:
        """Return how long after the beginning a time since 1970 was."""
        assert self.began is not None
        return when - self.began

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
            yield self.since(line.now), outcome.highest if isinstance(outcome, Answer) else None

    def dark(self, since: float) -> tuple[float, float]:
        """Return when a cycle had no answer for the first time *since* then, and when one had it again."""
        silent = next(at for at, value in self.answers() if at > since and value is None)
        return silent, next(at for at, value in self.answers() if at > silent and value is not None)

    def too_low(self, begin: float, end: float) -> list[bool]:
        """Return of each answer from *begin* to *end* that was too low whether it was known to be one that may be.

        A controller that stands still for as long as the range is has none.
        """
        return [
            Reason.COLD_SOURCE in line.result.reasons
            for (at, value), line in zip(self.answers(), self.lines, strict=True)
            if begin <= at < end and value is not None and value / PER_REPLICA <= line.hpa.min_replicas - 1
        ]

    def never_lowered(self, begin: float, end: float) -> bool:
        """Whether no floor from *begin* to *end* was below the one before it."""
        return all(one <= other for one, other in itertools.pairwise(self.between(begin, end)))

    def read(self, log: Path, events: list[AuditEvent]) -> None:
        """Take over what the logs say."""
        raw = log.read_bytes().splitlines()
        assert not replay(raw).differences
        read = msgspec.json.Decoder(Line).decode
        self.lines = [line for line in map(read, raw) if isinstance(line, DecisionLine)]
        for event in events:
            ref = event.object_ref
            if (ref.resource, ref.name, ref.subresource) != (
                "horizontalpodautoscalers",
                "web",
                "",
            ) or event.code != 200:
                continue
            if event.verb in ("patch", "update"):
                assert event.user.username == SCALER.user, "nobody else writes here"
                found = json.loads(bytes(event.response_object))
                at = self.since(datetime.fromisoformat(event.stage_timestamp).timestamp())
                self.floors.append((at, found["spec"]["minReplicas"]))
        self.floors.sort()


def unprotected(run: Run) -> list[tuple[float, int]]:
    """Return what the older controller would have made of the same answers, with the same ratio and lower bound.

    Its formula, from its source: an answer that is none changes nothing, any other counts. Its HPA wants as many
    pods as ours.
    """
    floor, found = FIRST, []
    for at, value in run.answers():
        replicas = max(floor, math.ceil(run.story.mean(at, 1.0) / PER_POD))
        if value is not None:
            step = math.floor(replicas * RATIO) or 1
            floor = max(math.ceil(value / PER_REPLICA), replicas - step, LOWEST)
        found.append((at, floor))
    return found


async def play(on: Shop, run: Run, path: Path) -> None:
    """Let the story happen."""
    story = run.story
    exporter = Exporter()
    exporter.set("requests_total", run.counted)
    async with ExternalMetrics(on.api, path) as metrics:
        metrics.values["traffic"] = lambda: story.mean(run.now, 1.0)
        with exporter, Prometheus(exporter.target, interval=SCRAPES) as prometheus:
            log = path / "decisions.jsonl"
            await begin(on, run, prometheus, log)
            watch = asyncio.create_task(look(on, run))
            try:
                await run.reaches(story.down)
                await asyncio.to_thread(exporter.stop)
                await run.reaches(story.up)
                exporter.set("requests_total", lambda: story.total(run.now) - story.total(story.up))
                await asyncio.to_thread(exporter.start)
                await run.reaches(LOST)
                await asyncio.to_thread(prometheus.kill)
                await on.cycles(on.replicas[0], 2)  # however soon it is back: the second of them has had no answer
                prometheus.wipe()
                await asyncio.to_thread(prometheus.start)
                await run.reaches(END)
            finally:
                watch.cancel()
                with suppress(asyncio.CancelledError):
                    await watch
            for each in on.replicas:
                await asyncio.to_thread(each.kill)
            run.read(log, on.plane.audit_events())


async def begin(on: Shop, run: Run, prometheus: Prometheus, log: Path) -> None:
    """Make the HPA, start the controller, and begin once floor and replicas are those of the first hours."""
    on.plane.audit_events()
    await on.configured(coldSourceGuard=True, dataAgeQuery=AGE_QUERY, circuitBreakerPause=30 / SHORTER)
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
    at_once = {"stabilizationWindowSeconds": 0, "policies": [{"type": "Pods", "value": 1000, "periodSeconds": 1}]}
    hpa["spec"]["behavior"] = {"scaleUp": at_once, "scaleDown": at_once}
    await on.api.create(deployment("web", FIRST))
    await on.api.create(hpa)
    run.floors = [(-math.inf, FIRST)]
    await asyncio.to_thread(prometheus.wait_for_value, QUERY, lambda rate: bool(rate and rate > 0.9 * run.story.calm))
    on.start(PROMETHEUS_SERVER_URL=prometheus.url, DECISION_LOG=str(log), **{SCALER.interval: f"{CYCLE:g}"})
    wanted = run.story.needs(0)

    async def calm() -> bool:
        found = await on.hpa("web")
        return found["spec"]["minReplicas"] <= wanted + 1 and found["status"]["currentReplicas"] < 1.5 * wanted

    await on.until(calm, f"the floor has come down to {wanted}")
    run.began = time.time()


async def look(on: Shop, run: Run) -> None:
    """Note replicas and metrics, twice a second."""
    while True:
        found = await on.hpa("web")
        run.replicas.append((run.now, found["status"].get("currentReplicas", 0), found["spec"]["minReplicas"]))
        await asyncio.sleep(0.5)


def test_the_floor_outlives_the_outage_and_follows_the_traffic(in_shop: Open, tmp_path: Path) -> None:
    require_programs("prometheus")
    run = Run(Story())

    async def work(on: Shop) -> None:
        try:
            await play(on, run, tmp_path)
        except Exception as error:
            raise AssertionError(on.logs()) from error
        assert (await on.state("web"))["originalMin"] == FIRST

    in_shop(work)
    story = run.story
    assert (story.up - story.down) * SPEED / 3600 == pytest.approx(37.7, abs=0.1)
    low = [*held_outage(run), *held_loss(run)]
    assert low
    assert all(low)
    followed_up(run)
    came_down(run)
    assert len(run.floors) < len(run.lines) / 3


def held_outage(run: Run) -> list[bool]:
    """Nothing is lowered while nothing is counted, and nothing by the rates that read low before and after it.

    Prometheus answers on for a range after the exporter is gone, with a rate that falls to nothing. Returns of each
    answer that was too low afterwards whether it was known.
    """
    story, before = run.story, run.story.needs(run.story.down)
    silent, again = run.dark(story.down)
    assert min(run.between(story.down, again + RANGE)) >= before
    assert run.never_lowered(silent, again + RANGE)
    # The HPA would have taken all pods but one, and has taken them down to the floor.
    alone = [(replicas, floor) for at, replicas, floor in run.replicas if silent + 20 < at < story.up]
    assert alone
    assert all(replicas == floor for replicas, floor in alone)
    assert any(replicas > floor for at, replicas, floor in run.replicas if hours(1, 13) < at < story.down)
    assert min(floor for at, floor in unprotected(run) if story.down < at < again + RANGE) <= before / 2
    return run.too_low(again, again + RANGE)


def held_loss(run: Run) -> list[bool]:
    """Nothing is lowered by a Prometheus that has lost its data, and reads low until its range is filled.

    Returns of each answer that was too low whether it was known.
    """
    silent, again = run.dark(LOST)
    assert run.never_lowered(silent, again + RANGE)
    true = [(run.floor(at), run.story.needs(at)) for at in moments(silent, again + RANGE)]
    assert all(floor >= needed for floor, needed in true)
    low = run.too_low(again, again + RANGE)
    bare = [floor / run.story.needs(at) for at, floor in unprotected(run) if silent < at < again + RANGE]
    # Of few the first may have been late, and not far too low any more.
    assert len(low) < 3 or min(bare) < 0.85
    return low


def followed_up(run: Run) -> None:
    """A floor is raised to what an answer asks for in the same cycle, and is what true traffic needs in three.

    But for a tenth and one pod: ``rate()`` is an estimate. While nothing can be known of a rise nothing follows it.
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
            assert run.floor(at) >= 0.9 * needed - 1, f"{at:.2f} s: {run.floor(at)} of {needed}"


def came_down(run: Run) -> None:
    """In a night the floor is what the night needs, and in the afternoon three times that."""
    peak = max(run.between(*AFTERNOON))
    for night in NIGHTS:
        needed = max(run.story.needs(at) for at in moments(*night))
        assert min(run.between(*night)) <= 1.25 * needed
        assert peak >= 3 * min(run.between(*night))


def moments(begin: float, end: float) -> Iterator[float]:
    """Return a time every 50 ms."""
    return (begin + 0.05 * number for number in range(int((end - begin) / 0.05) + 1))
