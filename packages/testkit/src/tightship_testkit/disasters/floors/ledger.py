"""What has happened to each HPA, and by whom: what the promises about floors look things up in."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from tightship_simulator.api.store import Change
from tightship_testkit.disasters.floors.spec import PREFIX, STATE
from tightship_testkit.disasters.floors.wishes import enabled

if TYPE_CHECKING:
    from tightship_testkit.disasters.world import World

Json = dict[str, Any]
SCALER = "hpa-scaler"
RELEASE = ""
"""The author of what ``hpa-scaler release`` writes: an administrator."""
ETCD = "etcd"
"""The author of what comes back from an earlier state."""
_KEPT = 120.0
"""Seconds for which replicas are remembered."""


class Move(Struct, frozen=True):
    """A change of an HPA's bounds, *before* and *after*: minReplicas and maxReplicas."""

    at: float
    author: str
    name: str
    uid: str
    before: tuple[int, int]
    after: tuple[int, int]
    hpa: Json
    """The HPA before."""


class Track:
    """One HPA, by its uid.

    *own* are its user's bounds: those of who set them last and was not the controller; *given* are those that they were
    when it was last given back. *edited* is when somebody else
    last changed its annotations, its bounds, or switched it off or on, *noted* is that without the bounds. *foreign*
    counts how often somebody else set a bound, ``hpa-scaler release`` too. *ours* is whether the controller set a bound
    last; *setbacks* counts how often somebody then set it back and the controller set it again, *setback* is when
    somebody last did.
    """

    def __init__(self, hpa: Json, at: float) -> None:
        self.name = str(hpa["metadata"]["name"])
        self.uid = str(hpa["metadata"]["uid"])
        self.own = self.given = bounds(hpa)
        self.made = self.edited = self.noted = at
        self.optin = enabled(hpa)
        self.ours = False
        self.foreign = 0
        self.set_back = False
        self.setbacks = 0
        self.setback = -1e9
        self.ousted = 0
        """The floor of the controller that somebody set back last."""
        self.restored = -1e9
        """When etcd last brought an earlier state of it back."""
        self.replicas: list[tuple[float, int]] = []
        self.moves: list[Move] = []
        """Those of the controller."""
        self.past: dict[str, tuple[tuple[int, int], bool]] = {}
        """Its user's own bounds and whether the controller had set one, by the version of the object."""


class Ledger:
    """Tracks of all HPAs, by uid, those deleted too; and when each term began and whose it is, in :attr:`terms`."""

    def __init__(self, world: World) -> None:
        self.tracks: dict[str, Track] = {}
        self.terms: list[tuple[float, str]] = []
        self._term = 0
        self._world = world
        world.store.listeners.append(self.changed)

    def of(self, hpa: Json) -> Track:
        """Return the track of an HPA."""
        return self.tracks[hpa["metadata"]["uid"]]

    def named(self, name: str) -> Track | None:
        """Return the track of the HPA that last had a name."""
        found = [each for each in self.tracks.values() if each.name == name]
        return found[-1] if found else None

    def new_term(self, begin: float, end: float) -> bool:
        """Whether a leader's term began in between."""
        return any(begin < at <= end for at, _ in self.terms)

    def led_since(self, author: str) -> float:
        """Return when the last term of a process began, before everything where it never led."""
        return max((at for at, by in self.terms if by == author), default=-math.inf)

    def changed(self, change: Change, author: str) -> None:
        """Take note of a change of the store."""
        hpa, now = change.object, self._world.now
        if hpa["kind"] == "Lease" and hpa["metadata"]["name"] == SCALER:
            term = int(hpa["spec"].get("leaseTransitions") or 0)
            if term != self._term:
                self._term = term
                self.terms.append((now, author))
        if hpa["kind"] != "HorizontalPodAutoscaler":
            return
        uid = hpa["metadata"]["uid"]
        track = self.tracks.get(uid)
        if track is None:
            track = self.tracks[uid] = Track(hpa, now)
        old = change.previous
        _note_replicas(track, hpa, now)
        if old is None or change.type == "DELETED":
            track.past[hpa["metadata"]["resourceVersion"]] = track.own, track.ours
            return
        track.optin |= enabled(hpa)
        version = hpa["metadata"]["resourceVersion"]
        if author == ETCD:
            # The object is as it was, and so are its user's own bounds.
            track.own, track.ours = track.past.get(version, (track.own, track.ours))
            track.edited = track.noted = track.restored = now
            return
        self._changed(track, change, author, now)
        track.past[version] = track.own, track.ours

    def _changed(self, track: Track, change: Change, author: str, now: float) -> None:
        hpa, old = change.object, change.previous
        assert old is not None
        if is_controllers(author):
            _moved_by_us(track, change, author, now)
            track.foreign += author == RELEASE and bounds(old) != bounds(hpa)
            return
        if _disabled(old) != _disabled(hpa) or _notes(old) != _notes(hpa):
            track.edited = track.noted = now
        if bounds(old) != bounds(hpa):
            track.own = (
                bounds(hpa)[0] if bounds(old)[0] != bounds(hpa)[0] else track.own[0],
                bounds(hpa)[1] if bounds(old)[1] != bounds(hpa)[1] else track.own[1],
            )
            track.edited = now
            track.foreign += 1
            if track.ours:
                track.set_back = True
                track.setback, track.ousted = now, bounds(old)[0]
            track.ours = False


def _moved_by_us(track: Track, change: Change, author: str, now: float) -> None:
    old, hpa = change.previous, change.object
    assert old is not None
    if state_of(hpa) is None:
        # Given back: a quarrel over it is over, but a controller that runs on remembers its own.
        track.set_back, track.setbacks = False, 0
        track.foreign = track.foreign if author == RELEASE else 0
        track.given, track.own = track.own, bounds(hpa)
    if bounds(old) == bounds(hpa):
        return
    track.moves.append(Move(now, author, track.name, track.uid, bounds(old), bounds(hpa), old))
    if state_of(hpa) is None:
        track.ours = False
        return
    track.ours = True
    if track.set_back:
        track.setbacks += 1
        track.set_back = False


def _note_replicas(track: Track, hpa: Json, now: float) -> None:
    replicas = (hpa.get("status") or {}).get("currentReplicas")
    if replicas is None or (track.replicas and track.replicas[-1][1] == replicas):
        return
    while len(track.replicas) > 1 and track.replicas[1][0] < now - _KEPT:
        track.replicas.pop(0)
    track.replicas.append((now, int(replicas)))


def is_controllers(author: str) -> bool:
    """Whether a write of *author* is one of the controller, or of its command."""
    return author == RELEASE or author.rpartition("-")[0] == SCALER


def bounds(hpa: Json) -> tuple[int, int]:
    """Return minReplicas and maxReplicas."""
    return int(hpa["spec"].get("minReplicas", 1)), int(hpa["spec"]["maxReplicas"])


def state_of(hpa: Json) -> str | None:
    """Return the state annotation, ``None`` where there is none."""
    found: str | None = (hpa["metadata"].get("annotations") or {}).get(STATE)
    return found


def _notes(hpa: Json) -> dict[str, str]:
    notes = hpa["metadata"].get("annotations") or {}
    return {key: text for key, text in notes.items() if key.startswith(PREFIX) and key != STATE}


def _disabled(hpa: Json) -> bool:
    conditions = (hpa.get("status") or {}).get("conditions") or ()
    return any(each["type"] == "ScalingActive" and each.get("reason") == "ScalingDisabled" for each in conditions)


__all__ = ["RELEASE", "SCALER", "Ledger", "Move", "Track", "bounds", "is_controllers", "state_of"]
