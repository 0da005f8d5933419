"""node-refiner as a controller of nodes: where its settings come from, its judge, its figures, and its command.

``plan``, ``explain`` and ``version`` write nothing; ``run`` is the controller. Threshold, minimums, pauses and drains
may change, so they come from the ConfigMap.

The metrics of the cluster stand also under the older controller's names. Utilization is in percent of the counted
nodes' allocatable amounts. Three counters of drains have an older name alone: they count completed actions, where the
older controller counted its attempts. :mod:`tightship.nodes.metrics` has the other metrics of plans and drains.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Collection, Mapping, Sequence

import msgspec
from prometheus_client import CollectorRegistry

import node_refiner
from node_refiner.advice import RefinerChanges
from node_refiner.judge import CONTROLLER, RefinerGates, RefinerJudge
from node_refiner.older import KEYS, METRIC_PREFIX, METRICS, VARIABLES, native
from node_refiner.outlook import Outlook
from node_refiner.settings import RefinerSettings
from tightship.cli.app import run
from tightship.cli.arguments import add_plan_flags, given
from tightship.cli.commands import Commands
from tightship.documents.build import share
from tightship.documents.document import ExcessSummary, SettingsView
from tightship.drain.events import DrainEvent, EventKind
from tightship.nodes.controller import NodeController, OwnMetrics
from tightship.objects.counting import counted
from tightship.objects.drain_record import Phase
from tightship.planning.evaluate import Evaluation
from tightship.process.metrics import PREFIX, NamedCounter, OlderName, gauges
from tightship.process.settings.loading import ConfigSource, FlagSource, config_in, read_config, resolve, wire
from tightship.process.settings.process import Name, NodeProcessSettings, Port, Ports, Positive, RunWords, variable


def summarize(settings: RefinerSettings, config: str | None) -> str:
    """Return one line with the settings that shape a plan; *config* is the name of their file."""
    origin = "no configuration given" if config is None else f"from {config}"
    minimums = f"{counted(settings.minimum_nodes, 'node')} and {settings.minimum_non_tainted_nodes} untainted"
    parts = [f"threshold {settings.excess_nodes_threshold:g}, minimum {minimums} ({origin})"]
    if settings.count_tainted:
        parts.append("dedicated pools counted")
    if not settings.drainer_enabled:
        parts.append("drainer disabled")
    if settings.candidate_order == "score" and (settings.cpu_weight, settings.memory_weight) != (0.8, 0.2):
        parts.append(f"weights {settings.cpu_weight:g} CPU, {settings.memory_weight:g} memory")
    if settings.max_nodes is not None:
        parts.append(f"at most {counted(settings.max_nodes, 'removal')}")
    if settings.minimum_saving:
        parts.append(f"at least {settings.minimum_saving:g} a month for each eviction")
    if settings.disabled_rules:
        parts.append(f"without {', '.join(sorted(settings.disabled_rules))}")
    return "; ".join(parts)


def excess_summary(outlooks: Mapping[str, Outlook], settings: RefinerSettings) -> ExcessSummary:
    """Return the figures of *outlooks* for a document: of all untainted nodes, and of each dedicated pool in them."""
    own = {name: _summary(each, settings) for name, each in outlooks.items()}
    return msgspec.structs.replace(own.pop(""), dedicated=own)


def _summary(outlook: Outlook, settings: RefinerSettings) -> ExcessSummary:
    counted, excess = outlook.counted, outlook.excess
    return ExcessSummary(
        nodes=None if excess is None else _figure(excess.nodes),
        resource=None if excess is None else "cpu" if excess.cpu <= excess.memory else "memory",
        cpu=None if excess is None else _figure(excess.cpu),
        memory=None if excess is None else _figure(excess.memory),
        candidate=None if excess is None else excess.node,
        could_go=len(outlook.turns),
        threshold=settings.excess_nodes_threshold,
        counted_nodes=counted.many,
        cpu_milli=share(counted.cpu_requested, counted.cpu_allocatable),
        memory_bytes=share(counted.memory_requested, counted.memory_allocatable),
    )


def _figure(nodes: float) -> float | None:
    return round(nodes, 4) if math.isfinite(nodes) else None


_GAUGES = {
    "cluster_excess_nodes": "How many nodes like the present candidate the cluster could do without.",
    "cluster_counted_nodes": "The number of counted nodes: Ready, schedulable, and without a taint that excludes pods.",
    "cluster_nodes": "The number of nodes.",
    "cluster_pods": "The number of pods on nodes.",
    "cluster_cpu_utilization": "CPU requests on the counted nodes, in percent of their allocatable CPU.",
    "cluster_memory_utilization": "Memory requests on the counted nodes, in percent of their allocatable memory.",
    "cluster_cordoned_nodes": "The number of cordoned nodes.",
    "cluster_removable_nodes": "The number of nodes that could go one after another, with a place for every pod.",
}
_COUNTERS = {
    "nodes_cordoned": "Nodes cordoned for a drain.",
    "nodes_drained": "Nodes that a drain has emptied.",
    "nodes_uncordoned": "Nodes uncordoned again because their drain was given up.",
}


class RefinerMetrics(OwnMetrics):
    """The metrics that only the refiner has. Create them once for a *registry*. Not thread-safe."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._gauges = gauges(PREFIX, _GAUGES, registry)
        for older, name in METRICS.items():
            OlderName(self._gauges[name], METRIC_PREFIX + older, registry=registry)
        self._counters = {
            name: NamedCounter(METRIC_PREFIX + name, text, registry=registry) for name, text in _COUNTERS.items()
        }

    def update(self, evaluation: Evaluation) -> None:
        """Replace everything by the results of the last pass."""
        assert isinstance(evaluation.gates, RefinerGates)
        outlook, views = evaluation.gates.outlook, evaluation.snapshot.nodes.values()
        nodes = [fact.view.node for fact in evaluation.facts.values()]
        counted = outlook.counted
        excess = outlook.excess.nodes if outlook.excess is not None else 0.0
        for name, value in (
            ("cluster_excess_nodes", excess if math.isfinite(excess) else 0.0),
            ("cluster_counted_nodes", counted.many),
            ("cluster_nodes", len(nodes)),
            ("cluster_pods", sum(not pod.finished for view in views for pod in view.pods)),
            ("cluster_cpu_utilization", _percent(counted.cpu_requested, counted.cpu_allocatable)),
            ("cluster_memory_utilization", _percent(counted.memory_requested, counted.memory_allocatable)),
            ("cluster_cordoned_nodes", sum(node.unschedulable for node in nodes)),
            ("cluster_removable_nodes", len(outlook.turns)),
        ):
            self._gauges[name].set(value)

    def news(self, news: DrainEvent) -> None:
        """Count what a drain reports."""
        if news.kind is EventKind.CLAIMED:
            self._counters["nodes_cordoned"].inc()
        elif news.kind is EventKind.PHASE and news.record is not None:
            if news.record.phase is Phase.DRAINED and news.before is not Phase.DRAINED:
                self._counters["nodes_drained"].inc()
            elif news.record.phase is Phase.BACKOFF and news.before is Phase.RESTORING:
                self._counters["nodes_uncordoned"].inc()


