"""Whose cordon is whose: a node is never left alone with ours, and never loses another's."""

from __future__ import annotations

from typing import Any, ClassVar

from tightship_simulator.api.store import Change
from tightship_testkit.disasters.promises.base import Eviction, Json, Promise, ours
from tightship_testkit.disasters.promises.reading import (
    DRAINING,
    OWNING,
    TO_BE_DELETED,
    cordoned,
    drain_of,
    has_taint,
    holder_of,
    owned,
    seconds,
    terminating,
)
from tightship_testkit.disasters.registry import PERSON, promise
from tightship_testkit.disasters.world import Team

TAKEOVER = 55.0
"""Seconds that a takeover may take at most: the Lease runs out, another replica leads, and makes a pass."""
NOTICED = 3.0


SUCCESSION = 120.0
"""Seconds after which an installation that dies is succeeded by another one: docs/drain.md."""


@promise
class CordonHasOwner(Promise):
    """A node that we have cordoned has somebody alive who is responsible, or gets one within a takeover."""

    name = "cordon-has-owner"
    text = "No node stays cordoned with no one responsible."

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._since: dict[str, float] = {}
        self._ours: set[str] = set()
        """Nodes that we have cordoned, and that nobody else has touched since."""

    def changed(self, change: Change, author: str) -> None:
        if change.object["kind"] != "Node":
            return
        name, node, old = change.object["metadata"]["name"], change.object, change.previous
        if change.type == "DELETED" or old is None or not cordoned(node) or (not ours(author) and _touched(old, node)):
            self._ours.discard(name)
        elif ours(author) and not cordoned(old):
            self._ours.add(name)
        elif ours(author) and name in self._ours and owned(old) and not owned(node):
            self.broken(f"Node {name}", f"{author} ended its drain, and left the node cordoned")

    def passed(self) -> None:
        alone = {}
        for node in self.world.store.list("Node"):
            name = node["metadata"]["name"]
            if not cordoned(node):
                continue
            record = owned(node)
            if not record and not has_taint(node, DRAINING):
                continue
            teams = [self.world.teams.get(str(record.get("controller")))] if record else list(self.world.teams.values())
            why = self._alone(record, [each for each in teams if each is not None])
            if why:
                alone[name] = self._since.get(name, self.world.now)
                late = SUCCESSION if holder_of(record) in self.world.others else 0.0
                if self.world.now - alone[name] > late + TAKEOVER + self.world.scenario.admission:
                    detail = f"is cordoned in {record.get('phase', 'no phase')}"
                    self.broken(f"Node {name}", f"{detail} for {self.world.now - alone[name]:.0f} s: {why}")
        self._since = alone

    def _alone(self, record: dict[str, Any], teams: list[Team]) -> str:
        """Return why nobody is responsible though somebody could be, empty where all is well."""
        holder = holder_of(record)
        running = [each for team in teams for each in team.alive if not each.process.frozen]
        if not running or any(self.world.blind(each.name, self.world.now - TAKEOVER) for each in running):
            return ""
        dry = {name for team in teams for name in team.dry}
        if any(each.name == holder and holder not in dry for each in running):
            return ""
        if any(each.name == holder and not each.ended for each in self.world.simulation.replicas):
            return ""  # another installation's
        if all(each.name in dry for each in running):
            return "its controller is a dry run now"
        return f"{holder or 'nobody'} is gone, and {', '.join(each.name for each in running)} run{self.world.clocks()}"


def _touched(old: Json, node: Json) -> bool:
    """Whether a change is of more than a node's status."""
    notes = [each["metadata"].get("annotations") for each in (old, node)]
    return bool(old["spec"] != node["spec"] or notes[0] != notes[1])


@promise
class PersonsCordonStays(Promise):
    """A cordon that a person has put on a node is never lifted by us, and no pod is evicted from such a node."""

    name = "persons-cordon-stays"
    text = "No node that someone else cordoned is touched, and none is uncordoned."

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._cordoned: dict[str, tuple[float, str]] = {}

    def changed(self, change: Change, author: str) -> None:
        if change.object["kind"] != "Node":
            return
        name, node, old = change.object["metadata"]["name"], change.object, change.previous
        if change.type == "DELETED":
            self._cordoned.pop(name, None)
            return
        if author == "etcd" and owned(node):
            # An etcd without its last second has brought our cordon back, and theirs is lost.
            self._cordoned.pop(name, None)
        was, now = old is not None and cordoned(old), cordoned(node)
        if not was and now and (author == PERSON or (change.type == "ADDED" and not ours(author))):
            drained = "during a drain of ours" if drain_of(node).get("phase") in OWNING else "while no drain was on it"
            drained = "just after a drain of ours" if has_taint(node, DRAINING) and not owned(node) else drained
            recent = self.world.records(name, self.world.now - 15)
            if any(each.get("phase") in OWNING for each in recent) and not owned(node):
                drained = "just after a drain of ours"
            self._cordoned[name] = self.world.now, drained
        elif was and not now:
            found = self._cordoned.pop(name, None)
            if found is not None and ours(author):
                when = f"{self.world.sent - found[0]:.1f} s ago, {found[1]}"
                self.broken(f"Node {name}", f"{author} lifted the cordon that a person put on it {when}")

    def evicted(self, eviction: Eviction) -> None:
        name = eviction.pod["spec"].get("nodeName", "")
        found = self._cordoned.get(name)
        if found is not None and eviction.sent > found[0] + NOTICED and not self.world.blind(eviction.by, found[0]):
            when = f"{eviction.sent - found[0]:.1f} s ago, {found[1]}"
            self.broken(f"Node {name}", f"{eviction.by} evicted {eviction.name}; a person cordoned the node {when}")


