"""Where settings come from: flags over environment over file over defaults, and what to call a value that is wrong."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct
from pydantic import AliasChoices, BaseModel

from node_compactor.settings import EVERY_OTHER_POOL, CompactorSettings, PoolSettings, load_settings
from tightship.app.settings.config_maps import config_in, read_config
from tightship.app.settings.loading import BadFlagsError, Location, SettingsError, dotted, wire_keys

CONFIG_MAP_KEYS = ("estafette-k8s-node-compactor-config.yaml", "config.yaml", "config.json")
"""Keys of a ConfigMap's data under which a configuration is looked for, in this order."""

ENVIRONMENT = {
    "MINIMUM_NODE_AGE_SECONDS": "minimumNodeAge",
    "NEEDED_MARKED_TIME_FOR_REMOVAL_SECONDS": "neededMarkedTimeForRemoval",
}
"""Environment variables (the older controller's names) and the keys they set."""

POOLS = wire_keys(CompactorSettings)["pools"]

EVERY_POOL: Mapping[str, object] = {
    EVERY_OTHER_POOL: {
        "enabled": True,
        "scaleDownCPURequestRatioLimit": 0.75,
        "scaleDownRequiredUnderutilizedNodeCount": 1,
    }
}
"""What planning assumes without a configuration: every pool enabled, with the values of the older one's example."""

PLANNING_DEFAULTS: Mapping[str, object] = {"neededMarkedTimeForRemoval": 0, "minimumNodeAge": 0}
"""While only planning nothing marks nodes, and a look at a young cluster is what was asked for."""


RUN_DEFAULTS: Mapping[str, object] = {"neededMarkedTimeForRemoval": 300, "minimumNodeAge": 1200}
"""What the older controller's loop assumes where neither the ConfigMap nor the environment says otherwise."""


class Flags(Struct, frozen=True):
    """Values given on the command line, by key on the wire, each with the flag that gave it.

    *pool* values hold for every pool, *top* values for the whole.
    """

    pool: Mapping[str, tuple[str, object]] = {}
    top: Mapping[str, tuple[str, object]] = {}


def configure(
    config: str | None,
    environment: Mapping[str, str],
    flags: Flags = Flags(),
    defaults: Mapping[str, object] = PLANNING_DEFAULTS,
) -> CompactorSettings:
    """Return the settings that all sources make together. Raises :class:`SettingsError` with all problems at once."""
    values: dict[str, object] = dict(defaults)
    origins: dict[Location, str] = {}
    if config is None:
        values[POOLS] = EVERY_POOL
    else:
        values |= _canonical(read_config(config, CONFIG_MAP_KEYS), CompactorSettings)
    _from_environment(environment, values, origins)
    for key, (flag, value) in flags.top.items():
        values[key] = value
        origins[key,] = flag
    values[POOLS] = _pools(values.get(POOLS, {}), flags, origins)
    spoilt: list[str] = []

    def named(location: Location) -> str:
        origin = _origin(location, origins)
        if origin.startswith("-"):
            spoilt.append(origin)
        return origin or (f"{config}: {dotted(location)}" if config is not None else dotted(location))

    try:
        return load_settings(values, named)
    except SettingsError as error:
        raise (BadFlagsError(error.problems) if spoilt else error) from error


def parse_config_map(data: Mapping[str, str], environment: Mapping[str, str]) -> CompactorSettings:
    """Return the settings of a running controller: *environment* over a ConfigMap's *data* over the run's defaults.

    The texts are those of a mounted file or folder as well; a single one may have any name. Without any, no pool is
    configured, and nothing is removed. Raises :class:`SettingsError` with all problems at once.
    """
    values: dict[str, object] = dict(RUN_DEFAULTS)
    origins: dict[Location, str] = {}
    key, found = config_in(data, CONFIG_MAP_KEYS)
    values |= _canonical(found, CompactorSettings)
    _from_environment(environment, values, origins)
    values[POOLS] = _pools(values.get(POOLS, {}), Flags(), origins)

    def named(location: Location) -> str:
        return _origin(location, origins) or (f"{key}: {dotted(location)}" if key else dotted(location))

    return load_settings(values, named)


def _from_environment(environment: Mapping[str, str], values: dict[str, object], origins: dict[Location, str]) -> None:
    for variable, key in ENVIRONMENT.items():
        if environment.get(variable):
            values[key] = environment[variable]
            origins[key,] = variable


def _origin(location: Location, origins: Mapping[Location, str]) -> str:
    return next((origins[location[:end]] for end in range(len(location), 0, -1) if location[:end] in origins), "")


def _pools(pools: object, flags: Flags, origins: dict[Location, str]) -> object:
    """Put the flags' values into every pool; what is no mapping is left for the validation to name."""
    if not isinstance(pools, Mapping):
        return pools
    # A strategy given as a flag is meant for all pools: one of a pool's own, from the file, comes after it.
    overruled = {"strategy"} & set(flags.top)
    merged: dict[object, object] = {}
    for name, pool in pools.items():
        if not isinstance(pool, Mapping):
            merged[name] = pool
            continue
        own = {key: value for key, value in _canonical(pool, PoolSettings).items() if key not in overruled}
        merged[name] = own | {key: value for key, (_, value) in flags.pool.items()}
        origins.update({(POOLS, str(name), key): flag for key, (flag, _) in flags.pool.items()})
    return merged


def _canonical(values: Mapping[str, object], model: type[BaseModel]) -> dict[str, object]:
    """Give each value its key on the wire, whichever of its names it came under; unknown keys stay as they are."""
    keys = wire_keys(model)
    names = dict(keys)
    for field, definition in model.model_fields.items():
        if isinstance(definition.validation_alias, AliasChoices):
            names |= {str(choice): keys[field] for choice in definition.validation_alias.choices}
    return {names.get(key, key): value for key, value in values.items()}