def _percent(requested: int, allocatable: int) -> float:
    return 100 * requested / allocatable if allocatable else 0.0


CONFIG_MAP_KEYS = ("config.yaml", "config.json")
"""Keys of a ConfigMap's data that may hold a configuration; the first that exists counts. SAP node-refiner's data are
the configuration themselves.
"""


class RefinerRunSettings(NodeProcessSettings):
    """The settings of the process. Durations are in seconds."""

    words = RunWords(
        does="count excess nodes, drain one, hand it over, loop after loop",
        description="Run the controller: count the nodes the cluster could do without, drain the one whose removal "
        "disturbs least, hand it to the Cluster Autoscaler, again and again. Serves metrics, probes and its last plan "
        "over HTTP.",
        live="threshold, minimums and pauses",
    )

    older = VARIABLES

    interval: Positive = variable("INTERVAL", default=60.0)
    config_map: Name = variable("CONFIG_MAP_NAME", default="node-refiner-config")
    ports: Ports = variable("HTTP_PORTS", default=(8080,))
    probe_port: Port = variable("HTTP_PROBE_PORT", default=9102)
    lease_name: Name = variable("LEASE_NAME", default="node-refiner")
    landings: Name = variable("LANDINGS_CONFIG_MAP_NAME", default="node-refiner-landings")


