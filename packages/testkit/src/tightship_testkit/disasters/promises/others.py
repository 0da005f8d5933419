"""What others own stays as it is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tightship_simulator.api.store import Change
from tightship_testkit.disasters.landings import map_of, policy_of
from tightship_testkit.disasters.promises.base import Json, Promise, ours
from tightship_testkit.disasters.promises.landings import pod_write
from tightship_testkit.disasters.promises.reading import COST, COST_MARK, whose
from tightship_testkit.disasters.promises.reading import annotations as notes_of
from tightship_testkit.disasters.registry import promise

OURS = "tightship.dev/"
_MAY_WRITE = frozenset({"Node", "Lease", "Event", "HorizontalPodAutoscaler"})


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
        elif kind not in _MAY_WRITE and not (kind == "Deployment" and change.type == "MODIFIED"):
            # What may be changed of a Deployment is a promise of its own: restarted-once.
            self.broken(f"{kind} {name}", f"{author} wrote it")

    def _pod(self, change: Change, author: str, name: str) -> None:
        old = change.previous
        if old is None:
            self.broken(f"Pod {name}", f"{author} wrote it")
            return
        if wrong := pod_write(old, change.object):
            self.broken(f"Pod {name}", f"{author} changed {wrong}")
        for part in ("labels", "finalizers", "ownerReferences"):
            if old["metadata"].get(part) != change.object["metadata"].get(part):
                self.broken(f"Pod {name}", f"{author} changed its {part}")
        if wrong := _cost_write(ours(author), notes_of(old), notes_of(change.object)):
            self.broken(f"Pod {name}", f"{author} {wrong}")

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


def _cost_write(program: str, old: Mapping[str, str], new: Mapping[str, str]) -> str:
    """Return what is wrong with how *program* changed the annotations of a pod, empty where it may.

    It may write a deletion cost beside its mark on a pod that has neither, and take off what it has written.
    """
    changed = {key for key in old.keys() | new.keys() if old.get(key) != new.get(key)}
    if not changed:
        return ""
    if other := sorted(changed - {COST, COST_MARK}):
        return f"changed its annotation {other[0]}"
    if COST_MARK in new:
        if changed & old.keys() or not costs_of(program, new):
            return f"made {dict(old)} of its annotations {dict(new)}"
        return ""
    mark, cost = old.get(COST_MARK, ""), old.get(COST_MARK, "").partition("=")[2]
    if whose(mark) != program or (COST in changed and (COST in new or old[COST] != cost)):
        return f"took the deletion cost of somebody else: {dict(old)}"
    return ""


def costs_of(program: str, notes: Mapping[str, str]) -> bool:
    """Whether the mark of a cost in *notes* is of *program*, and fits the cost."""
    mark = notes[COST_MARK]
    return whose(mark) == program and mark.partition("=")[2] == notes.get(COST)


_COUNTED = ("resourceVersion", "generation", "managedFields")
"""What the API server itself keeps up to date in the metadata."""


def _differences(old: Json, new: Json) -> Iterator[tuple[str, Any, Any]]:
    if old.get("status") != new.get("status"):
        yield "status", "...", "..."
    before, after = old.get("metadata") or {}, new["metadata"]
    for part in sorted(before.keys() | after.keys()):
        if part in ("annotations", "labels"):
            was, now = before.get(part) or {}, after.get(part) or {}
            for key in sorted(was.keys() | now.keys()):
                if not key.startswith(OURS) and was.get(key) != now.get(key):
                    yield f"{part.removesuffix('s')} {key}", was.get(key), now.get(key)
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
