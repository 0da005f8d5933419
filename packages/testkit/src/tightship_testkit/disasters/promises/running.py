"""Replicas run on, and what they have begun comes to its end."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from tightship_simulator.api.store import Change
from tightship_testkit.disasters.promises.base import Promise, ours
from tightship_testkit.disasters.promises.cordons import TAKEOVER
from tightship_testkit.disasters.promises.reading import (
    TO_BE_DELETED,
    has_taint,
    holder_of,
    leaving,
    owned,
    ready,
    seconds,
    terminating,
)
from tightship_testkit.disasters.registry import promise
from tightship_testkit.disasters.world import Json, Team


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

    def stopped(self) -> None:
        self.passed()
        for team in self.world.teams.values():
            for replica in team.alive:
                if replica.name in self.world.asked_to_end:
                    self.broken(replica.name, "did not end within its grace")


@promise
class LeadersLead(Promise):
    """When all is quiet, every controller has a leader that renews its Lease, and every replica says it is well."""

    name = "leaders-lead"
    text = "Whoever leads next goes on: trouble that is over leaves no replica that hangs."

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._renewed: dict[str, float] = {}

    def changed(self, change: Change, author: str) -> None:
        if change.object["kind"] == "Lease" and ours(author) == change.object["metadata"]["name"]:
            self._renewed[ours(author)] = self.world.now

    def probed(self, name: str, path: str, code: int) -> None:
        """Take note of what a replica answers to a probe at the end."""
        if code != 200:
            self.broken(name, f"answers {code} to {path} at the end")

    def ended(self) -> None:
        for program, team in self.world.teams.items():
            running = [each for each in team.alive if not each.process.frozen and each.name not in team.dry]
            if not running or not team.settings.get("enabled", True):
                continue
            ago = self.world.now - self._renewed.get(program, 0.0)
            if ago > TAKEOVER:
                self.broken(program, f"nobody has renewed its Lease for {ago:.0f} s, though {running[0].name} runs")


@promise
class DrainsEnd(Promise):
    """Every drain ends within what its settings allow, counted from when it began, or from when all faults stopped."""

    name = "drains-end"
    text = "Drains end: when the faults stop, within a bound."

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._began: dict[str, float] = {}
        self._waited: set[str] = set()
        """Drains that have waited for what opens after a cordon."""

    def passed(self) -> None:
        now, open_ = self.world.now, set()
        for node in self.world.store.list("Node"):
            record, name = owned(node), node["metadata"]["name"]
            op = str(record.get("op") or "")
            team = self.world.team(str(record.get("controller")))
            if not op or team is None:
                continue
            open_.add(op)
            if self._excused(node, record, team):
                self._began[op] = now
            began = max(self._began.setdefault(op, now), self.world.scenario.story)
            if record.get("waitsFor") or (record.get("phase") == "Claimed" and record.get("deadline")):
                self._waited.add(op)
            bound = _bound(team, op in self._waited)
            if now - began > bound:
                detail = f"is in drain by {team.program} for {now - self._began[op]:.0f} s, now {record.get('phase')}"
                self.broken(f"Node {name}", f"{detail}; {bound:.0f} s are allowed{self.world.clocks()}")
        self._began = {op: since for op, since in self._began.items() if op in open_}
        self._waited &= open_

    def _excused(self, node: Json, record: Json, team: Team) -> bool:
        """Whether it is not the controller's to end it now."""
        if not any(not each.process.frozen and each.name not in team.dry for each in team.alive):
            return True
        if has_taint(node, TO_BE_DELETED) or terminating(node) or leaving(node):
            return True
        kept = str(team.settings.get("whenNotTaken")) == "keep"
        return (kept and record.get("phase") == "Drained") or not ready(node)


@promise
class GivenBackInTime(Promise):
    """A phase of a drain that is over is left by one write: none lasts longer than admission takes over that write.

    Restoring is over when it begins, Evicting at its deadline. Whoever else writes the node may have ours begin anew.
    """

    name = "given-back-in-time"
    text = "Neither a webhook that takes its 30 seconds for each write nor a full Lease keeps a drain from ending."
    margin = 15.0
    """Seconds for the reads before the write, and for its pauses."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._since: dict[tuple[str, str], float] = {}

    def passed(self) -> None:
        found: dict[tuple[str, str], float] = {}
        for node in self.world.store.list("Node"):
            record, meta = owned(node), node["metadata"]
            if not self._over(node, record) or not self._driven(holder_of(record)):
                continue
            key = meta["uid"], meta["resourceVersion"]
            since = found[key] = self._since.get(key, self.world.now)
            took, most = self.world.now - since, self.world.scenario.admission + self.margin
            if took > most and not self.world.blind(holder_of(record), since):
                detail = f"stays {record['phase']}, which is over, for {took:.0f} s; {most:.0f} s are allowed"
                self.broken(f"Node {meta['name']}", detail)
        self._since = found

    def _over(self, node: Json, record: Json) -> bool:
        if record.get("phase") == "Restoring":
            return True
        if record.get("phase") != "Evicting" or not record.get("deadline") or not ready(node):
            return False
        return datetime.fromisoformat(record["deadline"]).timestamp() + self.world.skewed < self.world.wall

    def _driven(self, holder: str) -> bool:
        replicas = [each for team in self.world.teams.values() for each in team.alive if each.name not in team.dry]
        return any(each.name == holder and not each.process.frozen for each in replicas)


def _bound(team: Team, waited: bool) -> float:
    settings = team.settings

    def of(key: str, default: float) -> float:
        return seconds(settings.get(key, default))

    emptied = of("nodeDrainTimeout", 1800.0)
    waits = of("settleTime", 5.0) + of("awaitCompletionFor", 0.0)
    waits += of("afterCordonTimeout", 900.0) if waited else 0.0
    # A pod that comes late has an empty node be emptied once more.
    return 2 * emptied + waits + of("handOverTimeout", 3600.0) + TAKEOVER
