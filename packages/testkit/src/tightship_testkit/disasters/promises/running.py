"""Replicas run on: none crashes, none reports a defect."""

from __future__ import annotations

from tightship_testkit.disasters.promises.base import Promise
from tightship_testkit.disasters.registry import promise


@promise
class NoCrash(Promise):
    """No replica ends by an error, and none logs one with a traceback."""

    name = "no-crash"
    text = "No restart because the API server is away."

    def passed(self) -> None:
        for team in self.world.teams.values():
            for replica in team.replicas:
                if replica.crashed:
                    self.broken(replica.name, f"crashed: {replica.error!r}")

    def logged(self, name: str, text: str) -> None:
        """Take note of a log record with a traceback."""
        self.broken(name or "world", f"logged an error with a traceback: {text}")