@promise
class PersonsUncordonStays(Promise):
    """Who uncordons a node of ours in mid-drain is obeyed: it isn't cordoned again for as long as `holdOff` says."""

    name = "persons-uncordon-stays"
    text = "A person who uncordons a node of ours is obeyed for hours."

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._held: dict[str, tuple[float, float]] = {}

    def changed(self, change: Change, author: str) -> None:
        if change.object["kind"] != "Node":
            return
        name, old = change.object["metadata"]["name"], change.previous
        if change.type != "MODIFIED" or old is None:
            self._held.pop(name, None)
            return
        was, now = cordoned(old), cordoned(change.object)
        record = owned(old)
        if was and not now and author == PERSON and record.get("phase") in ("Claimed", "Evicting", "Drained"):
            team = self.world.team(str(record.get("controller")))
            held = seconds((team.settings if team else {}).get("holdOff", "200s")) if team else 0.0
            self._held[name] = self.world.now, held
        elif author == PERSON and drain_of(old) and drain_of(change.object) != drain_of(old):
            # Who takes the note off as well, or writes over it, lets the node be tried at once: only the note knows.
            self._held.pop(name, None)
        elif not was and now:
            found = self._held.get(name)
            if author in (PERSON, "etcd"):
                self._held.pop(name, None)
            elif found is not None and ours(author) and self.world.sent > found[0] and self.world.skewed < 10:
                ago = self.world.now - found[0]
                if ago < found[1] - 10:
                    detail = f"{ago:.1f} s after a person uncordoned it, {found[1]:g} s must pass"
                    self.broken(f"Node {name}", f"{author} cordoned it {detail}")


@promise
class LeftToAutoscaler(Promise):
    """On a node that Cluster Autoscaler takes away nothing is evicted or begun; its cordon goes only at release."""

    name = "left-to-autoscaler"
    text = "No node that Cluster Autoscaler or Karpenter is taking away is kept from them."
    who: ClassVar[str] = "the autoscaler"

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._since: dict[str, float] = {}

    def changed(self, change: Change, author: str) -> None:
        if change.object["kind"] != "Node":
            return
        node, old, name = change.object, change.previous, change.object["metadata"]["name"]
        since = self._since.get(name)
        if change.type == "DELETED" or not self.taken(node):
            self._since.pop(name, None)
        elif since is None:
            self._since[name] = self.world.now
        elif ours(author) and old is not None:
            if cordoned(old) and not cordoned(node):
                if str(drain_of(node).get("reason") or "").startswith("Released"):
                    # Who writes no more gives back all: nobody would lift our cordon if they let go of the node.
                    return
                detail = "" if drain_of(old) else "; its record can't be read"
                self.broken(f"Node {name}", f"{author} uncordoned it while {self.who} was taking it away{detail}")
            elif not owned(old) and owned(node):
                self.broken(f"Node {name}", f"{author} claimed it while {self.who} was taking it away")

    def evicted(self, eviction: Eviction) -> None:
        name = eviction.pod["spec"].get("nodeName", "")
        since = self._since.get(name)
        if since is not None and eviction.sent > since + NOTICED and not self.world.blind(eviction.by, since):
            when = f"{eviction.sent - since:.1f} s after the mark of {self.who}"
            self.broken(f"Node {name}", f"{eviction.by} evicted {eviction.name} {when}")

    def taken(self, node: Json) -> bool:
        """Whether they are taking *node* away."""
        return has_taint(node, TO_BE_DELETED)


@promise
class LeftToHandler(LeftToAutoscaler):
    """The same on a node that a termination handler has marked."""

    name = "left-to-handler"
    text = "Nothing is evicted from a node, and no cordon is lifted, while a termination handler has the node"
    who = "a termination handler"

    def taken(self, node: Json) -> bool:
        return terminating(node)
