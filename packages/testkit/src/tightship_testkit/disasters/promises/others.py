"""What others own stays as it is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tightship_simulator.api.store import Change
from tightship_testkit.disasters.landings import map_of, policy_of
from tightship_testkit.disasters.promises.base import Json, Promise, ours
from tightship_testkit.disasters.promises.landings import pod_write
from tightship_testkit.disasters.registry import promise

OURS = "tightship.dev/"
_MAY_WRITE = frozenset({"Node", "Lease", "Event", "HorizontalPodAutoscaler", "EvictionRequest"})


@promise
class NothingOfOthersChanged(Promise):
    """Holds each write of a controller against what it may write: its own annotations and taints, and the cordon."""

    name = "nothing-of-others-changed"
    text = "No taint, label or annotation of others is changed."

    def changed(self, change: Change, author: str) -> None:
        if not ours(author):
            return
        kind, name = change.object["kind"], change.object["metadata"]["name"]
        if kind == "Node":
            for path, old, new in _differences(change.previous or {}, change.object):
                self.broken(f"Node {name}", f"{author} changed {path} from {old!r} to {new!r}")
        elif kind == "Pod":
            self._pod(change, author, name)
        elif kind == "PodDisruptionBudget":
            # The API server charges the budget of an eviction in the name of who asks for it.
            if change.previous is None or change.previous.get("spec") != change.object.get("spec"):
                self.broken(f"{kind} {name}", f"{author} wrote it")
        elif kind == "ConfigMap":
            self._map(change, author, name)
        elif kind not in _MAY_WRITE:
            self.broken(f"{kind} {name}", f"{author} wrote it")

    def _pod(self, change: Change, author: str, name: str) -> None:
        old = change.previous
        if old is None:
            self.broken(f"Pod {name}", f"{author} wrote it")
            return
        if wrong := pod_write(self.world.team(ours(author)), old, change.object):
            self.broken(f"Pod {name}", f"{author} changed {wrong}")
        for part in ("labels", "annotations", "finalizers", "ownerReferences"):
            if old["metadata"].get(part) != change.object["metadata"].get(part):
                self.broken(f"Pod {name}", f"{author} changed its {part}")

    def _map(self, change: Change, author: str, name: str) -> None:
        team, old, new = self.world.team(ours(author)), change.previous, change.object
        mine = team is not None and team.controller.landings is not None and name == map_of(team.controller)
        if not mine or old is None or change.type == "DELETED":
            self.broken(f"ConfigMap {name}", f"{author} {change.type.lower()} it")
            return
        for path, was, now in _differences(old, new):
            self.broken(f"ConfigMap {name}", f"{author} changed {path} from {was!r} to {now!r}")
        if policy_of(old) != policy_of(new):
            self.broken(f"ConfigMap {name}", f"{author} changed its policy")


_COUNTED = ("resourceVersion", "generation", "managedFields")
"""What the API server itself keeps up to date in the metadata."""


def _differences(old: Json, new: Json) -> Iterator[tuple[str, Any, Any]]:
    if old.get("status") != new.get("status"):
        yield "status", "...", "..."
    before, after = old.get("metadata") or {}, new["metadata"]
    for part in sorted(before.keys() | after.keys()):
        if part == "annotations":
            was, now = before.get(part) or {}, after.get(part) or {}
            for key in sorted(was.keys() | now.keys()):
                if not key.startswith(OURS) and was.get(key) != now.get(key):
                    yield f"annotation {key}", was.get(key), now.get(key)
        elif part not in _COUNTED and before.get(part) != after.get(part):
            yield f"metadata.{part}", before.get(part), after.get(part)
    was, now = old.get("spec") or {}, new.get("spec") or {}
    for part in sorted(was.keys() | now.keys()):
        if part == "taints":
            theirs = [
                [each for each in spec.get(part) or [] if not each["key"].startswith(OURS)] for spec in (was, now)
            ]
            if theirs[0] != theirs[1]:
                yield "taints", theirs[0], theirs[1]
        elif part != "unschedulable" and was.get(part) != now.get(part):
            yield f"spec.{part}", was.get(part), now.get(part)
