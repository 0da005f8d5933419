"""Settings for display: all values by the keys of the configuration, and one line for people."""

from __future__ import annotations

from hpa_scaler.app.configuration import servers_of
from hpa_scaler.app.run_settings import RunSettings
from hpa_scaler.app.settings import ScalerSettings
from hpa_scaler.spec.annotations import BY_NAME, PREFIX
from tightship.app.settings.fields import plain, scalar
from tightship.app.settings.loading import wire_keys
from tightship.report.document import Setting, SettingsView

_NAMED = 3


def settings_view(
    settings: ScalerSettings, run: RunSettings, config: str | None, outcomes: str | None = None
) -> SettingsView:
    """Return the settings in force, without secrets, which are in files.

    *config* is the configuration file, if any; *outcomes* is the file of recorded answers, if no server was queried.
    """
    keys = wire_keys(ScalerSettings)
    values: dict[str, Setting] = {
        "minimumReplicasLowerBound": run.lower_bound,
        "annotationPrefix": run.annotation_prefix,
        keys["servers"]: {
            name: {
                "url": str(server.address),
                "timeout": scalar(server.timeout),
                "maximumConcurrency": server.concurrency,
                "authorization": "bearer" if server.token_file else "basic" if server.username else None,
            }
            for name, server in sorted(servers_of(settings, run).items())
        },
        keys["defaults"]: {BY_NAME[name].key: {"value": text} for name, text in sorted(settings.defaults.items())},
    }
    for name, key in keys.items():
        if key not in values:
            values[key] = plain(getattr(settings, name))
    return SettingsView(_summary(settings, run, config, outcomes), values)


def _summary(settings: ScalerSettings, run: RunSettings, config: str | None, outcomes: str | None) -> str:
    servers = [
        f"{server.address}" if name == "default" else f"{name} ({server.address})"
        for name, server in sorted(servers_of(settings, run).items(), key=lambda item: (item[0] != "default", item[0]))
    ]
    more = f" and {len(servers) - _NAMED} more" if len(servers) > _NAMED else ""
    named = f"{', '.join(servers[:_NAMED])}{more}"
    told = f"{'servers' if len(servers) > 1 else 'server'} {named}" if servers else "no server is configured"
    parts = [told if outcomes is None else f"answers from {outcomes}"]
    parts.append(f"lower bound {run.lower_bound}")
    if run.annotation_prefix != PREFIX:
        parts.append(f"annotations {run.annotation_prefix}/hpa-scaler")
    if settings.defaults:
        texts = (f"{BY_NAME[name].key} {text}" for name, text in sorted(settings.defaults.items()))
        parts.append(f"by default {', '.join(texts)}")
    if config is not None:
        parts.append(f"from {config}")
    return "; ".join(parts)


__all__ = ["settings_view"]
