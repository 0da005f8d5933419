"""node-compactor as a controller of nodes: where its settings come from, its judge, its marks, and its command.

``plan``, ``explain`` and ``version`` write nothing; ``run`` is the controller. Settings that may change (pools, gates,
drains) come from the ConfigMap.

The metrics of nodes and pools stand also under the older controller's names. Those of nodes keep its units: CPU in
milli-CPU, memory in MiB, ratios between 0 and 1. Memory keeps its fraction; the older controller rounded down (and read
some quantities as 0). The series are from the last pass, so objects that are gone from the cluster leave the metrics.
:mod:`tightship.nodes.metrics` has the metrics of plans and drains.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter as Count
from collections.abc import Collection, Mapping, Sequence

from prometheus_client import CollectorRegistry

import node_compactor
from node_compactor.advice import CompactorChanges
from node_compactor.judge import CompactorGates, CompactorJudge
from node_compactor.marking import CONTROLLER, mark_writes, marked_since
from node_compactor.older import DATA_KEY, METRIC_PREFIX, METRICS, PROCESS_VARIABLES, VARIABLES, native
from node_compactor.settings import EVERY_OTHER_POOL, CompactorSettings, PoolSettings, load_settings
from tightship.cli.app import run
from tightship.cli.arguments import add_plan_flags, given
from tightship.cli.commands import Commands
from tightship.documents.document import SettingsView
from tightship.nodes.controller import NodeController, NodeNote, OwnMetrics
from tightship.objects.counting import counted, some
from tightship.objects.times import format_duration
from tightship.planning.evaluate import Evaluation, Facts
from tightship.planning.plan.model import Measure
from tightship.process.metrics import PREFIX, OlderName, Row, SnapshotGauge, snapshots
from tightship.process.settings.loading import (
    ConfigSource,
    DefaultSource,
    EnvironmentSource,
    FlagSource,
    Location,
    config_in,
    flags_of,
    read_config,
    resolve,
    wire,
    wire_keys,
)
from tightship.process.settings.process import Name, NodeProcessSettings, Ports, Positive, RunWords, variable

POOLS_NAMED = 4
"""Most pools that a summary names before it only counts them."""

_MEASURES: Mapping[Measure, str] = {"dominant": "the largest of CPU, memory and extended resources", "cpu": "CPU"}


def summarize(settings: CompactorSettings, config: str | None) -> str:
    """Return one line with the settings that shape a plan; *config* is the name of their file."""
    parts = [_pools(settings, config)]
    if settings.cluster_budget is not None:
        parts.append(f"at most {settings.cluster_budget} of all nodes at once")
    if settings.max_nodes is not None:
        parts.append(f"at most {counted(settings.max_nodes, 'removal')}")
    if settings.minimum_saving:
        parts.append(f"at least {settings.minimum_saving:g} a month for each eviction")
    if settings.minimum_age:
        parts.append(f"nodes from an age of {format_duration(settings.minimum_age)} on")
    if settings.marked_for:
        parts.append(f"marked for {format_duration(settings.marked_for)}")
    if settings.disabled_rules:
        parts.append(f"without {', '.join(sorted(settings.disabled_rules))}")
    if settings.ignore_daemonsets:
        parts.append("DaemonSets not counted")
    if settings.ignore_mirror_pods:
        parts.append("mirror pods not counted")
    if "least-utilized" in settings.strategies:
        parts.append(f"least utilized by {_MEASURES[settings.utilization]}")
    return "; ".join(parts)


def _pools(settings: CompactorSettings, config: str | None) -> str:
    pools = {name: pool for name, pool in sorted(settings.pools.items()) if pool.enabled}
    if config is None:
        return f"{_gates(pools[EVERY_OTHER_POOL])}, every pool (no configuration given)"
    origin = f"(from {config})"
    if not pools:
        return f"no pool is enabled {origin}"
    shown = {name: "every other pool" if name == EVERY_OTHER_POOL else f"pool {name}" for name in pools}
    texts = {_gates(pool) for pool in pools.values()}
    if len(pools) == 1 and EVERY_OTHER_POOL in pools:
        shown[EVERY_OTHER_POOL] = "every pool"
    if len(texts) == 1:
        return f"{texts.pop()}, {some(list(shown.values()), POOLS_NAMED)} {origin}"
    described = [f"{shown[name]} {_gates(pool)}" for name, pool in pools.items()]
    return f"{some(described, POOLS_NAMED, '; ')} {origin}"


def _gates(pool: PoolSettings) -> str:
    parts = [f"limit {pool.limit:g}", f"required {pool.required_count}"]
    if pool.minimum_nodes:
        parts.append(f"minimum {pool.minimum_nodes}")
    if pool.budget is not None:
        parts.append(f"budget {pool.budget}")
    return ", ".join(parts)


MIB = 2**20

_POOL_GAUGES: Mapping[str, Row] = {
    "pool_nodes": ("The number of nodes in the pool.", "pool"),
    "pool_underutilized_nodes": ("The number of nodes in the pool that are underutilized.", "pool"),
    "pool_marked_nodes": ("The number of nodes in the pool that are marked for removal.", "pool"),
    "pool_draining_nodes": ("The number of nodes in the pool that are in drain.", "pool"),
}
_UTILIZATION = "Requests over the allocatable amount of the node, by resource: cpu or memory."
_NODE_GAUGES: Mapping[str, Row] = {
    "allocatable_cpu": ("The allocatable CPU of the node, in milli-CPU.", "node", "nodepool"),
    "allocatable_memory": ("The allocatable memory of the node, in MiB.", "node", "nodepool"),
    "total_cpu_requests": ("The CPU requests of the node's pods, in milli-CPU.", "node", "nodepool"),
    "total_memory_requests": ("The memory requests of the node's pods, in MiB.", "node", "nodepool"),
    "utilized_cpu_ratio": ("CPU requests over allocatable CPU of the node.", "node", "nodepool"),
    "utilized_memory_ratio": ("Memory requests over allocatable memory of the node.", "node", "nodepool"),
}


class CompactorMetrics(OwnMetrics):
    """The metrics that only the compactor has. Create them once for a *registry*. Not thread-safe."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._pools = snapshots(PREFIX, _POOL_GAUGES, registry)
        for older, name in METRICS.items():
            OlderName(self._pools[name], METRIC_PREFIX + older, {"pool": "nodepool"}, registry=registry)
        labels = ("node", "pool", "resource")
        self._utilization = SnapshotGauge(f"{PREFIX}node_utilization", _UTILIZATION, labels, registry=registry)
        self._nodes = snapshots(METRIC_PREFIX, _NODE_GAUGES, registry)

    def update(self, evaluation: Evaluation) -> None:
        """Replace everything by the results of the last pass."""
        assert isinstance(evaluation.gates, CompactorGates)
        self._tell_pools(evaluation.facts, evaluation.gates)
        self._tell_nodes(evaluation.facts)

    def _tell_pools(self, facts: Facts, gates: CompactorGates) -> None:
        counts: dict[str, Count[str]] = {name: Count() for name in _POOL_GAUGES}
        for name, fact in facts.items():
            counts["pool_nodes"][fact.pool] += 1
            counts["pool_underutilized_nodes"][fact.pool] += name in gates.underutilized
            counts["pool_marked_nodes"][fact.pool] += marked_since(fact.view.node) is not None and not fact.draining
            counts["pool_draining_nodes"][fact.pool] += fact.draining
        for what, by_pool in counts.items():
            self._pools[what].replace({(pool,): float(count) for pool, count in by_pool.items()})

    def _tell_nodes(self, facts: Facts) -> None:
        samples: dict[str, dict[tuple[str, ...], float]] = {name: {} for name in _NODE_GAUGES}
        for name, fact in facts.items():
            used, labels = fact.utilization, (name, fact.pool)
            for what, value in (
                ("allocatable_cpu", used.allocatable.get("cpu", 0)),
                ("allocatable_memory", used.allocatable.get("memory", 0) / MIB),
                ("total_cpu_requests", used.requested.get("cpu", 0)),
                ("total_memory_requests", used.requested.get("memory", 0) / MIB),
                ("utilized_cpu_ratio", used.ratio("cpu")),
                ("utilized_memory_ratio", used.ratio("memory")),
            ):
                samples[what][labels] = float(value)
        for what, of_nodes in samples.items():
            self._nodes[what].replace(of_nodes)
        ratios = {resource: samples[f"utilized_{resource}_ratio"] for resource in ("cpu", "memory")}
        self._utilization.replace(
            {(*labels, resource): ratio for resource, of in ratios.items() for labels, ratio in of.items()}
        )


