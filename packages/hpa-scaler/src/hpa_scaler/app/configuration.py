"""Reads the settings, and makes rules, servers and limits from them."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from hpa_scaler.app.run_settings import RunSettings
from hpa_scaler.app.settings import ScalerSettings, ServerSettings, load_settings
from hpa_scaler.prometheus.client import ClientLimits
from hpa_scaler.prometheus.servers import DEFAULT, Server, Tls
from hpa_scaler.spec.addresses import AllowList, parse_address
from hpa_scaler.spec.spec import Rules
from tightship.app.settings.config_maps import config_in, read_config

CONFIG_MAP_KEYS = ("hpa-scaler-config.yaml", "config.yaml", "config.json")
"""Keys of a ConfigMap's data that may hold the configuration, in order of preference."""

CYCLES_APART = 4
"""How many cycles may be missed before an HPA's history is too old to continue."""


def parse_config_map(data: Mapping[str, str]) -> ScalerSettings:
    """Return the settings in a ConfigMap's *data*, or the defaults if it has no text at all.

    Raises :class:`~tightship.app.settings.loading.SettingsError` with all problems at once.
    """
    key, found = config_in(data, CONFIG_MAP_KEYS)
    return load_settings(found, key)


def read_settings(path: str | None) -> ScalerSettings:
    """Return the settings in the file *path*, or the defaults without a file; raises as :func:`parse_config_map`."""
    return ScalerSettings() if path is None else load_settings(read_config(path, CONFIG_MAP_KEYS), path)


def rules_of(settings: ScalerSettings, run: RunSettings) -> Rules:
    """Return the rules for judgements, from the configuration and the process's settings."""
    return msgspec.structs.replace(
        msgspec.convert(settings, Rules, from_attributes=True),
        prefix=run.annotation_prefix,
        lower_bound=run.lower_bound,
        longest_gap=CYCLES_APART * run.interval,
        handover_gap=CYCLES_APART * run.interval,
        drop_share=settings.drop_share / 100,
        drop_floor_share=settings.drop_floor_share / 100,
        drop_size=settings.drop_size / 100,
    )


def servers_of(settings: ScalerSettings, run: RunSettings) -> dict[str, Server]:
    """Return the servers by name; ``PROMETHEUS_SERVER_URL`` overrides the URL of the server ``default``."""
    given = dict(settings.servers)
    default = given.pop(DEFAULT, ServerSettings())
    servers = {name: _server(name, each, each.url) for name, each in given.items()}
    url = run.prometheus_server_url or default.url
    if url:
        servers[DEFAULT] = _server(DEFAULT, default, url)
    return servers


def allowed_of(settings: ScalerSettings) -> AllowList:
    """Return the addresses that HPAs may name besides the servers."""
    return AllowList.of(settings.allowed)


def limits_of(settings: ScalerSettings) -> ClientLimits:
    """Return the client's timeouts and limits."""
    return ClientLimits(settings.circuit_failures, settings.circuit_pause)


def _server(name: str, given: ServerSettings, url: str) -> Server:
    tls, basic = given.tls, given.basic_auth
    return Server(
        name=name,
        address=parse_address(url),
        headers=tuple(sorted(given.headers.items())),
        parameters=tuple(sorted(given.parameters.items())),
        token_file=given.bearer_token_file,
        username=basic.username if basic is not None else "",
        password_file=basic.password_file if basic is not None else "",
        tls=Tls(tls.ca_file, tls.cert_file, tls.key_file, tls.server_name, tls.insecure),
        timeout=given.timeout,
        concurrency=given.concurrency,
    )


__all__ = [
    "CONFIG_MAP_KEYS",
    "allowed_of",
    "limits_of",
    "parse_config_map",
    "read_settings",
    "rules_of",
    "servers_of",
]
