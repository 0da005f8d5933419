"""Configuration as a text: JSON or YAML, in a file or under a key of a ConfigMap's data, perhaps in a manifest."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import msgspec
import yaml

from tightship.objects.unreadable import UNREADABLE
from tightship.process.settings.loading import SettingsError


def read_config(path: str, keys: Sequence[str], flat: Collection[str] = ()) -> Mapping[str, object]:
    """Return the contents of a configuration file: JSON, YAML, or a ConfigMap manifest around either.

    *keys* are the keys of a ConfigMap's data that may hold a configuration; the first that exists counts. If there are
    *flat* keys, data may also be a configuration of those. Raises :class:`SettingsError`, which names the file.
    """
    return _unwrapped(read_mapping(path), path, keys, flat)


def config_in(
    data: Mapping[str, str], keys: Sequence[str], flat: Collection[str] = ()
) -> tuple[str, Mapping[str, object]]:
    """Return the key of the configuration in a ConfigMap's *data*, and the configuration; both are empty without any
    text.

    *data* may also come from a mounted file or folder; a single text may have any name. *flat* is as for
    :func:`read_config`. Raises :class:`SettingsError`.
    """
    if _is_flat(data, keys, flat):
        return "", data
    key = next((key for key in keys if key in data), None)
    if key is None and len(data) == 1:
        key = next(iter(data))
    if key is not None:
        return key, _unwrapped(mapping_of(data[key], key), key, keys, flat)
    if data:
        raise SettingsError([_no_key(data, keys)])
    return "", {}


def _unwrapped(
    found: Mapping[str, object], name: str, keys: Sequence[str], flat: Collection[str]
) -> Mapping[str, object]:
    """Return the configuration inside a ConfigMap manifest, or *found* itself if it is not a manifest."""
    if found.get("kind") != "ConfigMap":
        return found
    data = found.get("data")
    if data is not None and not isinstance(data, Mapping):
        raise SettingsError([f"{name}: the ConfigMap's data is {type(data).__name__}, not a mapping of settings"])
    held = data if isinstance(data, Mapping) else {}
    if flat and (not held or _is_flat(held, keys, flat)):
        return {str(each): value for each, value in held.items()}
    key = next((key for key in keys if key in held), None)
    if key is None:
        raise SettingsError([f"{name}: {_no_key(held, keys)}"])
    return mapping_of(str(held[key]), f"{name}: {key}")


def _is_flat(data: Mapping[str, object], keys: Sequence[str], flat: Collection[str]) -> bool:
    """Whether *data* are a configuration of *flat* keys, however misspelt, rather than hold one in a text."""
    own, held = sorted(data.keys() & set(flat)), next((key for key in keys if key in data), None)
    if own and held is not None:
        raise SettingsError([f"{own[0]}: stands beside {held} in the ConfigMap's data; allowed is one of them"])
    if own or not flat or held is not None or any("." in str(key) for key in data):
        return bool(own)
    return len(data) > 1 or any(":" not in str(text) for text in data.values())


def _no_key(held: Mapping[str, object], keys: Sequence[str]) -> str:
    has, wanted = ", ".join(sorted(str(each) for each in held)) or "none", ", ".join(keys)
    return f"the ConfigMap has no configuration: its data keys are {has}; looked for are {wanted}"


def read_mapping(path: str) -> Mapping[str, object]:
    """Return the mapping in the file *path*. Raises :class:`SettingsError`, which names the file."""
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise SettingsError([f"{path}: {error.strerror or error}"]) from error
    except UnicodeDecodeError as error:
        raise SettingsError([f"{path}: is not UTF-8 text"]) from error
    return mapping_of(text, path)


def mapping_of(text: str, name: str) -> Mapping[str, object]:
    """Return the mapping in *text*, empty for an empty text. Raises :class:`SettingsError` with *name* in front."""
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
    except UNREADABLE as as_json:
        try:
            return yaml.safe_load(text)
        except yaml.YAMLError as as_yaml:
            why = str(as_json) if text.lstrip().startswith("{") else " ".join(str(as_yaml).split())
            raise ValueError(why) from as_yaml
