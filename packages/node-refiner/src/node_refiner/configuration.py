"""The sources of settings, and the flags of ``plan`` and ``explain``."""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from node_refiner.older import KEYS, native
from node_refiner.settings import RefinerSettings
from tightship.cli.arguments import add_plan_flags, given
from tightship.process.settings.config_maps import config_in, read_config
from tightship.process.settings.loading import ConfigSource, FlagSource, resolve

CONFIG_MAP_KEYS = ("config.yaml", "config.json")
"""Keys of a ConfigMap's data that may hold a configuration; the first that exists counts. SAP node-refiner's data are
the configuration themselves.
"""


def configure(config: str | None, environment: Mapping[str, str], flags: Mapping[str, object] = {}) -> RefinerSettings:
    """Return the settings for planning: *flags* (by field) over the file *config* over defaults.

    Raises :class:`SettingsError` with all problems at once.
    """
    del environment
    values = {} if config is None else read_config(config, CONFIG_MAP_KEYS, flat=KEYS)
    return resolve(
        RefinerSettings, FlagSource(RefinerSettings, flags), ConfigSource(RefinerSettings, native(values), config or "")
    )


def parse_config_map(data: Mapping[str, str], environment: Mapping[str, str]) -> RefinerSettings:
    """Return the settings of a running controller: a ConfigMap's *data* over defaults.

    *data* may also come from a mounted file or folder; a single text may have any name. Raises :class:`SettingsError`
    with all problems at once.
    """
    del environment
    key, found = config_in(data, CONFIG_MAP_KEYS, flat=KEYS)
    return resolve(RefinerSettings, ConfigSource(RefinerSettings, native(found), key))


def load_settings(values: Mapping[str, object]) -> RefinerSettings:
    """Return settings from values by the configuration's keys. Raises :class:`SettingsError` with all problems."""
    return resolve(RefinerSettings, ConfigSource(RefinerSettings, native(values)))


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the flags for nodes that may go, threshold and minimums, plan and rules, by topic."""
    add_plan_flags(
        parser,
        RefinerSettings,
        config="configuration: YAML or JSON, or a ConfigMap manifest that holds either (default: the defaults)",
        gates="threshold and minimums (each replaces the value of --config)",
    )


def flags_given(arguments: argparse.Namespace) -> dict[str, object]:
    """Return the settings given as flags, by field."""
    return given(arguments, RefinerSettings)


__all__ = ["add_options", "configure", "flags_given", "load_settings", "parse_config_map"]
