"""What the audit log says of our controllers: whom they evicted, what they wrote on nodes, and over whose head."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import accumulate

from tightship_testkit.audit import AuditEvent
from tightship_testkit.client import Json
from tightship_testkit.marks import OWNING, STEERING, TAINT, drain, taints


def evictions_by(events: Iterable[AuditEvent], user: str) -> dict[str, int]:
    """Return how often each pod's eviction was granted to *user*, by namespace and name, from the audit log."""
    found: dict[str, int] = defaultdict(int)
    for event in events:
        ref = event.object_ref
        if event.user.username == user and ref.subresource == "eviction" and event.code == 201:
            found[f"{ref.namespace}/{ref.name}"] += 1
    return dict(found)


@dataclass(frozen=True)
class NodeWrite:
    """A write of a node as the API server answered it: when, by whom, and the node after it, None when deleted."""

    at: str
    user: str
    name: str
    node: Json | None
    received: str = ""

    @property
    def seconds(self) -> float:
        """The time in seconds since 1970."""
        return datetime.fromisoformat(self.at).timestamp()

    @property
    def asked(self) -> float:
        """When it was asked for, in seconds since 1970: what a pause counts from is a moment before."""
        return datetime.fromisoformat(self.received).timestamp()

    @property
    def drain(self) -> Json:
        """The drain annotation after it."""
        return drain(self.node) if self.node is not None else {}


def node_writes(events: Iterable[AuditEvent]) -> list[NodeWrite]:
    """Return the writes of nodes that succeeded, but for those of their status, in the order in which they were stored.

    The log has their answers, any of which may be held up. A deletion comes after what was stored before it was asked
    for.
    """
    stored: list[NodeWrite] = []
    deleted: list[NodeWrite] = []
    for event in events:
        ref = event.object_ref
        if ref.resource != "nodes" or ref.subresource or event.code not in (200, 201):
            continue
        if event.verb == "delete":
            deleted.append(NodeWrite(event.request_received_timestamp, event.user.username, ref.name, None))
        elif event.verb in ("patch", "update"):
            node = json.loads(bytes(event.response_object))
            received = event.request_received_timestamp
            stored.append(NodeWrite(event.stage_timestamp, event.user.username, ref.name, node, received))
    stored.sort(key=_version)
    # None was stored later than the answer to one of a later version.
    times = [*accumulate((each.at for each in reversed(stored)), min)][::-1]
    placed = [*zip(times, stored, strict=True), *((each.at, each) for each in deleted)]
    return [write for _, write in sorted(placed, key=lambda each: each[0])]


def most_in_drain(events: Iterable[AuditEvent]) -> int:
    """Return how many nodes were in drain at once at most, from what the API server says it has stored."""
    in_drain: set[str] = set()
    last: dict[str, str] = {}
    gone: set[str] = set()
    most = 0
    for each in node_writes(events):
        if each.node is None:
            gone |= {last[each.name]} if each.name in last else set()
        else:
            last[each.name] = uid = each.node["metadata"].get("uid", "")
            if uid in gone:
                continue  # answered after its deletion was asked for, and so carried out before it
        (in_drain.add if each.drain.get("phase") in OWNING else in_drain.discard)(each.name)
        most = max(most, len(in_drain))
    return most


def claims_made(events: Iterable[AuditEvent]) -> list[NodeWrite]:
    """Return the writes that began a drain."""
    begun: dict[str, NodeWrite] = {}
    for each in node_writes(events):
        if each.drain.get("phase") == "Claimed":
            begun.setdefault(each.drain["op"], each)
    return list(begun.values())


def quarrels(events: Iterable[AuditEvent], controllers: Mapping[str, str]) -> list[str]:
    """Return what one of *controllers* (names by user) has done to what is another's, from the audit log.

    A node in drain and its cordon are that controller's who drains it. A mark goes with its node's drain, whoever
    drains it, and else with who wrote it; a soft taint goes with who put it there.
    """
    wrong: list[str] = []
    last: dict[str, Json] = {}
    for each in node_writes(events):
        before, own = last.get(each.name), controllers.get(each.user)
        if each.node is not None:
            last[each.name] = each.node
        if before is None or each.node is None or own is None:
            continue
        record, after = drain(before), drain(each.node)
        theirs = record.get("controller") not in (None, "", own)
        if theirs and record.get("phase") in OWNING and (_held(before) != _held(each.node)):
            wrong.append(f"{own} wrote {after} and cordon and taint of {each.name} over {record}")
        if theirs and record.get("phase") == "Marked" and after != record and after.get("phase") != "Claimed":
            wrong.append(f"{own} wrote {after} over the mark {record} of {each.name}")
        lost = _soft(before) - _soft(each.node) - {own}
        if lost:
            wrong.append(f"{own} took the soft taint of {', '.join(lost)} off {each.name}")
    return wrong


def _version(write: NodeWrite) -> int:
    return int(write.node["metadata"]["resourceVersion"]) if write.node is not None else 0


def _held(node: Json) -> tuple[Json, bool, list[Json]]:
    held = [each for each in taints(node) if each["key"] == TAINT]
    return drain(node), bool(node["spec"].get("unschedulable")), held


def _soft(node: Json) -> set[str]:
    return {each.get("value", "").partition(".")[0] for each in taints(node) if each["key"] == STEERING}


def forbidden(events: Iterable[AuditEvent], user: str) -> list[str]:
    """Return what *user* asked for and was not allowed, from the audit log."""
    return sorted(
        {f"{each.verb} {each.request_uri}" for each in events if each.user.username == user and each.code == 403}
    )


def held_back(events: Iterable[AuditEvent], user: str) -> list[str]:
    """Return what an admission policy refused to *user*, from the audit log."""
    refused = (each for each in events if each.user.username == user and each.code >= 400)
    return sorted(
        {f"{each.verb} {each.request_uri}" for each in refused if "AdmissionPolicy" in each.response_status.message}
    )


def mutating(events: Iterable[AuditEvent], user: str) -> list[str]:
    """Return what *user* wrote or tried to, from the audit log."""
    reads = {"get", "list", "watch"}
    return [f"{e.verb} {e.request_uri}: {e.code}" for e in events if e.user.username == user and e.verb not in reads]
