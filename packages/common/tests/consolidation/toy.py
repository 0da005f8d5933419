"""A controller of nodes whose judgement is what its ConfigMap says, as the process runs it."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import cycle
from typing import Any

from prometheus_client import CollectorRegistry, Gauge

from tightship.cluster import Snapshot
from tightship.cluster.installations import Beside
from tightship.documents.document import SettingsView
from tightship.drain.events import DrainEvent
from tightship.draining.writing import NodePatch
from tightship.nodes.annexes import PricesSetting
from tightship.nodes.controller import NodeController, NodeNote, OwnMetrics
from tightship.nodes.loop import serve_nodes
from tightship.objects import Node
from tightship.objects.drain_record import DRAIN_ANNOTATION, Begun, DrainRecord, Finished, Phase, Price, decode_record
from tightship.objects.reasons import Check, Refusal
from tightship.planning.evaluate import Evaluation, Facts, Judge
from tightship.planning.facts import FactRules, NodeFacts, count_at_claim
from tightship.planning.plan import Candidate, Gates, Move, Placement, Planner, Removal, Strategy
from tightship.process.settings.loading import Budget, load
from tightship.process.settings.process import Name, NodeProcessSettings, Ports, Positive, variable
from tightship.process.settings.sections import NodeSettings
from tightship.rules.limits import CLUSTER, claimable, node_budget
from tightship.rules.nodes import opt_outs
from tightship.rules.waiting import Pause
from tightship.scheduler.scoring import best_fit
from tightship_testkit.simulated import Controller, Simulated, until

Json = dict[str, Any]

NAME = "node-toy"
CONFIG, LEASE = "toy-config", "toy"
MARK = Beside(NAME, f"default/{LEASE}").mark
"""The value of its soft taints."""
NOTE = "toy.dev/note"


class ToySettings(NodeSettings):
    """*goes* are the nodes to remove, *note* those to write a note on, both in order, *held* makes all of them wait.

    *to* is where the pods of the nodes to remove should land, *at_once* how many nodes may be out.
    """

    prices: PricesSetting
    on: bool = True
    goes: str = ""
    to: str = ""
    at_once: int = 1
    note: str = ""
    held: str = ""


def parse(data: Mapping[str, str]) -> ToySettings:
    return load(ToySettings, {"settleTime": 0, "pendingTimeout": "1h", "workloadPause": "0", **data})


class ToyGates(Gates):
    """Nothing is asked: the strategy does as it is told."""

    def refuses(self, candidate: Candidate, planner: Planner) -> list[Refusal]:
        return []

    def checks(self, name: str) -> tuple[Check, ...]:
        return ()


class ToyStrategy(Strategy):
    """Plans these nodes, whatever is on them."""

    name = "toy"
    choose = staticmethod(best_fit)

    def __init__(self, goes: Sequence[str], to: str) -> None:
        self._goes = goes
        self._to = to

    def extend(self, planner: Planner, gates: Gates, candidates: Sequence[Candidate]) -> dict[str, list[Refusal]]:
        for name in self._goes:
            pods = [pod for pod in planner.snapshot.nodes[name].pods if not pod.daemon] if self._to else ()
            moves = tuple(Move(pod, name, target) for pod, target in zip(pods, cycle(self._to.split()), strict=False))
            planner.removals.append(Removal(name, 1, moves))
        return {}


class ToyJudge(Judge):
    """Judges as it is told."""

    def __init__(self, settings: ToySettings) -> None:
        self.settings = settings
        self.pace = settings
        self.placement: Placement = settings.placement
        self.steering = None
        self.ahead = settings.ahead
        self.rules = FactRules(prices=settings.prices)

    def refusals(self, fact: NodeFacts, now: float) -> list[Refusal]:
        return []

    def gates(self, snapshot: Snapshot, facts: Facts, now: float) -> ToyGates:
        return ToyGates()

    def strategy(self, facts: Facts) -> Strategy:
        return ToyStrategy([name for name in self.settings.goes.split() if name in facts], self.settings.to)

    def tells_minimum(self, pool: str) -> bool:
        del pool
        return True

    def pauses(self, facts: Facts, finished: Sequence[Finished], now: float) -> Callable[[str], Pause | None]:
        return lambda pool: Pause(now + 60, pool, "as it is told") if self.settings.held else None

    def node_refusals(self, snapshot: Snapshot, node: Node) -> list[Refusal]:
        return list(opt_outs(snapshot.at(node), pools=snapshot.node_pools))

    def room(self, node: str, facts: Facts, claimed: Collection[str], begun: Begun = Begun()) -> Refusal | None:
        del begun
        count = count_at_claim(node, facts, claimed, lambda _: (CLUSTER,))
        return claimable(
            node, claimed, [node_budget(Budget(count=self.settings.at_once), CLUSTER, count).check(count, node)]
        )


class ToyMetrics(OwnMetrics):
    def __init__(self, registry: CollectorRegistry) -> None:
        self._nodes = Gauge("toy_nodes", "Nodes.", registry=registry)
        self._news = Gauge("toy_news", "What drains have told.", registry=registry)
        self.last: Evaluation | None = None

    def update(self, evaluation: Evaluation) -> None:
        self.last = evaluation
        self._nodes.set(len(evaluation.facts))

    def news(self, news: DrainEvent) -> None:
        self._news.inc()


PRICE = 3
"""USD that a node costs in an hour."""


class Toy(NodeController[ToySettings]):
    name = NAME
    version = "0.7"
    description = "Does as it is told."
    kind = "ToyStatus"

    def configured(self, data: Mapping[str, str], environment: Mapping[str, str]) -> ToySettings:
        return parse(data)

    def planned(
        self, config: str | None, environment: Mapping[str, str], flags: Mapping[str, object] = {}
    ) -> ToySettings:
        raise NotImplementedError

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        raise NotImplementedError

    def flags_given(self, arguments: argparse.Namespace) -> dict[str, object]:
        raise NotImplementedError

    def describe(self, settings: ToySettings, config: str | None) -> SettingsView:
        return SettingsView("as it is told", {"goes": settings.goes})

    def acts(self, settings: ToySettings) -> bool:
        return settings.on

    def judge(self, settings: ToySettings) -> ToyJudge:
        return ToyJudge(settings)

    def pool_of(self, node: Node, settings: ToySettings) -> str:
        return "pool"

    def price_of(self, node: Node, settings: ToySettings) -> Price:
        return PRICE * 1_000_000, "USD"

    def metrics(self, registry: CollectorRegistry) -> ToyMetrics:
        return ToyMetrics(registry)

    def notes(self, evaluation: Evaluation, settings: ToySettings) -> list[NodeNote]:
        nodes, patch = evaluation.snapshot.nodes, NodePatch(annotations={NOTE: "yes"})
        return [NodeNote(name, patch) for name in settings.note.split() if NOTE not in nodes[name].node.annotations]

    def figures(self, evaluation: Evaluation, settings: ToySettings) -> list[tuple[str, str]]:
        return [("toys", "7")]


TOY = Toy()


class ToyRun(NodeProcessSettings):
    interval: Positive = variable("PAUSE_SECONDS", default=1.0)
    config_map: Name = variable("CONFIG_MAP_NAME", default=CONFIG)
    ports: Ports = variable("HTTP_PORTS", default=(8080,))
    lease_name: Name = variable("LEASE_NAME", default=LEASE)


class Process(Controller):
    """A process of the toy."""

    def __init__(self, api: Simulated, name: str, run: ToyRun, program: str = NAME) -> None:
        self.settings = run
        self.registry: CollectorRegistry | None = None
        self.own: ToyMetrics | None = None
        process = self

        class Mine(Toy):
            name = program

            def metrics(self, registry: CollectorRegistry) -> ToyMetrics:
                process.registry = registry
                process.own = ToyMetrics(registry)
                return process.own

        super().__init__(api, name, lambda runtime: serve_nodes(Mine(), runtime, run, {}))

    @property
    def last(self) -> Evaluation | None:
        """The last evaluation."""
        return self.own.last if self.own is not None else None

    def value(self, name: str, **labels: str) -> float:
        """A metric of the process, 0 before it is there."""
        found = self.registry.get_sample_value(name, labels) if self.registry is not None else None
        return 0.0 if found is None else found

    async def passes(self, times: int = 3) -> None:
        """Wait for so many whole passes."""
        name = "tightship_loop_duration_seconds_count"
        wanted = self.value(name) + times + 1
        await until(lambda: self.value(name) >= wanted or self.task.done())
        assert not self.task.done()

    async def get(self, path: str) -> tuple[int, str]:
        """Ask it over HTTP."""
        return await self.api.get(self.name, self.settings.ports[0], path)


class Cluster:
    """What a test looks at: the API server's side."""

    def __init__(self, api: Simulated) -> None:
        self.api = api

    def configure(self, **data: Any) -> None:
        self.api.configure(
            CONFIG, {key: str(value).lower() if isinstance(value, bool) else value for key, value in data.items()}
        )

    @property
    def holder(self) -> str | None:
        return self.api.holder(LEASE)

    def record(self, name: str = "n1") -> DrainRecord | None:
        raw = self.api.node(name)
        note = (raw or {}).get("metadata", {}).get("annotations", {}).get(DRAIN_ANNOTATION)
        return None if note is None else decode_record(note)

    def phase(self, name: str = "n1") -> Phase | None:
        record = self.record(name)
        return None if record is None else record.phase

    def soft(self) -> list[str]:
        """The nodes that carry the toy's soft taint."""
        return sorted(
            name
            for name, raw in self._nodes()
            if any((each["key"], each.get("value")) == ("tightship.dev/candidate", MARK) for each in taints(raw))
        )

    def noted(self) -> list[str]:
        return sorted(name for name, raw in self._nodes() if NOTE in raw["metadata"].get("annotations", {}))

    def writes(self) -> list[str]:
        return [f"{each.call.verb} {each.call.path}" for each in self.api.did]

    def claimed(self) -> str:
        lease = self.api.store.find("Lease", "tightship-claims", "kube-system") or {"metadata": {}}
        return str(lease["metadata"].get("annotations", {}).get("tightship.dev/claims", "[]"))

    def _nodes(self) -> list[tuple[str, Json]]:
        return [(raw["metadata"]["name"], raw) for raw in self.api.store.list("Node")]


def taints(raw: Json) -> list[Json]:
    return list(raw["spec"].get("taints") or [])
