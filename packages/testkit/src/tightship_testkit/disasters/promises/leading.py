"""One leader at a time: who was succeeded writes no more, and no controller takes another's drain."""

from __future__ import annotations

from typing import Any

from tightship_simulator.api.store import Change
from tightship_testkit.disasters.promises.base import Asked, Eviction, Promise, ours
from tightship_testkit.disasters.promises.reading import holder_of, owned
from tightship_testkit.disasters.registry import promise

_GUARDED = frozenset({"nodes", "horizontalpodautoscalers", "pods/eviction", "pods/status"})
"""What is written, and evicted, only by who leads when the request leaves."""
ON_ITS_WAY = 0.5
"""Seconds that a request takes at most from where it leaves."""


class _Term:
    def __init__(self, holder: str, since: float) -> None:
        self.holder = holder
        self.since = since
        self.wrote: float | None = None


@promise
class OneWriter(Promise):
    """Who was succeeded writes to no node or HPA, and evicts nothing, once its successor has written. Nor does it ask
    for that any more once another replica has the Lease, whatever the answer is.
    """

    name = "one-writer"
    text = "No two leaders that write. A leader that was asleep finds its writes refused."

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._terms: dict[str, list[_Term]] = {}

    def changed(self, change: Change, author: str) -> None:
        kind, name = change.object["kind"], change.object["metadata"]["name"]
        team = self.world.team(name) if kind == "Lease" else None
        here = team is not None and change.object["metadata"].get("namespace") == team.controller.namespace
        if here and change.type != "DELETED":
            holder = str((change.object.get("spec") or {}).get("holderIdentity") or "").rpartition("_")[0]
            terms = self._terms.setdefault(name, [])
            if author == "etcd":
                while terms and terms[-1].holder != holder:
                    terms.pop()
            if holder and (not terms or terms[-1].holder != holder):
                terms.append(_Term(holder, self.world.now))
        elif kind in ("Node", "HorizontalPodAutoscaler") and ours(author):
            self._wrote(author, f"{kind} {name}")

    def evicted(self, eviction: Eviction) -> None:
        self._wrote(eviction.by, f"Pod {eviction.name}")

    def asked(self, request: Asked) -> None:
        guarded = request.resource in _GUARDED or f"{request.resource}/{request.subresource}" in _GUARDED
        if not guarded or not request.writes or not ours(request.by):
            return
        terms = self._terms.get(ours(request.by), [])
        mine = [number for number, each in enumerate(terms) if each.holder == request.by]
        after = terms[mine[-1] + 1 :] if mine else []
        if after and after[0].since + ON_ITS_WAY < request.at:
            what = f"{request.by} asked to {request.verb} {request.resource}/{request.subresource or request.name}"
            detail = f"{after[0].holder} has the Lease since {request.at - after[0].since:.1f} s"
            self.broken(f"{request.resource} {request.name}", f"{what}, though {detail}")

    def _wrote(self, by: str, subject: str) -> None:
        terms, sent = self._terms.get(ours(by), []), self.world.sent
        mine = [number for number, each in enumerate(terms) if each.holder == by]
        if not mine:
            self.broken(subject, f"{by} wrote it, and has never led")
            return
        for each in terms[mine[-1] + 1 :]:
            if each.wrote is not None and each.wrote < sent:
                detail = f"{each.holder} leads since {sent - each.since:.1f} s and has written"
                self.broken(subject, f"{by} wrote it, though {detail}")
        if terms[mine[-1]].wrote is None:
            terms[mine[-1]].wrote = self.world.now


@promise
class LiveDrainLeftAlone(Promise):
    """A drain that a living replica drives is not taken by another controller."""

    name = "live-drain-left-alone"
    text = "Who is responsible stands on the node: a drain under way is its controller's."

    def changed(self, change: Change, author: str) -> None:
        if change.object["kind"] != "Node" or change.type != "MODIFIED" or not ours(author):
            return
        before, after = owned(change.previous or change.object), owned(change.object)
        if not before or before.get("controller") in (None, "", ours(author)):
            return
        if after.get("op") == before.get("op") and after.get("controller") == before.get("controller"):
            return
        holder = holder_of(before)
        team = self.world.team(str(before.get("controller")))
        if team is not None and any(each.name == holder and not each.process.frozen for each in team.alive):
            name = change.object["metadata"]["name"]
            self.broken(f"Node {name}", f"{author} took the drain that {holder} drives{self.world.clocks()}")