CONFIG_MAP_KEYS = (DATA_KEY, "config.yaml", "config.json")
"""Keys of a ConfigMap's data that may hold a configuration; the first that exists counts."""

EVERY_POOL: Mapping[str, object] = {
    EVERY_OTHER_POOL: {
        "enabled": True,
        "cpuRequestRatioLimit": 0.75,
        "requiredUnderutilizedNodeCount": 1,
    }
}
"""Planning defaults without a configuration: every pool enabled, with the example values of the older controller."""

PLANNING_DEFAULTS: dict[str, object] = {"marked_for": 0, "minimum_age": 0}
"""A plan alone marks no nodes, and may be about a young cluster."""

POSSIBLE = load_settings({"nodePools": EVERY_POOL}).pools
"""The pools of a dry run that has none."""

NO_POOL = "No pool is configured: this is what would be possible with every pool enabled, by the defaults of plan."


class CompactorRunSettings(NodeProcessSettings):
    """The settings of the process. Durations are in seconds."""

    words = RunWords(
        does="mark, drain, hand over, loop after loop",
        description="Run the controller: mark underutilized nodes, drain the least utilized, hand it to Cluster "
        "Autoscaler, again and again. Serves metrics, probes and its last plan over HTTP.",
        live="pools and gates",
    )

    older = PROCESS_VARIABLES

    interval: Positive = variable("INTERVAL", default=300.0)
    config_map: Name = variable("CONFIG_MAP_NAME", default="node-compactor-config")
    ports: Ports = variable("HTTP_PORTS", default=(9101,))
    lease_name: Name = variable("LEASE_NAME", default="node-compactor")
    landings: Name = variable("LANDINGS_CONFIG_MAP_NAME", default="node-compactor-landings")


