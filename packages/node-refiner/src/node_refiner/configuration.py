"""Where settings come from: flags over environment over file over defaults, and what to call a value that is wrong.

The configuration is the older controller's ConfigMap, ``node-refiner-cm``: one key of its data for each setting, every
value a text, a plain number of a duration being minutes. Keys of the sections that all controllers share are theirs in
snake case: ``settleTime`` of node-compactor is ``settle_time`` here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from node_refiner.settings import RefinerSettings
from tightship.app.settings.fields import is_duration
from tightship.app.settings.files import mapping_of, read_mapping
from tightship.app.settings.loading import BadFlagsError, Location, SettingsError, load, wire_keys
from tightship.core.durations import DurationError, parse_duration

_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def snake(key: str) -> str:
    """Return a key in camel case as the refiner writes it: ``maximumAPIFailures`` is ``maximum_api_failures``."""
    return _HUMP.sub("_", key).lower()


KEYS: Mapping[str, str] = {field: snake(key) for field, key in wire_keys(RefinerSettings).items()}
"""The key on the wire of each field of the settings."""

_FIELDS = {key: field for field, key in KEYS.items()}
DURATIONS = frozenset(name for name, field in RefinerSettings.model_fields.items() if is_duration(field))
"""Fields whose values are durations."""

_LISTS = frozenset({"pool_labels", "disabled_rules"})

PLAIN_UNIT = "m"
"""What a plain number of a duration means: minutes, as the older controller read it."""

PREFIX = "NODE_REFINER_"
"""With a key in capitals behind it, the environment variable that sets the key."""

Flags = Mapping[str, tuple[str, object]]
"""Values given on the command line, by key on the wire, each with the flag that gave it."""


def configure(config: str | None, environment: Mapping[str, str], flags: Flags | None = None) -> RefinerSettings:
    """Return the settings that all sources make together. Raises :class:`SettingsError` with all problems at once.

    *config* is a file: a ConfigMap manifest, or the same keys flat, as YAML or JSON.
    """
    values: dict[str, object] = {}
    origins: dict[str, str] = {}
    if config is not None:
        values |= _unwrapped(read_mapping(config), config)
        origins |= {key: f"{config}: {key}" for key in values}
    _from_environment(environment, values, origins)
    for key, (flag, value) in (flags or {}).items():
        values[key] = value
        origins[key] = flag
    spoilt: list[str] = []

    def named(key: str) -> str:
        origin = origins.get(key, key)
        if origin.startswith("-"):
            spoilt.append(origin)
        return origin

    try:
        return load_settings(values, named)
    except SettingsError as error:
        raise (BadFlagsError(error.problems) if spoilt else error) from error


def parse_config_map(data: Mapping[str, str], environment: Mapping[str, str]) -> RefinerSettings:
    """Return the settings of a running controller: *environment* over a ConfigMap's *data* over defaults.

    The texts are those of a mounted folder as well, one file a key. A lone mounted file may have any name and hold what
    ``--config`` takes. Raises :class:`SettingsError` with all problems at once.
    """
    values: dict[str, object] = dict(data)
    origins: dict[str, str] = {}
    if len(data) == 1 and not _FIELDS.keys() & data.keys():
        [(name, text)] = data.items()
        if _is_file(name, text):
            values = dict(_unwrapped(mapping_of(text, name), name))
            origins = {key: f"{name}: {key}" for key in values}
    _from_environment(environment, values, origins)
    return load_settings(values, lambda key: origins.get(key, key))


def _is_file(name: str, text: str) -> bool:
    """Whether a lone entry is a file that holds settings, and not a setting that nobody knows."""
    return name.endswith((".yaml", ".yml", ".json")) or "\n" in text.strip()


def _unwrapped(found: Mapping[str, object], name: str) -> Mapping[str, object]:
    """Return the data of a ConfigMap manifest; what is none is the settings themselves."""
    if found.get("kind") != "ConfigMap":
        return found
    data = found.get("data")
    if data is None:
        return {}
    if not isinstance(data, Mapping):
        raise SettingsError([f"{name}: the ConfigMap's data is {type(data).__name__}, not a mapping of settings"])
    return {str(key): value for key, value in data.items()}


def _from_environment(environment: Mapping[str, str], values: dict[str, object], origins: dict[str, str]) -> None:
    for key in _FIELDS:
        variable = PREFIX + key.upper()
        if environment.get(variable):
            values[key] = environment[variable]
            origins[key] = variable


def load_settings(values: Mapping[str, object], named: Callable[[str], str] = str) -> RefinerSettings:
    """Return settings from values by their keys on the wire; *named* words where a key stands.

    Raises :class:`SettingsError` with **all** problems, each naming the key, the value and what is allowed.
    """
    allowed = ", ".join(sorted(_FIELDS))
    problems = [f"{named(key)}: unknown key; allowed are {allowed}" for key in values if key not in _FIELDS]
    fields = {_FIELDS[key]: _plain(_FIELDS[key], value) for key, value in values.items() if key in _FIELDS}
    if "backoff" not in fields:
        fields["backoff"] = _backoff(fields)

    def placed(location: Location) -> str:
        # A default that another value makes impossible is placed by its own name for the wire.
        outermost = str(location[0]) if location else ""
        return named(KEYS.get(outermost) or snake(outermost))

    try:
        settings = load(RefinerSettings, fields, placed, plain_unit=PLAIN_UNIT)
    except SettingsError as error:
        problems += error.problems
    if problems:
        raise SettingsError(sorted(problems))
    return settings


def _plain(field: str, value: object) -> object:
    """Return *value* as the validation reads it: numbers of durations as texts, since those have a unit; lists."""
    if field in DURATIONS and isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str):
        return value
    return [part.strip() for part in value.split(",") if part.strip()] if field in _LISTS else value.strip()


def _backoff(fields: Mapping[str, object]) -> float:
    """Return the pause of a node whose drain failed where none is set: the gap, as far as the longest such pause."""
    return min(_seconds(fields, "time_gap"), _seconds(fields, "backoff_limit"))


def _seconds(fields: Mapping[str, object], field: str) -> float:
    default: float = RefinerSettings.model_fields[field].default
    try:
        return parse_duration(str(fields[field]), PLAIN_UNIT) if field in fields else default
    except DurationError:
        return default  # the validation names it


__all__: Sequence[str] = ("DURATIONS", "KEYS", "Flags", "configure", "load_settings", "parse_config_map")
