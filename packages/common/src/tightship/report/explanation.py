"""The explanation of single nodes as a document; see :mod:`tightship.report.document` for the house rules of keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

from tightship.report.document import Decision, Generator, RefusalEntry, SettingsView, Share, Source

Fate = Literal["evict", "stays", "leaving"]
"""What a drain does with a pod: evicts it, leaves it to go with the node, or awaits it, as it is being deleted."""


class GateCheck(Struct, frozen=True, rename="camel"):
    """One gate of the controller with its numbers. *reason* is the word it refuses with, *fix* what would open it.

    In a document *fix* is empty where the gate is open.
    """

    name: str
    reason: str
    passed: bool
    detail: str
    fix: str = ""


class BudgetEntry(Struct, frozen=True, rename="camel"):
    """A PodDisruptionBudget that covers a pod, and what it allows now."""

    name: str
    rule: str
    allowed: int
    healthy: int
    wanted: int
    expected: int


class PodEntry(Struct, frozen=True, rename="camel"):
    """One pod of the node.

    *target* is where it goes in the plan, or could go if only this node were drained; ``null`` where it stays or has no
    place. *refusals* are those about this pod.
    """

    name: str
    owner: str | None
    phase: str
    ready: bool
    priority: int
    cpu_milli: int
    memory_bytes: int
    other: Mapping[str, int]
    fate: Fate
    target: str | None
    scheduler_target: str | None
    budgets: tuple[BudgetEntry, ...]
    refusals: tuple[RefusalEntry, ...]


class Change(Struct, frozen=True, rename="camel"):
    """A change, and the blockers (``Reason subject``) it removes."""

    change: str
    removes: tuple[str, ...]


class NodeDetail(Struct, frozen=True, rename="camel"):
    """Everything about one node.

    *changes* together free it; *without_change* are the blockers that no small change is known for. Both are empty
    for a node that the plan removes.
    """

    name: str
    pool: str
    created_at: str | None
    age_seconds: int | None
    ready: bool
    cordoned: bool
    labels: Mapping[str, str]
    taints: tuple[str, ...]
    decision: Decision
    order: int | None
    round: int | None
    removals: int
    utilization: Mapping[str, Share]
    gates: tuple[GateCheck, ...]
    refusals: tuple[RefusalEntry, ...]
    pods: tuple[PodEntry, ...]
    changes: tuple[Change, ...]
    without_change: tuple[str, ...]


class NodeExplanation(Struct, frozen=True, rename="camel", tag_field="kind", tag="NodeExplanation"):
    """Why each of some nodes goes or stays, of one cluster at one time."""

    api_version: Literal["tightship.dev/v1"]
    generator: Generator
    source: Source
    evaluated_at: str
    strategy: str
    placement: str
    settings: SettingsView
    nodes: tuple[NodeDetail, ...]
    warnings: tuple[str, ...]
