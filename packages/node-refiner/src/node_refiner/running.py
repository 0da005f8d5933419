"""``node-refiner run``: the refiner's judge and metrics in the process of every node controller."""

from __future__ import annotations

from collections.abc import Mapping

import node_refiner
from node_refiner.advice import RefinerChanges
from node_refiner.configuration import parse_config_map
from node_refiner.describing import excess_summary, summarize
from node_refiner.gates import CONTROLLER, RefinerGates
from node_refiner.judge import RefinerJudge
from node_refiner.metrics import RefinerMetrics
from node_refiner.run_settings import RefinerRunSettings
from node_refiner.settings import RefinerSettings
from tightship.cluster.pools import pool_of
from tightship.documents.document import Generator, SettingsView
from tightship.draining.tools import DrainSettings
from tightship.nodes.controller import NodeController, drain_settings
from tightship.nodes.serving import serve_nodes
from tightship.nodes.status import Remarks
from tightship.objects.counting import counted
from tightship.objects.money import price_of
from tightship.planning.evaluate import Evaluation
from tightship.process.main import Runtime
from tightship.process.serving import Configuration
from tightship.process.settings.loading import wire


def refiner(environment: Mapping[str, str]) -> NodeController[RefinerSettings, RefinerGates]:
    """Return the refiner; *environment* overrides keys of its ConfigMap."""
    return NodeController(
        program=Generator(CONTROLLER, node_refiner.__version__),
        kind="RefinerStatus",
        configuration=Configuration(
            lambda data: parse_config_map(data, environment),
            acting=lambda settings: settings.drainer_enabled,
            # The defaults allow drains, so they must not apply without a configuration, nor after its deletion.
            lost=lambda settings: settings.model_copy(update={"drainer_enabled": False}),
        ),
        judge=RefinerJudge,
        describe=lambda settings: SettingsView(summarize(settings, "live"), wire(settings)),
        drain_settings=drains_of,
        pool_of=lambda node, settings: pool_of(node, settings.pool_labels),
        price_of=lambda node, settings: price_of(node, settings.prices),
        metrics=RefinerMetrics,
        remarks=remarks,
        tunable=RefinerChanges,
    )


def drains_of(settings: RefinerSettings) -> DrainSettings:
    """Return the settings of drains under *settings*: drains share the rules of the plan before them."""
    return drain_settings(settings, RefinerJudge(settings).node_refusals)


def remarks(evaluation: Evaluation[RefinerGates], settings: RefinerSettings) -> Remarks:
    """Return the refiner's figures for the page."""
    figures = excess_summary(evaluation.gates.outlooks, settings)
    by = f"{_two(figures.cpu)} by CPU, {_two(figures.memory)} by memory"
    told = (
        ("could go", f"{counted(figures.could_go, 'node')}, pod by pod; the threshold is {figures.threshold:g}"),
        ("free room", f"{_two(figures.nodes)} nodes like the next one: {by}"),
    )
    return Remarks(figures=told, excess=figures)


def _two(nodes: float | None) -> str:
    return "-" if nodes is None else f"{nodes:.2f}"


async def serve(runtime: Runtime, run: RefinerRunSettings, environment: Mapping[str, str]) -> None:
    """Run until ``runtime.stop``."""
    await serve_nodes(runtime, run, refiner(environment))
