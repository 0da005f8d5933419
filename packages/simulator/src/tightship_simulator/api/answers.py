"""What goes back to a client: objects, lists and watch events in the form that it asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct

from tightship_simulator.api.events import as_new
from tightship_simulator.api.kinds import NEW_EVENTS, Kind
from tightship_simulator.api.requests import Selection
from tightship_simulator.api.tables import table
from tightship_simulator.api.versioned import Change

Json = dict[str, Any]

encode = msgspec.json.Encoder().encode

_REPEATED = ("kind", "apiVersion")


class Form(Struct, frozen=True):
    """How objects of a kind are shown: as they are, or as rows of a table with as much of each as *include* says."""

    kind: Kind
    now: datetime
    tabular: bool = False
    include: str = "Metadata"

    def one(self, thing: Json) -> Json:
        """Return one object."""
        if self.tabular:
            meta = {"resourceVersion": thing["metadata"]["resourceVersion"]}
            return table(self.kind.name, [thing], meta, self.now, self.include)
        return as_new(thing) if self.kind is NEW_EVENTS else thing

    def many(self, things: Sequence[Json], meta: Json) -> Json:
        """Return a list; its metadata stands before the items, which is what clients that read ahead go by."""
        if self.tabular:
            return table(self.kind.name, things, meta, self.now, self.include)
        shown = [as_new(each) for each in things] if self.kind is NEW_EVENTS else things
        # As from the real server, the items of a typed list don't repeat what they are.
        items = [{key: each[key] for key in each if key not in _REPEATED} for each in shown]
        return {
            "kind": f"{self.kind.name}List",
            "apiVersion": self.kind.group_version,
            "metadata": meta,
            "items": items,
        }

    def event(self, change: Change, selected: Selection) -> Json | None:
        """Return what a watch of *selected* tells of a change, ``None`` where that is nothing.

        An object that no longer matches is told as deleted, one that begins to as added.
        """
        before = change.previous is not None and selected.takes(change.previous)
        after = change.type != "DELETED" and selected.takes(change.object)
        if after:
            return {"type": "MODIFIED" if before else "ADDED", "object": self.one(change.object)}
        if before:
            return {"type": "DELETED", "object": self.one(change.object)}
        return None

    def bookmark(self, version: int, *, initial_end: bool = False) -> Json:
        """Return the event that says that nothing more happened up to *version*."""
        meta: Json = {"resourceVersion": str(version), "creationTimestamp": None}
        if initial_end:
            meta["annotations"] = {"k8s.io/initial-events-end": "true"}
        thing = {"kind": self.kind.name, "apiVersion": self.kind.group_version, "metadata": meta}
        if self.tabular:
            thing = table(self.kind.name, [], meta, self.now)
        return {"type": "BOOKMARK", "object": thing}


def form_of(kind: Kind, accept: str, query: Mapping[str, str], now: datetime) -> Form:
    """Return the form that an ``Accept`` header asks for first."""
    tabular = "as=Table" in accept.split(",", 1)[0]
    return Form(kind, now, tabular, query.get("includeObject", "Metadata"))
