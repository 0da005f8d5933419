"""From raw Lists to plans, all gates off, and from plans to the plain data that the independent checker takes."""

from __future__ import annotations

import time
from typing import Any

import msgspec

from tightship.cluster import ClusterState, Snapshot
from tightship.objects import KINDS, decode
from tightship.objects.reasons import Refusal
from tightship.planning.plan import Candidate, Gates, Judgement, Plan, Planner
from tightship.rules.disruption import DisruptionLedger
from tightship.rules.evictability import Evictability, EvictionRules, Fate
from tightship.rules.nodes import judge_node
from tightship_simulator import Move, Removal

Json = dict[str, Any]

NOW = time.time()
"""Any time after the creation of generated and of loaded objects."""


class NoGates(Gates):
    """Gates of a controller that asks for nothing."""

    def refuses(self, candidate: Candidate, planner: Planner) -> list[Refusal]:  # noqa: ARG002
        return []


def snapshot_of(cluster: Json) -> Snapshot:
    """Return the snapshot of a List."""
    state = ClusterState()
    for item in cluster["items"]:
        if item["kind"] in KINDS:
            state.upsert(item["kind"], decode(item["kind"], msgspec.json.encode(item)))
    return state.snapshot()


def judge(snapshot: Snapshot) -> Judgement:
    """Every node whose pods may all be evicted is a candidate, whatever its utilization."""
    evictability = Evictability(snapshot, EvictionRules(), NOW, DisruptionLedger(snapshot).covers)
    candidates: list[Candidate] = []
    refusals: dict[str, tuple[Refusal, ...]] = {}
    for name, view in snapshot.nodes.items():
        verdicts = [(pod, evictability.judge(pod)) for pod in view.pods]
        found = [*judge_node(view, NOW), *(refusal for _, verdict in verdicts for refusal in verdict.refusals)]
        if found:
            refusals[name] = tuple(found)
            continue
        evict = tuple(pod for pod, verdict in verdicts if verdict.fate is Fate.EVICT)
        cpu = view.node.allocatable["cpu"]
        ratio = view.usage.requested.get("cpu", 0) / cpu
        stays = len(verdicts) - len(evict)
        candidates.append(Candidate(name=name, pool="", ratio=ratio, evict=evict, stays=stays))
    return Judgement(tuple(candidates), refusals, NoGates())


def plain(plan: Plan) -> list[Removal]:
    """Return the plan as the checker takes it."""
    return [
        Removal(each.node, tuple(Move(move.pod.key, move.target) for move in each.moves), each.round)
        for each in plan.removals
    ]
