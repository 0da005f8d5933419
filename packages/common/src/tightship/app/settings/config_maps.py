"""Configuration inside a ConfigMap: under which key of its data, and a manifest in place of the configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tightship.app.settings.files import mapping_of, read_mapping
from tightship.app.settings.loading import SettingsError


def read_config(path: str, keys: Sequence[str]) -> Mapping[str, object]:
    """Return what a configuration file holds: JSON, YAML, or a ConfigMap manifest around either.

    *keys* are those of a ConfigMap's data under which a configuration is looked for, in this order. Raises
    :class:`SettingsError`, the file named.
    """
    return unwrapped(read_mapping(path), path, keys)


def config_in(data: Mapping[str, str], keys: Sequence[str]) -> tuple[str, Mapping[str, object]]:
    """Return the configuration in a ConfigMap's *data*, and its key; both are empty where there is no text at all.

    The texts are those of a mounted file or folder as well; a single one may have any name. Raises
    :class:`SettingsError`.
    """
    key = next((key for key in keys if key in data), None)
    if key is None and len(data) == 1:
        key = next(iter(data))
    if key is not None:
        return key, unwrapped(mapping_of(data[key], key), key, keys)
    if data:
        raise SettingsError([_no_key(data, keys)])
    return "", {}


def unwrapped(found: Mapping[str, object], name: str, keys: Sequence[str]) -> Mapping[str, object]:
    """Return what a ConfigMap manifest holds; what is none is the configuration itself."""
    if found.get("kind") != "ConfigMap":
        return found
    data = found.get("data")
    held = data if isinstance(data, Mapping) else {}
    key = next((key for key in keys if key in held), None)
    if key is None:
        raise SettingsError([f"{name}: {_no_key(held, keys)}"])
    return mapping_of(str(held[key]), f"{name}: {key}")


def _no_key(held: Mapping[str, object], keys: Sequence[str]) -> str:
    has, wanted = ", ".join(sorted(str(each) for each in held)) or "none", ", ".join(keys)
    return f"the ConfigMap has no configuration: its data keys are {has}; looked for are {wanted}"


__all__ = ["config_in", "read_config", "unwrapped"]
