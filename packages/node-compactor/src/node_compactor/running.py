"""``node-compactor run``: the compactor's judge, marks and metrics in the process of every node controller."""

from __future__ import annotations

from collections.abc import Mapping

import node_compactor
from node_compactor.advice import CompactorChanges
from node_compactor.configuration import POSSIBLE, for_dry_run, parse_config_map
from node_compactor.describing import summarize
from node_compactor.gates import CompactorGates
from node_compactor.judge import CompactorJudge
from node_compactor.marking import CONTROLLER, MarkWrite, mark_writes
from node_compactor.metrics import CompactorMetrics
from node_compactor.run_settings import CompactorRunSettings
from node_compactor.settings import CompactorSettings
from tightship.cluster.pools import pool_of
from tightship.documents.document import Generator, SettingsView
from tightship.draining.tools import DrainSettings
from tightship.nodes.controller import NodeController, drain_settings
from tightship.nodes.serving import serve_nodes
from tightship.objects.money import price_of
from tightship.planning.evaluate import Evaluation
from tightship.planning.plan import STRATEGIES
from tightship.process.main import Runtime
from tightship.process.serving import Configuration
from tightship.process.settings.loading import wire


def compactor(environment: Mapping[str, str]) -> NodeController[CompactorSettings, CompactorGates]:
    """Return the compactor; *environment* overrides some keys of its ConfigMap."""
    return NodeController(
        program=Generator(CONTROLLER, node_compactor.__version__),
        kind="CompactorStatus",
        configuration=Configuration(lambda data: parse_config_map(data, environment)),
        judge=CompactorJudge,
        describe=lambda settings: SettingsView(
            summarize(settings, None if settings.pools is POSSIBLE else "live"), wire(settings)
        ),
        drain_settings=drains_of,
        pool_of=lambda node, settings: pool_of(node, settings.pool_labels),
        pools=lambda settings: {name: pool.enabled for name, pool in settings.pools.items()},
        price_of=lambda node, settings: price_of(node, settings.prices),
        metrics=CompactorMetrics,
        notes=marks_of,
        for_dry_run=for_dry_run,
        search=lambda settings: 0.0 if by_price(settings) else settings.search,
        tunable=CompactorChanges,
    )


def by_price(settings: CompactorSettings) -> bool:
    """Whether plans of *settings* go by price, so that searches, which count nodes, would be in vain."""
    return any(STRATEGIES[name].by_price for name in {settings.strategy, *settings.strategies})


def drains_of(settings: CompactorSettings) -> DrainSettings:
    """Return the settings of drains under *settings*: drains share the rules of the plan before them."""
    return drain_settings(settings, CompactorJudge(settings).node_refusals)


def marks_of(evaluation: Evaluation[CompactorGates], settings: CompactorSettings) -> tuple[MarkWrite, ...]:
    """Return the marks to write after *evaluation*."""
    return mark_writes(
        evaluation.facts, evaluation.gates.underutilized, settings, evaluation.now, evaluation.snapshot.beside
    )


async def serve(runtime: Runtime, run: CompactorRunSettings, environment: Mapping[str, str]) -> None:
    """Run until ``runtime.stop``."""
    await serve_nodes(runtime, run, compactor(environment))
