"""node-refiner as a controller of nodes: where its settings come from, its judge, its figures, and its command.

``plan``, ``explain`` and ``version`` write nothing; ``run`` is the controller. Threshold, minimums, pauses and drains
may change, so they come from the ConfigMap.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Collection, Mapping, Sequence

from prometheus_client import CollectorRegistry

import node_refiner
from node_refiner.advice import RefinerChanges
from node_refiner.describing import excess_summary, summarize
from node_refiner.gates import CONTROLLER, RefinerGates
from node_refiner.judge import RefinerJudge
from node_refiner.metrics import RefinerMetrics
from node_refiner.older import KEYS, VARIABLES, native
from node_refiner.settings import RefinerSettings
from tightship.cli.app import run
from tightship.cli.arguments import add_plan_flags, given
from tightship.cli.commands import Commands
from tightship.documents.document import ExcessSummary, SettingsView
from tightship.nodes.controller import NodeController
from tightship.objects.counting import counted
from tightship.planning.evaluate import Evaluation
from tightship.process.settings.loading import ConfigSource, FlagSource, config_in, read_config, resolve, wire
from tightship.process.settings.process import Name, NodeProcessSettings, Port, Ports, Positive, RunWords, variable

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
