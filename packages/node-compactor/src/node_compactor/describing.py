"""Settings for display: one line for people."""

from __future__ import annotations

from collections.abc import Mapping

from node_compactor.settings import EVERY_OTHER_POOL, CompactorSettings, PoolSettings
from tightship.objects.counting import counted
from tightship.objects.durations import format_duration
from tightship.planning.utilization import Measure

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
        names = list(shown.values())
        more = f" and {len(names) - POOLS_NAMED} more" if len(names) > POOLS_NAMED else ""
        return f"{texts.pop()}, {', '.join(names[:POOLS_NAMED])}{more} {origin}"
    described = [f"{shown[name]} {_gates(pool)}" for name, pool in pools.items()]
    more = f" and {len(described) - POOLS_NAMED} more" if len(described) > POOLS_NAMED else ""
    return f"{'; '.join(described[:POOLS_NAMED])}{more} {origin}"


def _gates(pool: PoolSettings) -> str:
    parts = [f"limit {pool.limit:g}", f"required {pool.required_count}"]
    if pool.minimum_nodes:
        parts.append(f"minimum {pool.minimum_nodes}")
    if pool.budget is not None:
        parts.append(f"budget {pool.budget}")
    return ", ".join(parts)
