"""The sources of settings, and the flags of ``plan`` and ``explain``.

The configuration is the older controller's ConfigMap, ``node-refiner-cm``: its data has one key for each setting, and
every value is a text.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from node_refiner.settings import KEYS, RefinerSettings
from tightship.cli.arguments import add_plan_flags, given
from tightship.objects.durations import DurationError, parse_duration
from tightship.process.settings.config_maps import mapping_of, read_mapping
from tightship.process.settings.loading import (
    ConfigSource,
    EnvironmentSource,
    FlagSource,
    SettingsError,
    SettingsSource,
    resolve,
)


def configure(config: str | None, environment: Mapping[str, str], flags: Mapping[str, object] = {}) -> RefinerSettings:
    """Return the settings for planning: *flags* (by field) over *environment* over the file *config* over defaults.

    The file is a ConfigMap manifest, or the same keys flat, as YAML or JSON. Raises :class:`SettingsError` with all
    problems at once.
    """
    values = {} if config is None else _unwrapped(read_mapping(config), config)
    return _resolved(ConfigSource(RefinerSettings, values, config or ""), environment, flags)


def parse_config_map(data: Mapping[str, str], environment: Mapping[str, str]) -> RefinerSettings:
    """Return the settings of a running controller: *environment* over a ConfigMap's *data* over defaults.

    *data* may also come from a mounted folder, one file for each key. A single mounted file may have any name and the
    contents of a ``--config`` file. Raises :class:`SettingsError` with all problems at once.
    """
    values: Mapping[str, object] = data
    place = ""
    if len(data) == 1 and not data.keys() & set(KEYS.values()):
        [(name, text)] = data.items()
        if _is_file(name, text):
            values, place = _unwrapped(mapping_of(text, name), name), name
    return _resolved(ConfigSource(RefinerSettings, values, place), environment, {})


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


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the flags for nodes that may go, threshold and minimums, plan and rules, by topic."""
    add_plan_flags(
        parser,
        RefinerSettings,
        config="configuration: a ConfigMap manifest as SAP node-refiner has it (node-refiner-cm), or its keys as flat "
        "YAML or JSON (default: that controller's defaults)",
        gates="threshold and minimums (each replaces the value of --config)",
    )


def flags_given(arguments: argparse.Namespace) -> dict[str, object]:
    """Return the settings given as flags, by field."""
    return given(arguments, RefinerSettings)


__all__ = ["add_options", "configure", "flags_given", "load_settings", "parse_config_map"]
