"""Kubelets that take their time, the node's start, and the collection of pods whose node is gone. Pure.

A pod's or a node's time is told by its uid, between half and all of what the pace allows, so that the same cluster
lives the same life; a pod may say itself how long it takes to end.
"""

from __future__ import annotations

import math
import zlib

from msgspec import Struct

from tightship.objects.times import parse_duration
from tightship_simulator.life.changes import (
    Change,
    Delete,
    Json,
    Patch,
    condition,
    finished,
    leaving,
    ready,
    uid_of,
    with_condition,
)
from tightship_simulator.life.index import BOOTING, Index, in_order

EXIT_AFTER = "e2e.tightship.dev/exit-after"
"""Annotation of a pod: how long it takes to end, whatever its grace; kwok on the control plane heeds it too."""
STOPS_AFTER = "tightship-simulator/stops-after"
"""Annotation of a pod: for how many seconds it runs on when it is told to end, at most, if its grace lasts so long."""


class Pace(Struct, frozen=True):
    """Seconds until a bound pod is Ready, until one that is told to end has ended (at most), and until a node is up.

    *lost* is how long pods outlive their node, at most.
    """

    start: float = 6.0
    stop: float = 12.0
    boot: float = 50.0
    lost: float = 0.0


class Kubelets:
    """Remembers since when each pod starts or ends, and each node boots, in seconds of the clock it is given."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._since: dict[tuple[str, str], float] = {}
        self.due = math.inf
        """When the next thing that is under way comes to pass, by the clock of the steps."""

    def step(self, index: Index, now: float, at: str) -> list[Change]:
        """Return what has come to pass at *now* (seconds); *at* is the time that conditions bear, in RFC 3339."""
        changes: list[Change] = []
        self.due = math.inf
        waits: set[tuple[str, str]] = set()
        nodes = index.nodes
        for name in sorted(index.booting):
            if self._due(nodes[name], "boot", self._pace.boot, now, waits):
                changes += up(nodes[name], at)
        for pod in in_order(index.unsettled):
            place = pod["spec"].get("nodeName")
            if not place:
                if leaving(pod):
                    changes.append(Delete(pod, grace=0))
            elif place not in nodes:
                if not self._pace.lost or self._due(pod, "lost", self._pace.lost, now, waits):
                    changes.append(Delete(pod, grace=0))
            elif leaving(pod):
                if self._due(pod, "stop", self._ending(pod), now, waits):
                    changes.append(Delete(pod, grace=0))
            elif (
                not finished(pod)
                and not ready(pod)
                and ready(nodes[place])
                and self._due(pod, "start", self._pace.start, now, waits)
            ):
                changes.append(started(pod, at))
        self._since = {key: since for key, since in self._since.items() if key in waits}
        return changes

    def _due(self, item: Json, what: str, takes: float, now: float, waits: set[tuple[str, str]]) -> bool:
        key = (what, uid_of(item))
        since = self._since.setdefault(key, now)
        reported = what == "stop" and EXIT_AFTER in (item["metadata"].get("annotations") or {})
        share = 1.0 if reported else 0.5 + zlib.crc32(key[1].encode()) / 2**33
        if now - since >= takes * share:
            return True
        waits.add(key)
        self.due = min(self.due, since + takes * share)
        return False

    def _ending(self, pod: Json) -> float:
        meta = pod["metadata"]
        notes = meta.get("annotations") or {}
        if reported := notes.get(EXIT_AFTER):
            return parse_duration(reported)
        takes = float(notes.get(STOPS_AFTER, self._pace.stop))
        return min(takes, float(meta.get("deletionGracePeriodSeconds", 30)))


def started(pod: Json, at: str) -> Patch:
    """Return the status of a pod that runs and is Ready."""
    conditions = with_condition(pod, "Ready", "True", at)
    kept = {"status": {"phase": "Running", "startTime": at, "conditions": conditions}}
    return Patch(pod, kept, status=True)


def up(node: Json, at: str) -> list[Change]:
    """Return what a node changes when it has started: its condition, its taint and its label."""
    changes: list[Change] = []
    if condition(node, "Ready").get("status") != "True":
        conditions = with_condition(node, "Ready", "True", at, reason="KubeletReady")
        changes.append(Patch(node, {"status": {"conditions": conditions}}, status=True))
    taints = [
        taint
        for taint in (node.get("spec") or {}).get("taints") or ()
        if taint.get("key") != "node.kubernetes.io/not-ready"
    ]
    changes.append(Patch(node, {"metadata": {"labels": {BOOTING: None}}, "spec": {"taints": taints or None}}))
    return changes


__all__ = ["BOOTING", "EXIT_AFTER", "Kubelets", "Pace", "started", "up"]