class Compactor(NodeController[CompactorSettings]):
    """See :class:`tightship.nodes.controller.NodeController`."""

    name = CONTROLLER
    version = node_compactor.__version__
    description = "Drains the least utilized nodes of each pool, so that Cluster Autoscaler can delete them."
    kind = "CompactorStatus"
    process = CompactorRunSettings

    def configured(self, data: Mapping[str, str], environment: Mapping[str, str]) -> CompactorSettings:
        """Return the settings of a running controller. Without any text in *data*, no pool is configured, and no node
        is removed. A single text may have any name.
        """
        key, found = config_in(data, CONFIG_MAP_KEYS)
        source = ConfigSource(CompactorSettings, native(found), key)
        return resolve(CompactorSettings, EnvironmentSource(CompactorSettings, environment, VARIABLES), source)

    def planned(
        self, config: str | None, environment: Mapping[str, str], flags: Mapping[str, object] = {}
    ) -> CompactorSettings:
        """Return the settings of a plan, with the planning defaults last. Flags of pools apply to every pool."""
        found = {"nodePools": EVERY_POOL} if config is None else read_config(config, CONFIG_MAP_KEYS)
        source = ConfigSource(CompactorSettings, native(found), config or "")
        return resolve(
            CompactorSettings,
            _for_pools(flags, source),
            EnvironmentSource(CompactorSettings, environment, VARIABLES),
            source,
            DefaultSource(CompactorSettings, PLANNING_DEFAULTS),
        )

    def for_dry_run(self, settings: CompactorSettings) -> tuple[CompactorSettings, str]:
        """Return what a dry run judges by. It writes no marks, so none is asked for unless the configuration asks.

        Without any pool it judges what ``plan`` judges without a configuration.
        """
        given = settings.model_fields_set
        unset = {field: value for field, value in PLANNING_DEFAULTS.items() if field not in given}
        if not settings.pools:
            return settings.model_copy(update={**unset, "pools": POSSIBLE}), NO_POOL
        marked = {"marked_for": unset["marked_for"]} if "marked_for" in unset else None
        return settings if marked is None else settings.model_copy(update=marked), ""

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Add the flags for nodes that may go, gates, plan and rules, by topic."""
        add_plan_flags(
            parser,
            PoolSettings,
            CompactorSettings,
            config="configuration: YAML or JSON, or a ConfigMap manifest that holds either (default: every pool "
            "enabled with limit 0.75 and required count 1)",
            gates="gates (each replaces the value of --config, for every pool)",
        )

    def flags_given(self, arguments: argparse.Namespace) -> dict[str, object]:
        """Return the settings given as flags, by field."""
        return given(arguments, PoolSettings, CompactorSettings)

    def describe(self, settings: CompactorSettings, config: str | None) -> SettingsView:
        """Return *settings* for people; the pools of a dry run that has none are from nowhere."""
        return SettingsView(summarize(settings, None if settings.pools is POSSIBLE else config), wire(settings))

    def pools(self, settings: CompactorSettings) -> Mapping[str, bool]:
        """Return by name which pools are drained."""
        return {name: pool.enabled for name, pool in settings.pools.items()}

    def search(self, settings: CompactorSettings) -> float:
        """Return for how many seconds to search for a better plan."""
        return settings.search

    def judge(self, settings: CompactorSettings) -> CompactorJudge:
        """Return *settings* as rules."""
        return CompactorJudge(settings)

    def changes(self, settings: CompactorSettings, given: Collection[str] = ()) -> CompactorChanges:
        """Return the changes of *settings* that advice may name."""
        return CompactorChanges(settings, given)

    def metrics(self, registry: CollectorRegistry) -> CompactorMetrics:
        """Register the metrics of nodes and pools under the older controller's names."""
        return CompactorMetrics(registry)

    def notes(self, evaluation: Evaluation, settings: CompactorSettings) -> Sequence[NodeNote]:
        """Return the marks to write after *evaluation*."""
        gates, beside = evaluation.gates, evaluation.snapshot.beside
        assert isinstance(gates, CompactorGates)
        marks = mark_writes(evaluation.facts, gates.underutilized, settings, evaluation.now, beside)
        return [NodeNote(each.node, each.patch) for each in marks]


def _for_pools(flags: Mapping[str, object], config: ConfigSource) -> FlagSource:
    """Return *flags* as a source that sets flags of pools for every pool of *config* that is a mapping."""
    keys, of_pools = wire_keys(PoolSettings), flags_of(PoolSettings)
    inside: dict[Location, object] = {}
    pools = config.values.get("pools")
    for name, pool in pools.items() if isinstance(pools, dict) else ():
        if isinstance(pool, dict):
            inside |= {("pools", name, keys[field]): flags[field] for field in of_pools.keys() & flags.keys()}
            if "strategy" in flags:
                # A strategy given as a flag applies to all pools, so it overrides a pool's own from the file.
                pool.pop("strategy", None)
    return FlagSource(CompactorSettings, {field: flags[field] for field in flags.keys() - of_pools.keys()}, inside)


COMPACTOR = Compactor()
COMMANDS = Commands(COMPACTOR)


def main() -> None:
    """Run the command with the process's arguments, and exit."""
    sys.exit(run(COMPACTOR.name, COMMANDS.command))


if __name__ == "__main__":
    main()
