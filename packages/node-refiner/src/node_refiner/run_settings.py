"""The settings of the process ``node-refiner run``: every controller's, under the older controller's names.

Threshold, minimums, pauses and drains may change, so they come from the ConfigMap: :mod:`node_refiner.configuration`.
"""

from __future__ import annotations

from typing import Annotated, Self

from tightship.process.settings.fields import Allowed
from tightship.process.settings.process import Name, NodeProcessSettings, Port, Ports, Positive, RunWords, variable


class RefinerRunSettings(NodeProcessSettings):
    """The refiner's defaults and names. Durations are in seconds."""

    words = RunWords(
        does="count excess nodes, drain one, hand it over, loop after loop",
        description="Run the controller: count the nodes the cluster could do without, drain the one whose removal "
        "disturbs least, hand it to the Cluster Autoscaler, again and again. Serves metrics, probes and its last plan "
        "over HTTP.",
        live="threshold, minimums and pauses",
        migration="docs/migration-node-refiner.md",
    )

    interval: Positive = variable("CALCULATION_LOOP_FREQUENCY_SECONDS", default=60.0)
    """The older controller's fixed interval."""
    config_map: Name = variable("CONFIG_MAP_NAME", default="node-refiner-cm")
    """The older controller obeyed any ConfigMap of that name in whatever namespace."""
    ports: Ports = variable("HTTP_PORTS", default=(8080,))
    listening_port: Annotated[Ports, Allowed("a port")] = variable("LISTENING_PORT", default=(8080,))
    """The older name, for a port with metrics only; ``HTTP_PORTS`` overrides it."""
    probe_port: Port = variable("HTTP_PROBE_PORT", default=9102)
    """The port of ``/alive``, the older controller's probe."""
    lease_name: Name = variable("LEASE_NAME", default="node-refiner")
    landings: Name = variable("LANDINGS_CONFIG_MAP_NAME", default="node-refiner-landings")

    def filled(self, namespace: str, unique: str) -> Self:
        """See :meth:`tightship.process.settings.process.ProcessSettings.filled`."""
        found = super().filled(namespace, unique)
        if "ports" in self.model_fields_set:
            return found
        return found.model_copy(update={"ports": self.listening_port})


__all__ = ["RefinerRunSettings"]
