"""A controller of nodes whose judgement is what its ConfigMap says, as the process runs it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct
from prometheus_client import CollectorRegistry, Gauge

from tightship.app.runtime.serving import Configuration
from tightship.app.settings.loading import load
from tightship.app.settings.process import Name, NodeProcessSettings, Ports, Positive, variable
from tightship.app.settings.sections import DrainKeys, NodeKeys, ScaleUpKeys, SteeringKeys
from tightship.core.drain_record import DRAIN_ANNOTATION, DrainRecord, Finished, Phase, decode_record
from tightship.core.objects import Pod
from tightship.core.reasons import Reason, Refusal
from tightship.drain.events import DrainEvent
from tightship.drain_io.claims import Claim
from tightship.drain_io.writing import NodePatch
from tightship.nodes.claim_budget import cluster_room
from tightship.nodes.controller import NodeController
from tightship.nodes.drains import drain_settings
from tightship.nodes.serving import serve_nodes
from tightship.nodes.soft_taints import Steering, steer
from tightship.nodes.status import Remarks
from tightship.planning.cluster import NodeView, Snapshot
from tightship.planning.evictability import EvictionRules
from tightship.planning.nodes import opt_outs
from tightship.planning.plan import Plan, Removal
from tightship.planning.utilization import Utilization, utilization
from tightship.report import Generator, SettingsView
from tightship.report.html.model import Fact
from tightship_testkit.simulated import Controller, Simulated, until

Json = dict[str, Any]

NAME = "node-toy"
CONFIG, LEASE = "toy-config", "toy"
NOTE = "toy.dev/note"


class ToySettings(DrainKeys, NodeKeys, ScaleUpKeys, SteeringKeys):
    """*goes* are the nodes to remove, *note* those to write a note on, both in order, *held* those that wait."""

    on: bool = True
    goes: str = ""
    note: str = ""
    held: str = ""


def parse(data: Mapping[str, str]) -> ToySettings:
    return load(ToySettings, {"settleTime": 0, "pendingTimeout": "1h", **data})


class ToyFacts(Struct, frozen=True):
    view: NodeView
    utilization: Utilization
    draining: bool = False
    pool: str = "pool"
    evict: tuple[Pod, ...] = ()
    refusals: tuple[Refusal, ...] = ()


class ToyNote(Struct, frozen=True):
    node: str

    @property
    def patch(self) -> NodePatch:
        return NodePatch(annotations={NOTE: "yes"})


class ToyDecision(Struct, frozen=True):
    snapshot: Snapshot
    settings: ToySettings
    now: float
    facts: Mapping[str, ToyFacts]
    plan: Plan
    held: Mapping[str, Refusal]
    unhealthy: Refusal | None
    steering: Steering
    notes: tuple[ToyNote, ...]
    finished: tuple[Finished, ...]

    @property
    def settings_view(self) -> SettingsView:
        return SettingsView("as it is told", {"goes": self.settings.goes})

    def room(self, node: str, claims: Sequence[Claim]) -> Refusal | None:
        return cluster_room(node, self.facts, None, claims)


def decide(
    snapshot: Snapshot,
    settings: ToySettings,
    now: float,
    *,
    finished: Sequence[Finished],
    regrets: Mapping[str, Refusal],
    unhealthy: Refusal | None,
) -> ToyDecision:
    goes = [name for name in settings.goes.split() if name in snapshot.nodes]
    plan = Plan("toy", "likely", tuple(Removal(name, 1, ()) for name in goes), {})
    waits = {name: Refusal(Reason.COOL_DOWN, name, "as it is told") for name in settings.held.split()}
    waits |= dict.fromkeys(goes, regrets["pool"]) if "pool" in regrets else {}
    held = {name: unhealthy or waits[name] for name in goes if unhealthy is not None or name in waits}
    notes = [name for name in settings.note.split() if NOTE not in snapshot.nodes[name].node.annotations]
    return ToyDecision(
        snapshot=snapshot,
        settings=settings,
        now=now,
        facts={name: ToyFacts(view, utilization(view, now)) for name, view in snapshot.nodes.items()},
        plan=plan,
        held=held,
        unhealthy=unhealthy,
        steering=steer(snapshot, plan, settings.candidate_taints, settings.steering, NAME),
        notes=tuple(map(ToyNote, notes)),
        finished=tuple(finished),
    )


class ToyMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self._nodes = Gauge("toy_nodes", "Nodes.", registry=registry)
        self._news = Gauge("toy_news", "What drains have told.", registry=registry)
        self.last: ToyDecision | None = None

    def update(self, decision: ToyDecision) -> None:
        self.last = decision
        self._nodes.set(len(decision.facts))

    def news(self, news: DrainEvent) -> None:
        self._news.inc()


TOY: NodeController[ToySettings, ToyDecision] = NodeController(
    program=Generator(NAME, "0.7"),
    kind="ToyStatus",
    configuration=Configuration(parse, acting=lambda settings: settings.on),
    decide=decide,
    drain_settings=lambda settings: drain_settings(
        settings, EvictionRules(), "likely", settings.ahead(()), lambda _, node: opt_outs(node)
    ),
    ahead=lambda settings: settings.ahead(()),
    pool_of=lambda node, settings: "pool",
    metrics=ToyMetrics,
    remarks=lambda decision: Remarks((Fact("toys", "7"),), ("All is toys.",)),
)


class ToyRun(NodeProcessSettings):
    interval: Positive = variable("PAUSE_SECONDS", default=1.0)
    config_map: Name = variable("CONFIG_MAP_NAME", default=CONFIG)
    ports: Ports = variable("HTTP_PORTS", default=(8080,))
    lease_name: Name = variable("LEASE_NAME", default=LEASE)


class Process(Controller):
    """A process of the toy."""

    def __init__(self, api: Simulated, name: str, run: ToyRun) -> None:
        self.settings = run
        self.registry: CollectorRegistry | None = None
        self.own: ToyMetrics | None = None
        toy = msgspec.structs.replace(TOY, metrics=self._metrics)
        super().__init__(api, name, lambda runtime: serve_nodes(runtime, run, toy))

    def _metrics(self, registry: CollectorRegistry) -> ToyMetrics:
        self.registry = registry
        self.own = ToyMetrics(registry)
        return self.own

    @property
    def last(self) -> ToyDecision | None:
        """The last decision."""
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
            if any((each["key"], each.get("value")) == ("tightship.dev/candidate", NAME) for each in taints(raw))
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
