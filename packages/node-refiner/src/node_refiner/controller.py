"""node-refiner as a controller of nodes: where its settings come from, its judge, its figures, and its command.

``plan``, ``explain`` and ``version`` write nothing; ``run`` is the controller. The configuration is the older
controller's ConfigMap, ``node-refiner-cm``: its data has one key for each setting, and every value is a text.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Self

from prometheus_client import CollectorRegistry

import node_refiner
from node_refiner.advice import RefinerChanges
from node_refiner.describing import excess_summary, summarize, wire
from node_refiner.gates import CONTROLLER, RefinerGates
from node_refiner.judge import RefinerJudge
from node_refiner.metrics import RefinerMetrics
from node_refiner.settings import KEYS, RefinerSettings
from tightship.cli.app import run
from tightship.cli.arguments import add_plan_flags, given
from tightship.cli.commands import Commands
from tightship.documents.document import ExcessSummary, SettingsView
from tightship.documents.presentation import Fact
from tightship.nodes.controller import NodeController
from tightship.objects.durations import DurationError, parse_duration
from tightship.planning.evaluate import Evaluation
from tightship.process.settings.config_maps import mapping_of, read_mapping
from tightship.process.settings.fields import Allowed
from tightship.process.settings.loading import (
    ConfigSource,
    EnvironmentSource,
    FlagSource,
    SettingsError,
    SettingsSource,
    resolve,
)
from tightship.process.settings.process import Name, NodeProcessSettings, Port, Ports, Positive, RunWords, variable


class RefinerRunSettings(NodeProcessSettings):
    """The settings of the process under the older controller's names. Durations are in seconds."""

    words = RunWords(
        does="count excess nodes, drain one, hand it over, loop after loop",
        description="Run the controller: count the nodes the cluster could do without, drain the one whose removal "
        "disturbs least, hand it to the Cluster Autoscaler, again and again. Serves metrics, probes and its last plan "
        "over HTTP.",
        live="threshold, minimums and pauses",
        migration="docs/migration-node-refiner.md",
    )

    interval: Positive = variable("CALCULATION_LOOP_FREQUENCY_SECONDS", default=60.0)
    """The older controller's fixed interval."""
    config_map: Name = variable("CONFIG_MAP_NAME", default="node-refiner-cm")
    """The older controller obeyed any ConfigMap of that name in whatever namespace."""
    ports: Ports = variable("HTTP_PORTS", default=(8080,))
    listening_port: Annotated[Ports, Allowed("a port")] = variable("LISTENING_PORT", default=(8080,))
    """The older name, for a port with metrics only; ``HTTP_PORTS`` overrides it."""
    probe_port: Port = variable("HTTP_PROBE_PORT", default=9102)
    """The port of ``/alive``, the older controller's probe."""
    lease_name: Name = variable("LEASE_NAME", default="node-refiner")
    landings: Name = variable("LANDINGS_CONFIG_MAP_NAME", default="node-refiner-landings")

    def filled(self, namespace: str, unique: str) -> Self:
        """See :meth:`tightship.process.settings.process.ProcessSettings.filled`."""
        found = super().filled(namespace, unique)
        if "ports" in self.model_fields_set:
            return found
        return found.model_copy(update={"ports": self.listening_port})


