"""The settings of the process ``node-compactor run``.

Settings that may change (pools, gates, drains) come from the ConfigMap: :mod:`node_compactor.configuration`.
"""

from __future__ import annotations

from node_compactor.older import PROCESS_VARIABLES
from tightship.process.settings.process import (
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
    )

    older = PROCESS_VARIABLES

    interval: Positive = variable("INTERVAL", default=300.0)
    config_map: Name = variable("CONFIG_MAP_NAME", default="node-compactor-config")
    ports: Ports = variable("HTTP_PORTS", default=(9101,))
    lease_name: Name = variable("LEASE_NAME", default="node-compactor")
    landings: Name = variable("LANDINGS_CONFIG_MAP_NAME", default="node-compactor-landings")


__all__ = ["CompactorRunSettings"]
