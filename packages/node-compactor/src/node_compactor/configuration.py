"""Where settings come from, and the flags of ``plan`` and ``explain``."""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from node_compactor.settings import EVERY_OTHER_POOL, CompactorSettings, PoolSettings
from tightship.app.cli.arguments import add_plan_flags, given
from tightship.app.settings.config_maps import config_in, read_config
from tightship.app.settings.loading import (
    ConfigSource,
    DefaultSource,
    EnvironmentSource,
    FlagSource,
    Location,
    flags_of,
    resolve,
    wire_keys,
)

CONFIG_MAP_KEYS = ("estafette-k8s-node-compactor-config.yaml", "config.yaml", "config.json")
"""Keys of a ConfigMap's data under which a configuration is looked for, in this order."""

EVERY_POOL: Mapping[str, object] = {
    EVERY_OTHER_POOL: {
        "enabled": True,
        "scaleDownCPURequestRatioLimit": 0.75,
        "scaleDownRequiredUnderutilizedNodeCount": 1,
    }
}
"""What planning assumes without a configuration: every pool enabled, with the values of the older one's example."""

PLANNING_DEFAULTS: Mapping[str, object] = {"marked_for": 0, "minimum_age": 0}
"""While only planning nothing marks nodes, and a look at a young cluster is what was asked for."""


def configure(
    config: str | None, environment: Mapping[str, str], flags: Mapping[str, object] = {}
) -> CompactorSettings:
    """Return the settings for planning: *flags* over *environment* over the file *config* over what planning assumes.

    *flags* are by field; those of pools hold for every pool. Raises
    :class:`~tightship.app.settings.loading.SettingsError` with all problems at once.
    """
    found = {"nodePools": EVERY_POOL} if config is None else read_config(config, CONFIG_MAP_KEYS)
    source = ConfigSource(CompactorSettings, found, config or "")
    return resolve(
        CompactorSettings,
        _for_pools(flags, source),
        EnvironmentSource(CompactorSettings, environment),
        source,
        DefaultSource(CompactorSettings, PLANNING_DEFAULTS),
    )


def parse_config_map(data: Mapping[str, str], environment: Mapping[str, str]) -> CompactorSettings:
    """Return the settings of a running controller: *environment* over a ConfigMap's *data* over defaults.

    The texts are those of a mounted file or folder as well; a single one may have any name. Without any, no pool is
    configured, and nothing is removed. Raises :class:`~tightship.app.settings.loading.SettingsError` with all problems
    at once.
    """
    key, found = config_in(data, CONFIG_MAP_KEYS)
    source = ConfigSource(CompactorSettings, found, key)
    return resolve(CompactorSettings, EnvironmentSource(CompactorSettings, environment), source)


def _for_pools(flags: Mapping[str, object], config: ConfigSource) -> FlagSource:
    """Return *flags* as a source: those of pools are at every pool of *config* that is a mapping."""
    keys, of_pools = wire_keys(PoolSettings), flags_of(PoolSettings)
    inside: dict[Location, object] = {}
    pools = config.values.get("pools")
    for name, pool in pools.items() if isinstance(pools, dict) else ():
        if isinstance(pool, dict):
            inside |= {("pools", name, keys[field]): flags[field] for field in of_pools.keys() & flags.keys()}
            if "strategy" in flags:
                # A strategy given as a flag is meant for all pools: one of a pool's own, from the file, comes after it.
                pool.pop("strategy", None)
    return FlagSource(CompactorSettings, {field: flags[field] for field in flags.keys() - of_pools.keys()}, inside)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the flags for what may go, the gates, the plan and the rules, by topic."""
    add_plan_flags(
        parser,
        PoolSettings,
        CompactorSettings,
        config="configuration: the JSON of estafette-k8s-node-compactor as it is, the same as YAML, or a ConfigMap "
        "manifest that holds either (default: every pool enabled with limit 0.75 and required count 1)",
        gates="gates (each replaces the value of --config, for every pool)",
    )


def flags_given(arguments: argparse.Namespace) -> dict[str, object]:
    """Return the settings that were given as flags, by field."""
    return given(arguments, PoolSettings, CompactorSettings)
