"""The evictionrequest-controller of KEP-4563 and the eviction responders of pods. Pure.

Kubernetes 1.37 serves the API without the controller; this one does what the API's documentation says of it. It makes
no Eviction objects, since only responders read those.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from msgspec import Struct

from tightship_simulator.life.changes import (
    Change,
    Delete,
    Evict,
    Json,
    Look,
    Patch,
    finished,
    leaving,
    uid_of,
    with_condition,
)

HEARTBEAT = 1200.0
"""Seconds without a word from a responder after which the next one's turn comes."""

_AGAIN = 15.0
"""Seconds between two evictions by the last responder, which uses the eviction API."""


class Responder(Struct, frozen=True):
    """Deletes a pod *after* seconds; a *silent* one reports nothing meanwhile."""

    after: float = math.inf
    silent: bool = False


class _Turn(Struct):
    """Which responder's turn it is, since when, and when the eviction API may next be used."""

    number: int
    since: float
    again: float = 0.0


class EvictionRequests:
    """Has the *responders*, by name, see to the pods that requests name. An unknown one is silent for ever.

    *canceled* has the uids of the pods whose requests were withdrawn while the pods were there.
    """

    def __init__(self, responders: Mapping[str, Responder]) -> None:
        self.due = math.inf
        self.canceled: list[str] = []
        self._responders = responders
        self._turns: dict[str, _Turn] = {}

    def step(self, look: Look, now: float, at: str) -> list[Change]:
        """Return what becomes of requests and pods at *now* (seconds)."""
        pods = {uid_of(pod): pod for pod in look("Pod") if not finished(pod)}
        requests = {each["spec"]["target"]["pod"]["uid"]: each for each in look("EvictionRequest")}
        wanted = {uid for uid, each in requests.items() if each["spec"]["intent"] == "Eviction"}
        self.canceled += [uid for uid in self._turns if uid in pods and uid not in wanted]
        self._turns = {uid: turn for uid, turn in self._turns.items() if uid in wanted}
        self.due = math.inf
        changes: list[Change] = []
        for uid in sorted(wanted):
            if "observedGeneration" not in (requests[uid].get("status") or {}):
                changes.append(_observed(requests[uid], at))
            pod = pods.get(uid)
            if pod is not None and not leaving(pod):
                changes += self._respond(pod, self._turns.setdefault(uid, _Turn(0, now)), now)
        return changes

    def _respond(self, pod: Json, turn: _Turn, now: float) -> list[Change]:
        asked = sorted(pod["spec"].get("evictionResponders") or (), key=lambda each: -int(each["priority"]))
        while turn.number < len(asked):
            known = self._responders.get(asked[turn.number]["name"], Responder(silent=True))
            ends = turn.since + (min(known.after, HEARTBEAT) if known.silent else known.after)
            if now < ends:
                self.due = min(self.due, ends)
                return []
            if now >= turn.since + known.after:
                return [Delete(pod)]
            turn.number, turn.since = turn.number + 1, ends
        if now < turn.again:
            self.due = min(self.due, turn.again)
            return []
        turn.again = self.due = now + _AGAIN
        return [Evict(pod)]


def _observed(request: Json, at: str) -> Patch:
    conditions = with_condition(request, "TargetEvicted", "False", at, reason="AwaitingEviction", message="")
    status = {"observedGeneration": request["metadata"]["generation"], "conditions": conditions}
    return Patch(request, {"status": status}, status=True)


__all__ = ["HEARTBEAT", "EvictionRequests", "Responder"]
