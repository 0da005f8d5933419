"""Targets with the ways in which they mislead, and what scrapes them into the samples of a Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random

from tightship_simulator.life.evaluation import Evaluation
from tightship_simulator.life.promql import Node, parse
from tightship_simulator.life.samples import Labels, Samples
from tightship_testkit.disasters.floors.spec import RULE, App, Source
from tightship_testkit.disasters.floors.traffic import Traffic

RECORD = "app:requests:rate30s"


class Target:
    """One of the targets of an application: it shows a counter of its share of the requests, and their rate.

    *away*: it can't be scraped. *spike* is a factor of what the next scrape shows. *twin* is the counter of another one
    behind the same address: every other scrape is of that. *version* is a label of its series. *ahead* is how far in
    the future it dates its samples.
    """

    def __init__(self, app: App, traffic: Traffic, number: int) -> None:
        self.app = app.name
        self.instance = f"{app.name}-{number}:9100"
        self.away = False
        self.spike = 1.0
        self.twin = 0.0
        self.version = "v1"
        self.ahead = 0.0
        self._second = 0.0
        """The share of its requests that a second version serves."""
        self._counted = (0.0, 0.0)
        """What the counters of the two were at *_since*, a number of requests."""
        self._since = 0.0
        self._turn = False
        self._traffic = traffic
        self._share = 1.0 / app.targets

    def rate(self, at: float) -> float:
        """Return its requests per second."""
        return self._share * self._traffic.rate(at)

    def counts(self, at: float) -> tuple[float, float]:
        """Return what the counters of its two versions are."""
        more = self._share * self._traffic.count(at) - self._since
        first, second = self._counted
        return first + more * (1 - self._second), second + more * self._second

    def reset(self, at: float) -> None:
        """Begin to count anew."""
        self._counted, self._since = (0.0, 0.0), self._share * self._traffic.count(at)

    def split(self, at: float, second: float) -> None:
        """Have a second version serve a share of its requests, 0 for none."""
        first, before = self.counts(at)
        self._counted = (first, before if second else 0.0)
        self._since, self._second = self._share * self._traffic.count(at), second

    def shown(self, at: float) -> Iterator[tuple[str, str, float]]:
        """Yield what a scrape gets: name, version, value."""
        factor, self.spike = self.spike, 1.0
        first, second = self.counts(at)
        if self.twin:
            self._turn = not self._turn
            first = self.twin if self._turn else first
        rate = self.rate(at)
        yield "requests_total", self.version, first * factor
        yield "requests_per_second", self.version, rate * (1 - self._second) * factor
        if self._second:
            yield "requests_total", "v2", second * factor
            yield "requests_per_second", "v2", rate * self._second * factor


class Scraper:
    """Scrapes *targets* for the Prometheus *source*, and evaluates its rules.

    *ahead* is by how much its clock is, *lag* how many seconds pass before a sample can be asked for. *wall* gives the
    true seconds since 1970 of a time of the scenario.
    """

    def __init__(self, source: Source, targets: list[Target], wall: Callable[[float], float], rng: Random) -> None:
        self.samples = Samples(kept=2000.0)
        self.targets = targets
        self.ahead = 0.0
        self.lag = 0.0
        self._source = source
        self._wall = wall
        # Each target has its own moment, as Prometheus has it from the target's name.
        self._due = {each.instance: -source.past + rng.random() * source.scrape for each in targets}
        self._rules_due = -source.past + source.rules
        self._apps = sorted({each.app for each in targets})
        self._rules: dict[str, Node] = {app: parse(RULE.format(app=app, range="30s")) for app in self._apps}
        self._open: dict[str, set[Labels]] = {}
        self._waiting: list[tuple[float, Labels, int, float | None]] = []

    def wipe(self) -> None:
        """Forget all."""
        self.samples.wipe()
        self._open.clear()
        self._waiting.clear()

    def restarted(self) -> None:
        """Know no more which series were shown last: none of them is ended."""
        self._open.clear()

    def until(self, now: float, *, up: bool = True) -> None:
        """Do all that is due until *now*; nothing of it where the server is not *up*."""
        # First what has waited: a sample that is older than the newest of its series is dropped.
        self._release(now)
        for target in self.targets:
            while self._due[target.instance] <= now:
                at = self._due[target.instance]
                self._due[target.instance] += self._source.scrape
                if up:
                    self._scrape(target, at)
        while self._rules_due <= now:
            if up:
                self._record(self._rules_due)
            self._rules_due += self._source.rules

    def _scrape(self, target: Target, at: float) -> None:
        own = (("instance", target.instance), ("job", "apps"))
        self._add(at, _labels("up", (("app", target.app), *own)), float(not target.away))
        open_ = set()
        if not target.away:
            for name, version, value in target.shown(at):
                labels = _labels(name, (("app", target.app), ("version", version), *own))
                self._add(at, labels, value, target.ahead)
                open_.add(labels)
        for labels in sorted(self._open.get(target.instance, set()) - open_):
            self._add(at, labels, None)
        self._open[target.instance] = open_

    def _record(self, at: float) -> None:
        evaluation = Evaluation(self.samples, self._wall(at) + self.ahead, round(self._source.lookback * 1000))
        for app, node in self._rules.items():
            labels = _labels(RECORD, (("app", app),))
            found = evaluation.of(node)
            if isinstance(found, list) and found:
                self._add(at, labels, found[0][1])
                self._open.setdefault(RECORD, set()).add(labels)
            elif labels in self._open.get(RECORD, set()):
                self._add(at, labels, None)
                self._open[RECORD].discard(labels)

    def _add(self, at: float, labels: Labels, value: float | None, ahead: float = 0.0) -> None:
        stamp = round((self._wall(at) + self.ahead + ahead) * 1000)
        if self.lag:
            self._waiting.append((at + self.lag, labels, stamp, value))
        else:
            self.samples.add(labels, stamp, value)

    def _release(self, now: float) -> None:
        """Let those be asked for that have waited long enough; all of them where nothing lags any more."""
        kept = []
        for each in self._waiting:
            due, labels, stamp, value = each
            if self.lag and due > now:
                kept.append(each)
            else:
                self.samples.add(labels, stamp, value)
        self._waiting = kept


def _labels(name: str, others: tuple[tuple[str, str], ...]) -> Labels:
    return tuple(sorted((("__name__", name), *others)))


__all__ = ["RECORD", "Scraper", "Target"]
