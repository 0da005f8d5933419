"""The settings of the process ``node-refiner run``.

Threshold, minimums, pauses and drains may change, so they come from the ConfigMap: :mod:`node_refiner.configuration`.
"""

from __future__ import annotations

from node_refiner.older import VARIABLES
from tightship.process.settings.process import Name, NodeProcessSettings, Port, Ports, Positive, RunWords, variable


class RefinerRunSettings(NodeProcessSettings):
    """The refiner's defaults and names. Durations are in seconds."""

    words = RunWords(
        does="count excess nodes, drain one, hand it over, loop after loop",
        description="Run the controller: count the nodes the cluster could do without, drain the one whose removal "
        "disturbs least, hand it to the Cluster Autoscaler, again and again. Serves metrics, probes and its last plan "
        "over HTTP.",
        live="threshold, minimums and pauses",
    )

    older = VARIABLES

    interval: Positive = variable("INTERVAL", default=60.0)
    config_map: Name = variable("CONFIG_MAP_NAME", default="node-refiner-config")
    ports: Ports = variable("HTTP_PORTS", default=(8080,))
    probe_port: Port = variable("HTTP_PROBE_PORT", default=9102)
    lease_name: Name = variable("LEASE_NAME", default="node-refiner")
    landings: Name = variable("LANDINGS_CONFIG_MAP_NAME", default="node-refiner-landings")


__all__ = ["RefinerRunSettings"]
