"""The replicas of one controller in a disaster, and what they are told."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from tightship_simulator.virtual.simulation import Replica
from tightship_testkit.disasters.scenario import Controller
from tightship_testkit.settings_text import with_units

Json = dict[str, Any]

CONFIG_MAPS = {
    "node-compactor": "node-compactor-config",
    "node-refiner": "node-refiner-config",
    "hpa-scaler": "hpa-scaler-config",
}
INTERVALS = {
    "node-compactor": "INTERVAL",
    "node-refiner": "INTERVAL",
    "hpa-scaler": "INTERVAL",
}


class Team:
    """The replicas of one controller, the present ones and those before; *settings* are those last written."""

    def __init__(self, controller: Controller) -> None:
        self.controller = controller
        self.program = controller.program
        self.settings: Json = dict(controller.settings)
        self.dry_run = controller.variables.get("DRY_RUN") == "true"
        self.dry: set[str] = set()
        """Names of the replicas that were started as dry runs."""
        self.spoilt: float | None = None
        """Since when the ConfigMap holds what can't be used."""
        self.replicas: list[Replica] = []
        self._history: list[tuple[float, Json]] = [(0.0, self.settings)]

    @property
    def alive(self) -> list[Replica]:
        """The replicas that run, frozen ones too."""
        return [each for each in self.replicas if not each.ended]

    def data(self, settings: Mapping[str, Any] | str) -> dict[str, str]:
        """Return the data of a ConfigMap with *settings*; a text as it is."""
        if isinstance(settings, str):
            return {"config.yaml": settings}
        return {"config.yaml": json.dumps(with_units(settings))}

    def configured(self, settings: Json, now: float) -> None:
        """Take note of new settings."""
        self.settings, self.spoilt = settings, None
        self._history.append((now, settings))

    def restored(self, at: float, now: float) -> None:
        """Take note that *now* the ConfigMap is what it was *at* an earlier time."""
        settings = [settings for since, settings in self._history if since <= at][-1]
        if settings is not self.settings:
            self.configured(settings, now)

    def ever(self, reported: Callable[[Json], bool]) -> bool:
        """Whether any of its settings until now says so."""
        return any(reported(settings) for _, settings in self._history)

    def off_since(self, reported: Callable[[Json], bool]) -> float | None:
        """Return since when its settings no longer say so, ``None`` if they still do, or never have."""
        says = [reported(settings) for _, settings in self._history]
        if says[-1] or not any(says):
            return None
        return self._history[len(says) - says[::-1].index(True)][0]

    def recent(self, now: float, within: float = 80.0) -> list[Json]:
        """Return the settings that may be in force at *now*: the last ones, and those replaced a while ago.

        An outage may last for 45 s, and a controller may take world.RECOVERY after it to read its ConfigMap again.
        """
        found = []
        for number, (_, settings) in enumerate(self._history):
            replaced = self._history[number + 1][0] if number + 1 < len(self._history) else now
            if replaced >= now - within:
                found.append(settings)
        return found


def prices(settings: Mapping[str, Any]) -> bool:
    """Whether a controller is told to write deletion costs."""
    return str(settings.get("deletionCost", False)).lower() == "true"
