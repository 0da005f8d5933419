"""Another installation of a controller, which came second: it leaves alone what the first one holds."""

from __future__ import annotations

from typing import Any, ClassVar

from tightship_simulator.api.store import Change
from tightship_testkit.disasters.promises.base import Promise
from tightship_testkit.disasters.registry import promise

INSTALLATIONS = "tightship.dev/installations"
LOST = 60.0
"""Seconds after the loss of the list in which the order of installations may be another one."""
_WRITES = frozenset({"Lease", "Event"})


@promise
class InstallationsApart(Promise):
    """As long as the first one is on the list, the second writes nothing but Leases and Events, and evicts nobody."""

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
        self.broken(f"{thing['kind']} {thing['metadata']['name']}", f"{author} wrote it, and {program} runs elsewhere")


def _notes(thing: dict[str, Any] | None) -> dict[str, str]:
    return ((thing or {}).get("metadata") or {}).get("annotations") or {}