class Refiner(NodeController[RefinerSettings]):
    """See :class:`tightship.nodes.controller.NodeController`."""

    name = CONTROLLER
    version = node_refiner.__version__
    description = "Counts the nodes that a cluster could do without, and drains one at a time."
    kind = "RefinerStatus"
    process = RefinerRunSettings
    needs_configuration = True

    def configured(self, data: Mapping[str, str], environment: Mapping[str, str]) -> RefinerSettings:
        """Return the settings of a running controller; no environment variable changes them."""
        del environment
        key, found = config_in(data, CONFIG_MAP_KEYS, flat=KEYS)
        return resolve(RefinerSettings, ConfigSource(RefinerSettings, native(found), key))

    def planned(
        self, config: str | None, environment: Mapping[str, str], flags: Mapping[str, object] = {}
    ) -> RefinerSettings:
        """Return the settings of a plan; no environment variable changes them."""
        del environment
        values = {} if config is None else read_config(config, CONFIG_MAP_KEYS, flat=KEYS)
        source = ConfigSource(RefinerSettings, native(values), config or "")
        return resolve(RefinerSettings, FlagSource(RefinerSettings, flags), source)

    def acts(self, settings: RefinerSettings) -> bool:
        """Whether the drainer is enabled."""
        return settings.drainer_enabled

    def switched_off(self, settings: RefinerSettings) -> RefinerSettings:
        """Return *settings* without the drainer."""
        return settings.model_copy(update={"drainer_enabled": False})

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Add the flags for nodes that may go, threshold and minimums, plan and rules, by topic."""
        add_plan_flags(
            parser,
            RefinerSettings,
            config="configuration: YAML or JSON, or a ConfigMap manifest that holds either (default: the defaults)",
            gates="threshold and minimums (each replaces the value of --config)",
        )

    def flags_given(self, arguments: argparse.Namespace) -> dict[str, object]:
        """Return the settings given as flags, by field."""
        return given(arguments, RefinerSettings)

    def describe(self, settings: RefinerSettings, config: str | None) -> SettingsView:
        """Return *settings* for people."""
        return SettingsView(summarize(settings, config), wire(settings))

    def judge(self, settings: RefinerSettings) -> RefinerJudge:
        """Return *settings* as rules."""
        return RefinerJudge(settings)

    def changes(self, settings: RefinerSettings, given: Collection[str] = ()) -> RefinerChanges:
        """Return the changes of *settings* that advice may name."""
        return RefinerChanges(settings, given)

    def metrics(self, registry: CollectorRegistry) -> RefinerMetrics:
        """Register the metrics of the cluster and of drains under the older controller's names."""
        return RefinerMetrics(registry)

    def excess(self, evaluation: Evaluation, settings: RefinerSettings) -> ExcessSummary:
        """Return how many nodes the cluster could do without."""
        assert isinstance(evaluation.gates, RefinerGates)
        return excess_summary(evaluation.gates.outlooks, settings)

    def figures(self, evaluation: Evaluation, settings: RefinerSettings) -> Sequence[tuple[str, str]]:
        """Return the refiner's figures for the page."""
        figures = self.excess(evaluation, settings)
        by = f"{_two(figures.cpu)} by CPU, {_two(figures.memory)} by memory"
        return (
            ("could go", f"{counted(figures.could_go, 'node')}, pod by pod; the threshold is {figures.threshold:g}"),
            ("free room", f"{_two(figures.nodes)} nodes like the next one: {by}"),
        )


def load_settings(values: Mapping[str, object]) -> RefinerSettings:
    """Return settings from values by the configuration's keys. Raises ``SettingsError`` with all problems."""
    return resolve(RefinerSettings, ConfigSource(RefinerSettings, native(values)))


def _two(nodes: float | None) -> str:
    return "-" if nodes is None else f"{nodes:.2f}"


REFINER = Refiner()
COMMANDS = Commands(REFINER)


def main() -> None:
    """Run the command with the process's arguments, and exit."""
    sys.exit(run(REFINER.name, COMMANDS.command))


if __name__ == "__main__":
    main()
