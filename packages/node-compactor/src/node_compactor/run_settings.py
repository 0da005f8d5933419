"""The settings of the process ``node-compactor run``: every controller's, under the older controller's names.

Settings that may change (pools, gates, drains) come from the ConfigMap: :mod:`node_compactor.configuration`.
"""

from __future__ import annotations

from tightship.process.settings.process import (
    LogFormat,
    LogLevel,
    Name,
    NodeProcessSettings,
    Ports,
    Positive,
    RunWords,
    variable,
)


class CompactorRunSettings(NodeProcessSettings):
    """The compactor's defaults and names. Durations are in seconds."""

    words = RunWords(
        does="mark, drain, hand over, loop after loop",
        description="Run the controller: mark underutilized nodes, drain the least utilized, hand it to Cluster "
        "Autoscaler, again and again. Serves metrics, probes and its last plan over HTTP.",
        live="pools and gates",
        migration="docs/migration.md",
    )

    interval: Positive = variable("SLEEP_DURATION_BETWEEN_ITERATIONS_SECONDS", default=300.0)
    """The older controller's default; its chart set 60."""
    log_format: LogFormat = variable("ESTAFETTE_LOG_FORMAT", "LOG_FORMAT", default="text")
    log_level: LogLevel = variable("ESTAFETTE_LOG_LEVEL", "LOG_LEVEL", default="info")
    config_map: Name = variable("CONFIG_MAP_NAME", default="estafette-k8s-node-compactor-config")
    """The name in the older controller's README."""
    ports: Ports = variable("HTTP_PORTS", default=(9101,))
    """The older controller's port for metrics; its probe used the default port for probes."""
    lease_name: Name = variable("LEASE_NAME", default="node-compactor")
    landings: Name = variable("LANDINGS_CONFIG_MAP_NAME", default="node-compactor-landings")


__all__ = ["CompactorRunSettings"]
