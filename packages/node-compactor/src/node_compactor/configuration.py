"""The sources of settings, and the flags of ``plan`` and ``explain``."""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from node_compactor.older import DATA_KEY, VARIABLES, native
from node_compactor.settings import EVERY_OTHER_POOL, CompactorSettings, PoolSettings, load_settings
from tightship.cli.arguments import add_plan_flags, given
from tightship.process.settings.config_maps import config_in, read_config
from tightship.process.settings.loading import (
    ConfigSource,
    DefaultSource,
    EnvironmentSource,
    FlagSource,
    Location,
    flags_of,
    resolve,
    wire_keys,
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


def configure(
    config: str | None, environment: Mapping[str, str], flags: Mapping[str, object] = {}
) -> CompactorSettings:
    """Return the settings for planning: *flags* over *environment* over the file *config* over the planning defaults.

    *flags* are by field; flags of pools apply to every pool. Raises
    :class:`~tightship.process.settings.loading.SettingsError` with all problems at once.
    """
    found = {"nodePools": EVERY_POOL} if config is None else read_config(config, CONFIG_MAP_KEYS)
    source = ConfigSource(CompactorSettings, native(found), config or "")
    return resolve(
        CompactorSettings,
        _for_pools(flags, source),
        EnvironmentSource(CompactorSettings, environment, VARIABLES),
        source,
        DefaultSource(CompactorSettings, PLANNING_DEFAULTS),
    )


def parse_config_map(data: Mapping[str, str], environment: Mapping[str, str]) -> CompactorSettings:
    """Return the settings of a running controller: *environment* over a ConfigMap's *data* over defaults.

    *data* may also come from a mounted file or folder; a single text may have any name. Without any text, no pool is
    configured and no node is removed. Raises ``SettingsError`` with all problems
    at once.
    """
    key, found = config_in(data, CONFIG_MAP_KEYS)
    source = ConfigSource(CompactorSettings, native(found), key)
    return resolve(CompactorSettings, EnvironmentSource(CompactorSettings, environment, VARIABLES), source)


POSSIBLE = load_settings({"nodePools": EVERY_POOL}).pools
"""The pools of a dry run that has none."""

NO_POOL = "No pool is configured: this is what would be possible with every pool enabled, by the defaults of plan."


def for_dry_run(settings: CompactorSettings) -> tuple[CompactorSettings, str]:
    """Return the settings that a dry run judges by instead of *settings*, and a sentence that says so, if need be.

    A dry run writes no marks, so none is asked for unless the configuration asks. Without any pool it judges what
    ``plan`` judges without a configuration.
    """
    given = settings.model_fields_set
    unset = {field: value for field, value in PLANNING_DEFAULTS.items() if field not in given}
    if not settings.pools:
        return settings.model_copy(update={**unset, "pools": POSSIBLE}), NO_POOL
    return settings.model_copy(update={"marked_for": unset["marked_for"]}) if "marked_for" in unset else settings, ""


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


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the flags for nodes that may go, gates, plan and rules, by topic."""
    add_plan_flags(
        parser,
        PoolSettings,
        CompactorSettings,
        config="configuration: YAML or JSON, or a ConfigMap manifest that holds either (default: every pool enabled "
        "with limit 0.75 and required count 1)",
        gates="gates (each replaces the value of --config, for every pool)",
    )


def flags_given(arguments: argparse.Namespace) -> dict[str, object]:
    """Return the settings given as flags, by field."""
    return given(arguments, PoolSettings, CompactorSettings)
