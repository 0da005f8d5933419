"""Configuration as a text: JSON or YAML, in a file or under a key of a ConfigMap's data, perhaps in a manifest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import yaml

from tightship.app.settings.loading import SettingsError


def read_config(path: str, keys: Sequence[str]) -> Mapping[str, object]:
    """Return what a configuration file holds: JSON, YAML, or a ConfigMap manifest around either.

    *keys* are those of a ConfigMap's data under which a configuration is looked for, in this order. Raises
    :class:`SettingsError`, the file named.
    """
    return _unwrapped(read_mapping(path), path, keys)


def config_in(data: Mapping[str, str], keys: Sequence[str]) -> tuple[str, Mapping[str, object]]:
    """Return the configuration in a ConfigMap's *data*, and its key; both are empty where there is no text at all.

    The texts are those of a mounted file or folder as well; a single one may have any name. Raises
    :class:`SettingsError`.
    """
    key = next((key for key in keys if key in data), None)
    if key is None and len(data) == 1:
        key = next(iter(data))
    if key is not None:
        return key, _unwrapped(mapping_of(data[key], key), key, keys)
    if data:
        raise SettingsError([_no_key(data, keys)])
    return "", {}


def _unwrapped(found: Mapping[str, object], name: str, keys: Sequence[str]) -> Mapping[str, object]:
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


def read_mapping(path: str) -> Mapping[str, object]:
    """Return the mapping that the file *path* holds. Raises :class:`SettingsError`, the file named."""
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise SettingsError([f"{path}: {error.strerror or error}"]) from error
    except UnicodeDecodeError as error:
        raise SettingsError([f"{path}: is not UTF-8 text"]) from error
    return mapping_of(text, path)


def mapping_of(text: str, name: str) -> Mapping[str, object]:
    """Return the mapping that *text* holds; none where it is empty. Raises :class:`SettingsError`, *name* in front."""
    try:
        found = _decoded(text)
    except RecursionError as error:
        raise SettingsError([f"{name}: is nested too deeply"]) from error
    except ValueError as error:
        raise SettingsError([f"{name}: neither JSON nor YAML: {error}"]) from error
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise SettingsError([f"{name}: holds {type(found).__name__}, not a mapping of settings"])
    return {str(key): value for key, value in found.items()}


def _decoded(text: str) -> object:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as as_json:
        try:
            return yaml.safe_load(text)
        except yaml.YAMLError as as_yaml:
            why = str(as_json) if text.lstrip().startswith("{") else " ".join(str(as_yaml).split())
            raise ValueError(why) from as_yaml


__all__ = ["config_in", "mapping_of", "read_config", "read_mapping"]
