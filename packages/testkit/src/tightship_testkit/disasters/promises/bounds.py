"""Whose bounds an HPA's are: what the controller may write, and that its user gets their own back."""

from __future__ import annotations

import json
from typing import Any

from tightship_simulator.api.store import Change
from tightship_testkit.disasters.floors.ledger import RELEASE, SCALER, Track, bounds, is_controllers, state_of
from tightship_testkit.disasters.floors.market import HPA
from tightship_testkit.disasters.floors.spec import PREFIX, STATE
from tightship_testkit.disasters.floors.wishes import enabled
from tightship_testkit.disasters.promises.base import Asked, Json, Promise
from tightship_testkit.disasters.registry import promise
from tightship_testkit.disasters.world import World

_RACE = 40.0
"""Seconds within which a write may be by what stood there before somebody's edit."""
_OURS = {"minReplicas", "maxReplicas"}
_READ = 90.0
"""Seconds for which a write may go by what was read."""


class Written(Promise):
    """Gives each write to an HPA by the controller, or by its command, to :meth:`written`."""

    about = "floors"

    def changed(self, change: Change, author: str) -> None:
        market = self.world.market
        if market is None or change.object["kind"] != HPA or not is_controllers(author):
            return
        if change.previous is None or change.type == "DELETED":
            self.broken(change.object["metadata"]["name"], f"{author or 'release'}: {change.type.lower()}")
            return
        if author == RELEASE and _only_status(change.previous, change.object):
            return  # by what lives in the cluster
        self.written(market.ledger.of(change.object), change.previous, change.object, author or "release")

    def written(self, track: Track, old: Json, new: Json, author: str) -> None:
        """Look at a write."""
        raise NotImplementedError


@promise
class OwnBoundsAreKept(Written):
    """Where a bound is not its user's own, the user's own is written beside it; given back, it is the last one."""

    name = "own-bounds-are-kept"
    text = "No user's floor is lost: the original is on the HPA before the first change, and comes back"

    def written(self, track: Track, old: Json, new: Json, author: str) -> None:
        del old
        least, most = bounds(new)
        text = state_of(new)
        if text is None:
            wanted = (min(track.given), track.given[1])
            if (least, most) != wanted:
                self.broken(track.name, f"{author} gave back {least} and {most}, its user's own were {wanted}")
            return
        state = _read(text)
        for key, value, own in (("originalMin", least, track.own[0]), ("originalMax", most, track.own[1])):
            if value != own and state.get(key) != own:
                restored = self.world.now - track.restored < _RACE
                self.broken(
                    f"{track.name}{' after etcd had lost a write' if restored else ''}",
                    f"{author} left {value}, and {key} {state.get(key)}, where its user's own is {own}",
                )

    def ended(self) -> None:
        market = self.world.market
        team = self.world.team(SCALER)
        if market is None or team is None or team.dry_run:
            return
        for hpa in self.world.store.list(HPA):
            track = market.ledger.of(hpa)
            if enabled(hpa) or not track.optin or self.world.now - track.edited < 2 * _RACE:
                continue
            if bounds(hpa) != (min(track.own), track.own[1]) and track.moves:
                self.broken(track.name, f"opted out, it has {bounds(hpa)}, and its user's own are {track.own}")
            elif state_of(hpa) is not None:
                self.broken(track.name, "opted out, it still carries the state annotation")


@promise
class NothingOverwritten(Written):
    """A write changes bounds and the state annotation only, and no bound that the process has not read as it was."""

    name = "nothing-overwritten"
    text = "No change that somebody else made to an HPA is overwritten, not even between two writes of its status."

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._read: dict[str, dict[tuple[str, int, int], float]] = {}

    def asked(self, request: Asked) -> None:
        if request.resource == "horizontalpodautoscalers" and request.verb in {"get", "list", "watch"}:
            seen = self._read.setdefault(request.by, {})
            for hpa in self.world.store.list(HPA):
                if request.name in ("", hpa["metadata"]["name"]):
                    seen[hpa["metadata"]["uid"], *bounds(hpa)] = self.world.now

    def written(self, track: Track, old: Json, new: Json, author: str) -> None:
        for path, was, now in _differences(old, new):
            self.broken(track.name, f"{author} changed {path} from {was!r} to {now!r}")
        team = self.world.team(SCALER)
        if author == "release" or (team is not None and team.controller.variables.get("WATCH_HPAS") == "true"):
            return
        read = self._read.get(author, {}).get((track.uid, *bounds(old)))
        if bounds(old) != bounds(new) and (read is None or self.world.now - read > _READ):
            self.broken(track.name, f"{author} overwrote {bounds(old)} by {bounds(new)}, without having read it")


@promise
class OnlyOursIsWritten(Written):
    """An HPA that was never opted in is not written to, nor one that asks for a dry run."""

    name = "only-ours-is-written"
    text = "No HPA without our annotation is written."

    def written(self, track: Track, old: Json, new: Json, author: str) -> None:
        if not track.optin:
            self.broken(track.name, f"{author} wrote to it, and it was never opted in")
        notes = old["metadata"].get("annotations") or {}
        settled = self.world.now - track.noted > _RACE
        if notes.get(f"{PREFIX}-dry-run") == "true" and enabled(old) and settled and author != "release":
            self.broken(track.name, f"{author} wrote to it, and it asks for a dry run")
        theirs = bounds(new) in (bounds(old), (min(track.given), track.given[1]))
        if not enabled(old) and settled and not theirs:
            self.broken(track.name, f"{author} set {bounds(new)} of one that is not opted in")


def _only_status(old: Json, new: Json) -> bool:
    notes = [each["metadata"].get("annotations") for each in (old, new)]
    return bool(old["spec"] == new["spec"] and notes[0] == notes[1])


def _read(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _differences(old: Json, new: Json) -> list[tuple[str, Any, Any]]:
    """Return what a write has changed that is not the controller's to change."""
    found: list[tuple[str, Any, Any]] = []
    ours_to_change = {"spec": _OURS, "metadata": {"annotations", "resourceVersion", "generation"}}
    for section, except_for in ours_to_change.items():
        found += [
            (f"{section}.{part}", old[section].get(part), new[section].get(part))
            for part in sorted((old[section].keys() | new[section].keys()) - except_for)
            if old[section].get(part) != new[section].get(part)
        ]
    before, after = old["metadata"], new["metadata"]
    was, now = before.get("annotations") or {}, after.get("annotations") or {}
    found += [
        (f"annotation {key}", was.get(key), now.get(key))
        for key in sorted((was.keys() | now.keys()) - {STATE})
        if was.get(key) != now.get(key)
    ]
    if old.get("status") != new.get("status"):
        found.append(("status", old.get("status"), new.get("status")))
    return found


__all__ = ["NothingOverwritten", "OnlyOursIsWritten", "OwnBoundsAreKept", "Written"]
