"""The savings of what drains have saved: nothing in them that was not saved, and nothing lost."""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from datetime import datetime
from typing import Any

from msgspec import Struct

from tightship_simulator.api.store import Change
from tightship_testkit.disasters.cluster import POOL
from tightship_testkit.disasters.promises.base import Json, Promise, ours
from tightship_testkit.disasters.promises.reading import annotations as notes_of
from tightship_testkit.disasters.promises.reading import holder_of, owned
from tightship_testkit.disasters.registry import promise

CLAIMS, SAVINGS = "tightship-claims", "tightship.dev/savings"
HOUR = 3600.0


class PoolSavings(Struct, frozen=True):
    """The savings of a pool at a moment: *nodes* that save, *seconds* and *money* of all that did so for an hour."""

    nodes: int = 0
    seconds: float = 0.0
    money: float = 0.0

    @property
    def sound(self) -> bool:
        """Whether all of it can be."""
        return self.nodes >= 0 and 0 <= self.seconds < math.inf and 0 <= self.money < math.inf


_EMPTY = PoolSavings()


class _Gone(Struct, frozen=True):
    """A drained node that has gone; *holder* is who owes it to the savings."""

    at: float
    node: str
    holder: str


@promise
class SavingsAreTrue(Promise):
    """Each node in the savings is one that a controller had drained when it went, once; a node that is added takes one
    off again; what the savings hold at a moment only grows by the time that passes, whoever leads.
    """

    name = "savings-are-true"
    text = "No saving is told that is none, and none is lost with a leader."
    enters = 60.0
    """Seconds within which a node that has gone is in the savings."""
    settles = 150.0
    """Seconds within which one that was added has taken one off; the savings wait for a minute themselves."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._drained: dict[str, str] = {}
        """By uid of a node the drain in which it was Drained."""
        self._gone: defaultdict[tuple[str, str], list[_Gone]] = defaultdict(list)
        """By ledger and pool the drained nodes that have gone, and are not in the savings yet."""
        self._added: Counter[tuple[str, str]] = Counter()
        """How many nodes were added that have taken none off yet."""
        self._open: defaultdict[tuple[str, str], dict[str, float]] = defaultdict(dict)
        """Those of them, by uid, that came when there was one to take off, and when."""
        self._leads: dict[str, tuple[str, float]] = {}
        """By controller the replica that leads, and since when."""

    def changed(self, change: Change, author: str) -> None:
        kind = change.object["kind"]
        if kind == "Node":
            self._node(change, author)
        elif kind == "Lease" and change.object["metadata"]["name"] == CLAIMS:
            self._lease(change, author)

    def _node(self, change: Change, author: str) -> None:
        meta, record = change.object["metadata"], owned(change.previous or change.object)
        pool, uid = str((meta.get("labels") or {}).get(POOL, "")), meta["uid"]
        if change.type == "MODIFIED" and owned(change.object).get("phase") == "Drained":
            self._drained[uid] = str(owned(change.object).get("op"))
        elif change.type == "ADDED" and author != "etcd" and self.world.now > 0:
            for ledger in self._ledgers():
                self._added[ledger, pool] += 1
                if self._page(ledger, pool).nodes > len(self._open[ledger, pool]):
                    self._open[ledger, pool][uid] = self.world.now
        elif change.type == "DELETED":
            for ledger in self._ledgers():
                self._open[ledger, pool].pop(uid, None)
            drain = self._drained.pop(uid, None)
            if drain is not None and drain == record.get("op"):
                ledger = self.world.ledger(str(record.get("controller")))
                owes = record.get("phase") in ("Drained", "Yielded")
                self._gone[ledger, pool].append(_Gone(self.world.now, meta["name"], holder_of(record) if owes else ""))

    def _ledgers(self) -> set[str]:
        return {self.world.ledger(program) for program in self.world.teams if program != "hpa-scaler"}

    def _page(self, ledger: str, pool: str) -> PoolSavings:
        lease = self.world.store.find("Lease", CLAIMS, ledger)
        return self._savings(lease).get(pool, _EMPTY) if lease is not None else _EMPTY

    def _savings(self, lease: Json) -> dict[str, PoolSavings]:
        text = notes_of(lease).get(SAVINGS)
        if not text:
            return {}
        return {pool: _page(each, self.world.wall) for pool, each in json.loads(text).items()}

    def _lease(self, change: Change, author: str) -> None:
        ledger = change.object["metadata"]["namespace"]
        before = self._savings(change.previous) if change.previous is not None else {}
        after = self._savings(change.object) if change.type != "DELETED" else {}
        for pool in before.keys() | after.keys():
            old, new = before.get(pool, _EMPTY), after.get(pool, _EMPTY)
            if old == new:
                continue
            if ours(author):
                self._written(ledger, pool, old, new, author)
                continue
            self._open[ledger, pool].clear()
            if author == "etcd":
                # What it has lost may be written again.
                self._gone[ledger, pool] += [_Gone(0.0, "", "")] * (old.nodes - new.nodes)
                self._added[ledger, pool] += max(0, new.nodes - old.nodes)

    def _written(self, ledger: str, pool: str, old: PoolSavings, new: PoolSavings, author: str) -> None:
        key, more, subject = (ledger, pool), new.nodes - old.nodes, f"Pool {pool}"
        if not new.sound:
            self.broken(subject, f"{author} wrote {new}")
        gone = self._gone[key]
        if more > len(gone):
            self.broken(subject, f"{author} entered {more} nodes, and {len(gone)} have gone that had been drained")
        # The savings don't name nodes: whoever enters one enters its own first, and of these the last that went, since
        # those of an earlier term may be nobody's to enter.
        for _ in range(min(more, len(gone))):
            del gone[next((at for at in reversed(range(len(gone))) if gone[at].holder == author), -1)]
        if -more > self._added[key]:
            self.broken(subject, f"{author} took {-more} nodes off, and {self._added[key]} were added")
        for uid in [*self._open[key]][: max(0, -more)]:
            del self._open[key][uid]
        self._added[key] = max(0, self._added[key] + min(0, more))
        # By the clock the savings have grown already; times are written in thousandths.
        for what, was, now, hourly in (("s", old.seconds, new.seconds, 1.0), ("micros", old.money, new.money, 1e6)):
            slack = 1.0 if what == "s" else 1000.0
            lost = max(0, -more) * (self.world.now + 5.0) * hourly
            if now > was + slack:
                self.broken(subject, f"{author} made {now:.0f} {what} of {was:.0f} at one moment")
            elif now < was - lost - slack:
                self.broken(
                    subject, f"{author} left {now:.0f} {what} of {was:.0f}, {max(0, -more)} nodes were taken off"
                )

    def passed(self) -> None:
        now = self.world.now
        for team in self.world.teams.values():
            holder = self.world.holder(team)
            if self._leads.get(team.program, ("", 0.0))[0] != holder:
                self._leads[team.program] = holder, now
        for (ledger, pool), gone in self._gone.items():
            for number, each in enumerate(gone):
                if not each.holder or each.at > now - self.enters:
                    continue
                if each.holder in self._keeping(ledger):
                    self.broken(f"Pool {pool}", f"node {each.node} went when it was drained, and is not in the savings")
                # Who had lost its leader, or could not write, may still enter it, and owes nothing.
                gone[number] = _Gone(each.at, each.node, "")
        for (ledger, pool), added in self._open.items():
            late = [at for at in added.values() if at < now - self.settles]
            if late and self._keeping(ledger) and self._page(ledger, pool).nodes:
                self.broken(f"Pool {pool}", f"a node was added {now - late[0]:.0f} s ago, and none was taken off")

    def _keeping(self, ledger: str) -> set[str]:
        """Return the replicas that have led, and could keep these savings, for a minute."""
        found, since = set(), self.world.now - self.enters
        for program, (holder, began) in self._leads.items():
            team = self.world.teams[program]
            if program == "hpa-scaler":
                continue  # it has no savings, though its namespace may be theirs
            well = not team.dry_run and began < since and not self.world.blind(holder, since)
            if well and self.world.ledger(program) == ledger:
                found |= {each.name for each in team.alive if each.name == holder and not each.process.frozen}
        return found


def _page(found: Json, now: float) -> PoolSavings:
    """Return one pool's page at *now*."""
    nodes, seconds, money = 0, float(found.get("seconds", 0.0)), float(sum((found.get("micros") or {}).values()))
    for each in found.get("standing") or []:
        nodes += each["nodes"]
        age = now - datetime.fromisoformat(each["at"]).timestamp()
        if age >= HOUR:
            seconds += each["nodes"] * age
            money += sum((each.get("hourly") or {}).values()) * age / HOUR
    return PoolSavings(nodes, seconds, money)
