"""The input of the report, whichever controller decided."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

from msgspec import Struct

from tightship.cluster import Snapshot
from tightship.documents.advice import AdviceEntry, AdviceSummary, GainEntry, NodeBundle
from tightship.documents.document import (
    API_VERSION,
    ExcessSummary,
    Generator,
    NodeEntry,
    PendingSummary,
    RefusalEntry,
    SettingsView,
    Share,
    Source,
)
from tightship.objects import Pod
from tightship.objects.reasons import Reason, Refusal
from tightship.objects.resources import Resources
from tightship.objects.times import rfc3339
from tightship.planning.facts import NodeFacts
from tightship.planning.plan import Forecast, Plan
from tightship.planning.utilization import Utilization


class Inputs(Struct, frozen=True):
    """A snapshot, its plan, and the contents of the document's head.

    *now* is in seconds since 1970. *held* says which planned nodes have to wait, and why. *costs* are what more
    would go without each reason, *bundles* what would free a node, by its name. *costliest* is the change of settings
    that would free most nodes.
    *pending* are the pods without a node. *as_if_unmanaged* is the plan as if Karpenter consolidated nothing.
    """

    generator: Generator
    source: Source
    settings: SettingsView
    snapshot: Snapshot
    facts: Mapping[str, NodeFacts]
    plan: Plan
    now: float
    forecast: Forecast | None = None
    warnings: tuple[str, ...] = ()
    excess: ExcessSummary | None = None
    held: Mapping[str, Refusal] = {}
    as_if_unmanaged: Plan | None = None
    costliest: AdviceEntry | None = None
    advice: AdviceSummary | None = None
    costs: Mapping[Reason, GainEntry] = {}
    bundles: Mapping[str, NodeBundle] = {}
    pending: PendingSummary | None = None

    @property
    def head(self) -> tuple[Literal["tightship.dev/v1"], Generator, Source, str, str, str, SettingsView]:
        """The fields of a :class:`~tightship.documents.document.NodeHead`, in their order."""
        plan, at = self.plan, rfc3339(self.now)
        return API_VERSION, self.generator, self.source, at, plan.strategy, plan.placement, self.settings


_IMPORTANCE = {reason: number for number, reason in enumerate(Reason)}


def by_importance(refusals: tuple[Refusal, ...]) -> list[Refusal]:
    """Sort the most important first: refusals of the node, of gates, of pods, of PDBs, and of room elsewhere."""
    return sorted(refusals, key=lambda each: (_IMPORTANCE[each.reason], each.subject, each.detail))


def importance(reason: str) -> int:
    """Return the rank of a reason's word, 0 the most important."""
    return _IMPORTANCE[Reason(reason)]


def refusal_entry(refusal: Refusal) -> RefusalEntry:
    """Return *refusal* for the document."""
    return RefusalEntry(refusal.reason.value, refusal.subject, refusal.detail, refusal.fix or None)


def share(requested: int, allocatable: int) -> Share:
    """Return a share with its ratio."""
    return Share(requested, allocatable, round(requested / allocatable, 4) if allocatable > 0 else None)


def share_of(utilization: Utilization, resource: str) -> Share:
    """Return the share of *resource* of one node."""
    return share(utilization.requested.get(resource, 0), utilization.allocatable.get(resource, 0))


_SHOWN_ALWAYS = frozenset({"cpu", "memory", "pods", "ephemeral-storage"})


def other_resources(amounts: Resources) -> list[str]:
    """Return the names of extended resources and huge pages in *amounts* that are not zero."""
    return sorted(name for name, amount in amounts.items() if amount and name not in _SHOWN_ALWAYS)


def extended_resources(nodes: Iterable[NodeEntry]) -> list[str]:
    """Return the names of the extended resources (GPUs and the like) of *nodes*, GPUs first."""
    names = {name for node in nodes for name in node.other if "/" in name}
    return sorted(names, key=lambda name: ("gpu" not in name, name))


def owner_of(pod: Pod) -> str | None:
    """Return ``Kind/name`` of the pod's controller."""
    return str(pod.owner) if pod.owner is not None else None
