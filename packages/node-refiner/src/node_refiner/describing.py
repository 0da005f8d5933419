"""Settings and figures for display."""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec

from node_refiner.outlook import Outlook
from node_refiner.settings import RefinerSettings
from tightship.documents.document import ExcessSummary
from tightship.documents.inputs import share
from tightship.objects.counting import counted


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
