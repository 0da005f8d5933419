"""Nothing begins outside a window: windows of a story are read here in seconds of its day, by arithmetic of its own."""

from __future__ import annotations

import re
from typing import Any

from tightship_simulator.api.store import Change
from tightship_testkit.disasters.cluster import POOL
from tightship_testkit.disasters.promises.base import Eviction, Json, Promise, ours
from tightship_testkit.disasters.promises.drains import begun
from tightship_testkit.disasters.promises.reading import seconds
from tightship_testkit.disasters.registry import promise

DAY = 86400
_MONDAY = 4 * DAY
"""Seconds from 1970 to a Monday."""
_AHEAD = {"": 0, "Europe/Berlin": 3600, "America/New_York": -5 * 3600}
"""Seconds by which clocks in January are ahead of UTC."""
_TIMES = re.compile(r"(Mon )?(\d\d):(\d\d)-(\d\d):(\d\d)")
_EVENT = re.compile(r"DTSTART:20260105T(\d\d)(\d\d)00Z\nDTEND:20260105T(\d\d)(\d\d)00Z")


def _times(each: str | Json) -> tuple[int, int, bool]:
    """Return when a window begins and ends, in seconds of the day, and whether on Mondays only."""
    if isinstance(each, str):
        found = _TIMES.fullmatch(each)
        assert found, each
        begin, end = (int(found[at]) * 3600 + int(found[at + 1]) * 60 for at in (2, 4))
        return begin, end, bool(found[1])
    minute, hour, *_, weekday = each["schedule"].split()
    begin = int(hour) * 3600 + int(minute) * 60
    return begin, begin + int(seconds(each["duration"])), weekday == "1"


def is_open(windows: Json, wall: float) -> bool:
    """Whether *windows* of a story allow work at *wall*, seconds since 1970."""
    local = wall + _AHEAD[windows.get("timeZone", "")]
    monday = int((local - _MONDAY) // DAY) % 7 == 0

    def within(each: str | Json) -> bool:
        begin, end, mondays = _times(each)
        return begin <= local % DAY < end and (monday or not mondays)

    event = _EVENT.search(windows.get("calendar", ""))
    frozen = event is not None and (
        int(event[1]) * 3600 + int(event[2]) * 60 <= wall % DAY < int(event[3]) * 3600 + int(event[4]) * 60
    )
    allowed = "allow" not in windows or any(map(within, windows["allow"]))
    return allowed and not frozen and not any(map(within, windows.get("deny", ())))


@promise
class NothingOutsideWindows(Promise):
    """A drain begins in a window only; and once windows have been closed for `hardStop`, nothing is evicted."""

    name = "nothing-outside-windows"
    text = "No drain begins outside of its windows, and none goes on when they have been closed for hardStop."
    late = 6.0
    """Seconds from a judgement to its claim: a look at the ledger, and two writes."""
    off = 3.0
    """Seconds by which the time that replicas go by, the API server's, differs from the true one."""
    stops = 2.0
    """Seconds from a look at a node in drain to its next eviction."""

    def changed(self, change: Change, author: str) -> None:
        program = begun(change, author)
        if program:
            self._look(program, change.object, author, "began to drain it", f"Node {change.object['metadata']['name']}")

    def evicted(self, eviction: Eviction) -> None:
        if eviction.node is not None:
            subject = f"Pod {eviction.name}"
            self._look(eviction.program, eviction.node, eviction.by, "evicted it", subject, stopped=True)

    def _look(self, program: str, node: Json, author: str, did: str, subject: str, *, stopped: bool = False) -> None:
        team = self.world.team(program)
        if team is None:
            return
        pool = (node["metadata"].get("labels") or {}).get(POOL)
        found = []
        for settings in team.recent(self.world.now):
            pools = settings.get("nodePools") or {}
            own = pools.get(pool) or pools.get("*") or {}
            found.append([each["windows"] for each in (settings, own) if each.get("windows")])
        # What one of the configurations that may be in force allows is allowed.
        if all(any(self._closed(each, author, stopped=stopped) for each in windows) for windows in found):
            self.broken(subject, f"{author} {did} outside of its windows: {found[-1]}")

    def _closed(self, windows: Json, author: str, *, stopped: bool) -> bool:
        """Whether *windows* have been closed for so long that even who is late must know."""
        if stopped and windows.get("hardStop") is None:
            return False
        late = self.stops + seconds(windows["hardStop"]) if stopped else self.late
        # Who met a fault may have waited for an answer.
        late += 20.0 * self.world.blind(author, 0.0) + self.off
        now = self.world.wall + self.off
        return not any(is_open(windows, now - at / 2) for at in range(int(2 * (late + self.off)) + 1))


@promise
class RolloutsSettle(Promise):
    """No pod of a Deployment is evicted within `notBefore` of the newest of its ReplicaSets.

    A rollout ends later than that: here an old ReplicaSet goes with its last pod.
    """

    name = "rollouts-settle"
    text = "No pod moves earlier than `notBefore` after a rollout of its Deployment."
    noticed = 3.0
    """Seconds after which a controller has seen a new ReplicaSet."""
    off = 4.0
    """Seconds by which a controller's time and the one in the object, cut to seconds, differ from the true one."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._own: set[str] = set()
        """Deployments that a drain has restarted, whose rollout doesn't keep that drain."""
        self._newest: dict[str, tuple[float, str]] = {}
        """The newest ReplicaSet by Deployment, and when it came."""

    def changed(self, change: Change, author: str) -> None:
        thing = change.object
        if thing["kind"] == "Deployment" and ours(author):
            self._own.add(thing["metadata"]["name"])
        elif thing["kind"] == "ReplicaSet" and change.type == "ADDED":
            for each in thing["metadata"].get("ownerReferences", ()):
                self._newest[each["name"]] = self.world.now, thing["metadata"]["name"]

    def evicted(self, eviction: Eviction) -> None:
        name = str((eviction.pod["metadata"].get("labels") or {}).get("app", ""))
        team = self.world.team(eviction.program)
        if name not in self._newest or name in self._own or team is None or eviction.node is None:
            return
        began, newest = self._newest[name]
        passed = self.world.now - began
        pool = (eviction.node["metadata"].get("labels") or {}).get(POOL)
        rest = min(_not_before(each, pool) for each in team.recent(self.world.now))
        if self.noticed < passed < rest - self.off and not self.world.blind(eviction.by, began):
            detail = f"{passed:.1f} s after ReplicaSet {newest} began a rollout, and notBefore is {rest:g} s"
            self.broken(f"Pod {eviction.name}", f"{eviction.by} evicted it {detail}")


def _not_before(settings: Json, pool: object) -> float:
    pools = settings.get("nodePools") or {}
    own = pools.get(pool) or pools.get("*") or {}
    return max(seconds((each.get("windows") or {}).get("notBefore", 0)) for each in (settings, own))


__all__ = ["NothingOutsideWindows", "RolloutsSettle", "is_open"]