class Refiner(NodeController[RefinerSettings]):
    """See :class:`tightship.nodes.controller.NodeController`."""

    name = CONTROLLER
    version = node_refiner.__version__
    description = "Counts the nodes that a cluster could do without, and drains one at a time."
    kind = "RefinerStatus"
    process = RefinerRunSettings
    needs_configuration = True

    def configured(self, data: Mapping[str, str], environment: Mapping[str, str]) -> RefinerSettings:
        """Return the settings of a running controller. A mounted folder has one file for each key. A single mounted
        file may have any name and the contents of a ``--config`` file.
        """
        values: Mapping[str, object] = data
        place = ""
        if len(data) == 1 and not data.keys() & set(KEYS.values()):
            [(name, text)] = data.items()
            if _is_file(name, text):
                values, place = _unwrapped(mapping_of(text, name), name), name
        return _resolved(ConfigSource(RefinerSettings, values, place), environment, {})

    def planned(
        self, config: str | None, environment: Mapping[str, str], flags: Mapping[str, object] = {}
    ) -> RefinerSettings:
        """Return the settings of a plan. The file is a ConfigMap manifest, or the same keys flat, as YAML or JSON."""
        values = {} if config is None else _unwrapped(read_mapping(config), config)
        return _resolved(ConfigSource(RefinerSettings, values, config or ""), environment, flags)

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
            config="configuration: a ConfigMap manifest as SAP node-refiner has it (node-refiner-cm), or its keys as "
            "flat YAML or JSON (default: that controller's defaults)",
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

    def metrics(self, registry: CollectorRegistry) -> RefinerMetrics:
        """Register the metrics of the cluster and of drains under the older controller's names."""
        return RefinerMetrics(registry)

    def excess(self, evaluation: Evaluation, settings: RefinerSettings) -> ExcessSummary:
        """Return how many nodes the cluster could do without."""
        assert isinstance(evaluation.gates, RefinerGates)
        return excess_summary(evaluation.gates.outlooks, settings)

    def figures(self, evaluation: Evaluation, settings: RefinerSettings) -> Sequence[Fact]:
        """Return the refiner's figures for the page."""
        figures = self.excess(evaluation, settings)
        return (
            Fact("could go", f"{figures.could_go:,}", detail="pod by pod, in the end"),
            Fact("free room", _two(figures.nodes), detail="in nodes of the next one's size"),
            Fact("by CPU / by memory", f"{_two(figures.cpu)} / {_two(figures.memory)}"),
            Fact("threshold", f"{figures.threshold:g}"),
        )


def load_settings(values: Mapping[str, object]) -> RefinerSettings:
    """Return settings from values by the configuration's keys. Raises :class:`SettingsError` with all problems."""
    return _resolved(ConfigSource(RefinerSettings, values), {}, {})


def _resolved(config: ConfigSource, environment: Mapping[str, str], flags: Mapping[str, object]) -> RefinerSettings:
    return resolve(
        RefinerSettings,
        FlagSource(RefinerSettings, flags),
        EnvironmentSource(RefinerSettings, environment),
        config,
        _Backoff(RefinerSettings),
    )


class _Backoff(SettingsSource):
    """The default pause of a node whose drain failed: the gap, but at most the longest such pause."""

    def __call__(self) -> dict[str, Any]:
        return {"backoff": min(self._seconds("time_gap"), self._seconds("backoff_limit"))}

    def _seconds(self, field: str) -> float:
        default: float = RefinerSettings.model_fields[field].default
        try:
            return parse_duration(str(self.current_state[field]), "m") if field in self.current_state else default
        except DurationError:
            return default  # the validation reports the field


def _is_file(name: str, text: str) -> bool:
    """Whether a single entry is a file of settings rather than an unknown setting."""
    return name.endswith((".yaml", ".yml", ".json")) or "\n" in text.strip()


def _unwrapped(found: Mapping[str, object], name: str) -> Mapping[str, object]:
    """Return the data of a ConfigMap manifest, or *found* itself if it is not a manifest."""
    if found.get("kind") != "ConfigMap":
        return found
    data = found.get("data")
    if data is None:
        return {}
    if not isinstance(data, Mapping):
        raise SettingsError([f"{name}: the ConfigMap's data is {type(data).__name__}, not a mapping of settings"])
    return {str(key): value for key, value in data.items()}


def _two(nodes: float | None) -> str:
    return "-" if nodes is None else f"{nodes:.2f}"


REFINER = Refiner()
COMMANDS = Commands(REFINER, changes=RefinerChanges)


def main() -> None:
    """Run the command with the process's arguments, and exit."""
    sys.exit(run(REFINER.name, COMMANDS.command))


if __name__ == "__main__":
    main()
