"""Configuration files: JSON or YAML, a mapping at the top."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec
import yaml

from tightship.app.settings.loading import SettingsError


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
        found: object = msgspec.json.decode(text)
    except RecursionError as error:
        raise SettingsError([f"{name}: is nested too deeply"]) from error
    except msgspec.DecodeError as as_json:
        try:
            found = yaml.safe_load(text)
        except RecursionError as error:
            raise SettingsError([f"{name}: is nested too deeply"]) from error
        except yaml.YAMLError as as_yaml:
            why = str(as_json) if text.lstrip().startswith("{") else " ".join(str(as_yaml).split())
            raise SettingsError([f"{name}: neither JSON nor YAML: {why}"]) from as_yaml
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise SettingsError([f"{name}: holds {type(found).__name__}, not a mapping of settings"])
    return {str(key): value for key, value in found.items()}
