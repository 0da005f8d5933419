"""Another installation of a controller, which came second: it leaves alone what the first one holds."""

from __future__ import annotations

import json
from typing import Any, ClassVar

from tightship_simulator.api.store import Change
from tightship_testkit.disasters.landings import label_of
from tightship_testkit.disasters.promises.base import Promise
from tightship_testkit.disasters.promises.reading import cordoned, owned, taints
from tightship_testkit.disasters.registry import promise

INSTALLATIONS = "tightship.dev/installations"
LOST = 60.0
"""Seconds after the loss of the list in which the order of installations may be another one."""
_WRITES = frozenset({"Lease", "Event"})


@promise
class InstallationsApart(Promise):
    """As long as the first one drains all pools, the second writes nothing but Leases and Events, and evicts nobody.

    But for what it began while the first one was stopped: that it gives back.
    """

    name = "installations-apart"
    text = "No node changes hands between two live installations of one controller."
    about: ClassVar[str] = "nodes"

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._lost = -LOST

    def changed(self, change: Change, author: str) -> None:
        thing = change.object
        gone = change.type == "DELETED" or author == "etcd"
        if gone and thing["kind"] == "Lease" and INSTALLATIONS in _notes(change.previous):
            self._lost = self.world.now
        program = self.world.others.get(author)
        if program is None or thing["kind"] in _WRITES or self.world.now < self._lost + LOST:
            return
        if not self._drains(program) or _gives_back(change):
            return
        self.broken(f"{thing['kind']} {thing['metadata']['name']}", f"{author} wrote it, and {program} runs elsewhere")

    def _drains(self, program: str) -> bool:
        """Whether the first one drains all pools: of one that it has given up, the second may begin."""
        team = self.world.teams[program]
        lease = self.world.store.find("Lease", "tightship-claims", self.world.ledger(program))
        own = f"{team.controller.namespace}/{program}"
        listed = [each for each in json.loads(_notes(lease).get(INSTALLATIONS, "[]")) if each["lease"] == own]
        if not listed:
            # Whoever has left for good, as for a dry run, holds nothing any more.
            return any(each.name not in team.dry for each in team.alive)
        pools = listed[0].get("pools") or {}
        return bool(pools) and all(pools.values())


def _gives_back(change: Change) -> bool:
    """Whether a change of a node takes something of a controller off it, and puts nothing on it."""
    if change.object["kind"] != "Node" or change.previous is None:
        return False
    old, new = _taken(change.previous), _taken(change.object)
    return new != old and new - old <= {"Restoring", "Backoff"}


def _taken(node: dict[str, Any]) -> set[str]:
    """Return what controllers have on *node*: taints, a cordon, a label, and the phase of a drain."""
    found = {f"{each['key']}={each.get('value')}" for each in taints(node)}
    found |= {"cordon"} if cordoned(node) else set()
    found |= {f"label {label_of(node)}"} if label_of(node) is not None else set()
    return found | ({str(owned(node).get("phase"))} if owned(node) else set())


def _notes(thing: dict[str, Any] | None) -> dict[str, str]:
    return ((thing or {}).get("metadata") or {}).get("annotations") or {}
