"""A what-if copy of a cluster's scheduling state, on which planners try, keep and undo moves.

The filters are kube-scheduler's default ones. A node is one column of the resource matrix; masks are numpy arrays in
node-name order. A journal records every change, so a failed attempt costs only its own undoing.

Constraints between pods, and what pods hold on nodes, are compiled and counted.

Topology spread constraints (``DoNotSchedule``) are those of kube-scheduler's ``PodTopologySpread``. The drained node
stays in the cluster, cordoned and soon empty, until the autoscaler deletes it. So the node remains a domain (a *ghost*)
unless the constraint honours taints that the pod does not tolerate (autoscaler#9287).

Required inter-pod affinity and anti-affinity filter both ways, as kube-scheduler's ``InterPodAffinity``:

* A pod's own anti-affinity terms exclude domains that hold a pod they match.
* Anti-affinity terms of placed pods exclude their domains for a pod they match.
* A pod's affinity terms want, in each term's domain, a pod that matches **all** of them. While no pod in the cluster
  does, a pod that matches its own terms may start the group on any node that has all the keys.

Filters and scores by a node's labels and taints are computed once for each distinct rule over all nodes.

On which nodes a pod's images run, kube-scheduler doesn't ask, but a wrong node refuses the pod or can't start it. The
kubelet refuses a pod whose ``spec.os`` or label ``kubernetes.io/os`` names another system (pkg/kubelet/lifecycle/
predicate.go). For what the pod does not say, what its workload shows counts: operating system, architecture and Windows
build of the nodes where its pods are Ready. A pod whose selector, affinity or tolerations name the label knows about
it, and goes where the scheduler lets it go.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from functools import cached_property

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from tightship.cluster import Anew, Snapshot
from tightship.cluster.node_marks import asks_for_virtual, fargate, virtual
from tightship.cluster.owners import owners_of
from tightship.objects import Namespace, Node, Pod, PodAffinityTerm, PodSpec, PodTemplate, TopologySpreadConstraint
from tightship.objects.devices import DEVICE_CLASS
from tightship.objects.pod import CORDON, DRAINING
from tightship.objects.reasons import Reason
from tightship.objects.resources import POD_COUNT, largest
from tightship.objects.selectors import (
    HARD_EFFECTS,
    SOFT_EFFECTS,
    Labels,
    LabelSelector,
    SelectorIndex,
    Taint,
    untolerated,
)
from tightship.scheduler.topology import DomainCounter, DomainSum, NodeMask, Tally, Topology, clear
from tightship.scheduler.volumes import NO_ATTACHMENTS, Attachments, VolumeIndex, VolumeUnknownError

OS = "kubernetes.io/os"
_LABELS: Mapping[str, tuple[str, str]] = {
    OS: ("beta.kubernetes.io/os", "operating system"),
    "kubernetes.io/arch": ("beta.kubernetes.io/arch", "architecture"),
    # Containers share the kernel's version with their host ("Windows container version compatibility").
    "node.kubernetes.io/windows-build": ("", "Windows build"),
}
"""The labels by which nodes tell, each with its older name and what it means."""

_Homes = Mapping[tuple[str, ...], frozenset[int]]


class Platforms:
    """The platforms of *nodes*, and those on which the workloads of *snapshot* are known to run."""

    def __init__(self, snapshot: Snapshot, nodes: Sequence[Node]) -> None:
        self._snapshot = snapshot
        self._columns = {
            label: [(node.labels.get(label) or node.labels.get(older, "")).lower() for node in nodes]
            for label, (older, _) in _LABELS.items()
        }
        self._mixed = [label for label, values in self._columns.items() if len({*values} - {""}) > 1]
        self.homes: _Homes = self._find_homes() if self._mixed else {}
        """By workload, the numbers of the nodes where its pods are Ready, or are at all if none is Ready."""

    def _find_homes(self) -> _Homes:
        ready: dict[tuple[str, ...], set[int]] = {}
        placed: dict[tuple[str, ...], set[int]] = {}
        known: dict[PodTemplate, tuple[str, ...]] = {}
        for column, view in enumerate(self._snapshot.nodes.values()):
            for pod in view.pods:
                if pod.template not in known:
                    known[pod.template] = self._workload(pod.template)
                (ready if pod.ready else placed).setdefault(known[pod.template], set()).add(column)
        return {name: frozenset(columns) for name, columns in {**placed, **ready}.items()}

    def _workload(self, template: PodTemplate) -> tuple[str, ...]:
        above = owners_of(template, self._snapshot.workloads)
        return above[-1] if above else ("", "", str(id(template)))

    def others(self, template: PodTemplate) -> Iterator[tuple[str, str, NodeMask]]:
        """Yield the nodes where pods of *template* can't run: the label, "operating system windows", and which."""
        spec = template.spec
        named = spec.os or template.labels.get(OS, "")
        if not self._mixed and not named:
            return
        homes = self.homes.get(self._workload(template), frozenset()) if self._mixed else frozenset()
        for label in [OS, *(each for each in self._mixed if each != OS)] if named else self._mixed:
            values = self._columns[label]
            if label == OS and named:
                fits = {named}
            elif _names(spec, (label, _LABELS[label][0])):
                continue
            else:
                fits = {values[column] for column in homes}
                if not homes and label == OS:
                    fits = {"linux"}  # of a pod that never ran; hardly anybody leaves a Windows pod unmarked
                if not fits or "" in fits:
                    continue
            for value in sorted({*values} - fits - {""}):
                nodes = np.array([each == value for each in values], dtype=np.bool_)
                yield label, f"{_LABELS[label][1]} {value}", nodes

    def split(self, template: PodTemplate, nodes: NodeMask) -> tuple[NodeMask, NodeMask | None]:
        """Return those of *nodes* where pods of *template* can run, and the others; ``None`` without any."""
        able = nodes
        for _, _, mask in self.others(template):
            able = able & ~mask
        return (able, nodes & ~able) if able is not nodes and (nodes & ~able).any() else (nodes, None)


def _names(spec: PodSpec, labels: tuple[str, str]) -> bool:
    """Whether rules of the pod name one of *labels*."""
    terms = spec.node_affinity.node_selector_terms if spec.node_affinity is not None else ()
    named = {each.key for term in terms for each in term.match_expressions or ()}
    named.update(spec.node_selector, (each.key for each in spec.tolerations if each.key))
    return not named.isdisjoint(labels)


class NodeFilters:
    """Masks and counts over *nodes* for ``NodeAffinity``, ``TaintToleration`` and ``NodeDeclaredFeatures``."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._nodes = nodes
        self._masks: dict[tuple[object, ...], NodeMask] = {}
        self._counts: dict[tuple[str, object], NDArray[np.int64]] = {}
        self._soft_taints = any(taint.effect in SOFT_EFFECTS for node in nodes for taint in node.taints)
        self._virtual = self._virtual_ones()

    def _virtual_ones(self) -> tuple[NodeMask, NodeMask] | None:
        """Return the virtual nodes, and those of Fargate: each has the one pod that it was made for."""
        found = np.array([virtual(node) is not None for node in self._nodes], dtype=np.bool_)
        return (found, np.array([*map(fargate, self._nodes)], dtype=np.bool_)) if found.any() else None

    def selected(self, spec: PodSpec) -> NodeMask:
        """Return the nodes that the pod's node selector and required node affinity allow."""
        wanted, affinity = spec.node_selector, spec.node_affinity
        key = ("selected", tuple(sorted(wanted.items())), affinity)
        found = self._masks.get(key)
        if found is None:
            found = np.ones(len(self._nodes), dtype=np.bool_)
            if wanted or affinity is not None:
                for column, node in enumerate(self._nodes):
                    labels = node.labels
                    found[column] = all(labels.get(name) == value for name, value in wanted.items()) and (
                        affinity is None or affinity.matches(node.name, labels)
                    )
            self._masks[key] = found
        return found

    def tolerated(self, spec: PodSpec) -> NodeMask:
        """Return the nodes without a taint that excludes the pod."""
        key = ("tolerated", spec.tolerations)
        found = self._masks.get(key)
        if found is None:
            found = np.array(
                [
                    not node.taints or untolerated(node.taints, spec.tolerations, HARD_EFFECTS) is None
                    for node in self._nodes
                ],
                dtype=np.bool_,
            )
            self._masks[key] = found
        return found

    def declared(self, spec: PodSpec) -> NodeMask:
        """Return the nodes that declare every feature the pod needs."""
        key = ("declared", spec.features)
        found = self._masks.get(key)
        if found is None:
            has_all = [set(spec.features) <= set(node.features) for node in self._nodes]
            found = self._masks[key] = np.array(has_all, dtype=np.bool_)
        return found

    def unasked(self, spec: PodSpec) -> NodeMask | None:
        """Return the virtual nodes to which nobody wants the pod sent, whatever kube-scheduler thinks; ``None`` if the
        cluster has none.
        """
        return None if self._virtual is None else self._virtual[asks_for_virtual(spec)]

    def static(self, spec: PodSpec) -> NodeMask:
        """Return the nodes that are selected and tolerated, and declare the features; virtual ones if asked for."""
        selector = tuple(sorted(spec.node_selector.items()))
        key = ("static", selector, spec.node_affinity, spec.tolerations, spec.features)
        found = self._masks.get(key)
        if found is None:
            found = self.selected(spec) & self.tolerated(spec)
            found = found if (virtual := self.unasked(spec)) is None else found & ~virtual
            found = self._masks[key] = found & self.declared(spec) if spec.features else found
        return found

    def soft_taints(self, spec: PodSpec, but: Taint | None = None) -> NDArray[np.int64] | None:
        """Return how many ``PreferNoSchedule`` taints of each node, *but* that one, the pod does not tolerate.

        The value of *but* is a controller; the taint of any of its installations is that one. ``None`` if all are 0.
        """
        if not self._soft_taints:
            return None
        tolerations = spec.tolerations
        found = self._counts.get(("soft", (tolerations, but)))
        if found is None:
            counts = [
                sum(
                    not _is(taint, but) and untolerated((taint,), tolerations, SOFT_EFFECTS) is not None
                    for taint in node.taints
                )
                for node in self._nodes
            ]
            found = self._counts["soft", (tolerations, but)] = np.array(counts, dtype=np.int64)
        return found

    def preferences(self, spec: PodSpec) -> NDArray[np.int64] | None:
        """Return the summed weights of the pod's preferred node affinity on each node; ``None`` if it has none."""
        preferred = spec.preferred_nodes
        if not preferred:
            return None
        found = self._counts.get(("preferred", preferred))
        if found is None:
            weights = [
                sum(each.weight for each in preferred if each.preference.matches(node.name, node.labels))
                for node in self._nodes
            ]
            found = self._counts["preferred", preferred] = np.array(weights, dtype=np.int64)
        return found


def _is(taint: Taint, but: Taint | None) -> bool:
    if but is None or (taint.key, taint.effect) != (but.key, but.effect):
        return False
    return (taint.value or "").partition(".")[0] == but.value


class AffinityTerm(Struct, frozen=True):
    """A term with its namespaces resolved; ``None`` stands for all namespaces."""

    topology_key: str
    selector: LabelSelector | None
    namespaces: frozenset[str] | None

    def matches(self, template: PodTemplate) -> bool:
        """Whether the term selects pods of *template*; an absent selector selects none."""
        if self.namespaces is not None and template.namespace not in self.namespaces:
            return False
        return self.selector is not None and self.selector.matches(template.labels)


class NamespacesUnknownError(Exception):
    """A term selects namespaces by label, but namespaces are unreadable."""


def resolve(term: PodAffinityTerm, own: str, namespaces: Mapping[str, Namespace] | None) -> AffinityTerm:
    """Return *term* of a pod in namespace *own* with its namespaces as a set.

    Raises :class:`NamespacesUnknownError` if the term selects by namespace labels and *namespaces* is ``None``.
    """
    selector = term.namespace_selector
    names = frozenset(term.namespaces or ())
    if selector is None:
        return AffinityTerm(term.topology_key, term.label_selector, names or frozenset({own}))
    if selector.empty:
        return AffinityTerm(term.topology_key, term.label_selector, None)
    if namespaces is None:
        raise NamespacesUnknownError
    selected = {name for name, namespace in namespaces.items() if selector.matches(namespace.labels)}
    return AffinityTerm(term.topology_key, term.label_selector, names | selected)


class AffinityGroup(Struct, eq=False):
    """All affinity terms of one pod. The counters count pods that match every term."""

    terms: tuple[AffinityTerm, ...]
    counters: tuple[DomainCounter, ...]

    def counts(self, template: PodTemplate) -> bool:
        """Whether the group counts pods of *template*."""
        return all(term.matches(template) for term in self.terms)

    def add(self, node: int, step: int) -> None:
        for counter in self.counters:
            counter.add(node, step)

    @property
    def nowhere(self) -> bool:
        """Whether no domain of any term holds a counted pod."""
        return not any(counter.counts for counter in self.counters)


class AntiAffinityTerm(Struct, eq=False):
    """One anti-affinity term, with the places of pods that it matches and of pods that hold it."""

    term: AffinityTerm
    matching: DomainSum
    holding: DomainSum


class _Excluding:
    """Pods whose domains of one topology are excluded: all in the lists *parts*, which grow only as *shared* does."""

    __slots__ = ("_known", "_parts", "_shared", "_tallies", "topology")

    def __init__(self, topology: Topology, parts: Sequence[list[Tally]], shared: Sized) -> None:
        self.topology = topology
        self._parts = parts
        self._shared = shared
        self._known, self._tallies = -1, tuple[Tally, ...]()

    def tallies(self) -> tuple[Tally, ...]:
        """Return the counts of the pods, each once: applications that exclude each other do so by two terms."""
        known = len(self._shared)
        if known != self._known:
            self._known = known
            self._tallies = tuple(dict.fromkeys(tally for part in self._parts for tally in part))
        return self._tallies


class AffinityRules(Struct, frozen=True):
    """The affinity rules that concern a template, shared with all templates that the same terms concern.

    *tallies* count the pods of these templates by topology, once for all their anti-affinity terms: there may be
    dozens, and a plan counts far more often than it asks. *excluding* are such counts of others.
    """

    own: tuple[AntiAffinityTerm, ...] = ()
    """Terms that the template holds."""
    against: tuple[AntiAffinityTerm, ...] = ()
    """Terms, its own or others', that match the template."""
    group: AffinityGroup | None = None
    joins: tuple[AffinityGroup, ...] = ()
    """Groups that count its pods."""
    starts_group: bool = False
    excluding: tuple[_Excluding, ...] = ()
    tallies: tuple[Tally, ...] = ()

    @property
    def excluded(self) -> int | None:
        """The nodes that other pods take from one of the template, as bits; ``None`` if it excludes larger domains."""
        nodes = 0
        for each in self.excluding:
            if not each.topology.lone:
                return None
            for tally in each.tallies():
                nodes |= tally.nodes
        return nodes

    def restrict(self, mask: NodeMask) -> None:
        """Clear *mask* on nodes that a pod of the template may not use."""
        nodes = self.excluded
        if nodes is not None:
            clear(mask, nodes)
        else:
            for each in self.excluding:
                each.topology.forbid(mask, [domain for tally in each.tallies() for domain in tally.counts])
        group = self.group
        if group is None:
            return
        anywhere = self.starts_group and group.nowhere
        for counter in group.counters:
            topology = counter.topology
            mask &= topology.labelled if anywhere else topology.union(list(counter.counts), len(mask))

    def allows(self, node: int) -> bool:
        """Whether a pod of a template that wants no companion may use *node*."""
        for each in self.excluding:
            domain = each.topology.domain_of[node]
            if any(domain in tally.counts for tally in each.tallies()):
                return False
        return True

    @property
    def node_local(self) -> bool:
        """Whether pods of the template concern others only on their own nodes, by these rules."""
        alone = all(each.topology.lone for each in self.tallies)
        return alone and not self.joins and self.group is None

    def add(self, node: int, step: int) -> None:
        """Count *step* pods of the template on *node*."""
        for tally in self.tallies:
            tally.add(node, step)
        for group in self.joins:
            group.add(node, step)


_NO_RULES = AffinityRules()


class AffinityIndex:
    """All terms that any template of a space holds, with their counters."""

    def __init__(
        self,
        templates: Iterable[PodTemplate],
        namespaces: Mapping[str, Namespace] | None,
        topologies: Mapping[str, Topology],
    ) -> None:
        self._topologies = topologies
        self._anti: dict[AffinityTerm, AntiAffinityTerm] = {}
        self._groups: dict[tuple[AffinityTerm, ...], AffinityGroup] = {}
        self._own: dict[PodTemplate, tuple[AntiAffinityTerm, ...]] = {}
        self._group_of: dict[PodTemplate, AffinityGroup] = {}
        self._shared: dict[tuple[int, ...], AffinityRules] = {}
        self.unknown: set[PodTemplate] = set()
        self._names = namespaces
        for template in templates:
            self._register(template)
        self._anti_by: SelectorIndex[AntiAffinityTerm] = SelectorIndex()
        for anti in self._anti.values():
            for name in _namespaces(anti.term):
                self._anti_by.add(name, anti.term.selector, anti)
        self._group_by: SelectorIndex[AffinityGroup] = SelectorIndex()
        for group in self._groups.values():
            for name in _namespaces(group.terms[0]):
                self._group_by.add(name, group.terms[0].selector, group)

    def taken(self) -> dict[Tally, int]:
        """Return on which nodes each count of pods has some now, as bits."""
        return {tally: tally.nodes for rules in self._shared.values() for tally in rules.tallies}

    @property
    def empty(self) -> bool:
        """Whether no pod holds any term, so that nothing needs counting."""
        return not self._anti and not self._groups

    def rules(self, template: PodTemplate) -> AffinityRules:
        """Return the rules of the registered terms for *template*."""
        if self.empty:
            return _NO_RULES
        against = self._anti_by.find(template.namespace, template.labels)
        joins = [each for each in self._group_by.find(template.namespace, template.labels) if each.counts(template)]
        own, group = self._own.get(template, ()), self._group_of.get(template)
        if not (against or joins or own or group):
            return _NO_RULES
        concern = (id(group), *(id(each) for terms in (own, against, joins) for each in (*terms, None)))
        found = self._shared.get(concern)
        if found is None:
            starts = group is not None and group.counts(template)
            found = _rules(own, tuple(against), group, tuple(joins), self._shared, starts_group=starts)
            self._shared[concern] = found
        return found

    def _register(self, template: PodTemplate) -> None:
        """Take in the terms that *template* holds."""
        spec = template.spec
        if not spec.anti_affinity and not spec.affinity:
            return
        if spec.anti_affinity:
            self._own[template] = tuple(self._anti_term(self._resolved(term, template)) for term in spec.anti_affinity)
        if spec.affinity:
            terms = tuple(self._resolved(term, template) for term in spec.affinity)
            self._group_of[template] = self._group(terms)

    def _resolved(self, term: PodAffinityTerm, template: PodTemplate) -> AffinityTerm:
        try:
            return resolve(term, template.namespace, self._names)
        except NamespacesUnknownError:
            # The plan refuses the pod itself. Its anti-affinity is assumed to reach every namespace.
            self.unknown.add(template)
            return AffinityTerm(term.topology_key, term.label_selector, None)

    def _anti_term(self, term: AffinityTerm) -> AntiAffinityTerm:
        found = self._anti.get(term)
        if found is None:
            topology = self._topologies[term.topology_key]
            found = self._anti[term] = AntiAffinityTerm(term, DomainSum(topology), DomainSum(topology))
        return found

    def _group(self, terms: tuple[AffinityTerm, ...]) -> AffinityGroup:
        found = self._groups.get(terms)
        if found is None:
            counters = tuple(DomainCounter(self._topologies[term.topology_key]) for term in terms)
            found = self._groups[terms] = AffinityGroup(terms, counters)
        return found


def _rules(
    own: tuple[AntiAffinityTerm, ...],
    against: tuple[AntiAffinityTerm, ...],
    group: AffinityGroup | None,
    joins: tuple[AffinityGroup, ...],
    shared: Sized,
    *,
    starts_group: bool,
) -> AffinityRules:
    """Return rules with counts of their own, which their terms take into account once *shared* has them."""
    excluded: dict[Topology, list[list[Tally]]] = {}
    raised: dict[Topology, Tally] = {}
    mutual = [*((anti.matching, anti.holding) for anti in own), *((anti.holding, anti.matching) for anti in against)]
    for theirs, ours in mutual:
        excluded.setdefault(theirs.topology, []).append(theirs.parts)
        ours.parts.append(raised.setdefault(ours.topology, Tally(ours.topology)))
    return AffinityRules(
        own,
        against,
        group,
        joins,
        starts_group,
        excluding=tuple(_Excluding(topology, sums, shared) for topology, sums in excluded.items()),
        tallies=tuple(raised.values()),
    )


def _namespaces(term: AffinityTerm) -> Iterable[str | None]:
    return (None,) if term.namespaces is None else sorted(term.namespaces)


def topology_keys(templates: Sequence[PodTemplate]) -> set[str]:
    """Return every topology key in the constraints of *templates*."""
    keys: set[str] = set()
    for template in templates:
        spec = template.spec
        for tied in (spec.affinity, spec.anti_affinity, spec.spread):
            for each in tied:
                keys.add(each.topology_key)
    return keys


class SpreadCounter:
    """Counts the pods of one constraint by domain, over the nodes that the constraint considers.

    A domain counts as soon as it has one eligible node, even without pods: the global minimum is over all such domains.
    """

    def __init__(
        self, template: PodTemplate, constraint: TopologySpreadConstraint, topology: Topology, eligible: NodeMask
    ) -> None:
        self.topology = topology
        self._namespace = template.namespace
        self._selector = constraint.label_selector
        self._also = {key: template.labels[key] for key in constraint.match_label_keys or () if key in template.labels}
        self._max_skew = constraint.max_skew
        self._min_domains = constraint.min_domains or 1
        self._self = 1 if self._selects(template.labels) else 0
        self.counts_cordoned = constraint.node_taints_policy != "Honor" or all(
            untolerated((taint,), template.spec.tolerations, HARD_EFFECTS) is None for taint in (CORDON, DRAINING)
        )
        self._eligible = eligible
        self._shut: set[int] = set()
        self._on_node: dict[int, int] = {}
        self._counts: dict[int, int] = {}
        self._nodes_in: list[int] = topology.nodes_in(eligible).tolist()
        self._domains = sum(1 for nodes in self._nodes_in if nodes)

    def matches(self, template: PodTemplate) -> bool:
        """Whether the counter counts pods of *template*; in the scheduler an empty selector counts none."""
        if template.namespace != self._namespace or self._selector is None:
            return False
        if self._selector.empty and not self._also:
            return False
        return self._selects(template.labels)

    def add(self, node: int, step: int) -> None:
        """Count *step* more pods on *node*."""
        self._on_node[node] = self._on_node.get(node, 0) + step
        if self._eligible[node]:
            self._count(self.topology.domain_of[node], step)

    def close(self, node: int, sign: int = 1) -> None:
        """Cordon *node*, or, with *sign* -1, undo that."""
        if self.counts_cordoned or not self.topology.labelled[node]:
            return
        domain = self.topology.domain_of[node]
        if sign > 0 and self._eligible[node]:
            self._shut.add(node)
            self._eligible[node] = False
            self._nodes_in[domain] -= 1
            self._domains -= self._nodes_in[domain] == 0
            self._count(domain, -self._on_node.get(node, 0))
        elif sign < 0 and node in self._shut:
            # Only a node that a cordon took away comes back: the constraint does not consider other nodes.
            self._shut.remove(node)
            self._eligible[node] = True
            self._domains += self._nodes_in[domain] == 0
            self._nodes_in[domain] += 1
            self._count(domain, self._on_node.get(node, 0))

    def restrict(self, mask: NodeMask) -> None:
        """Clear *mask* on nodes where one more pod of the template would exceed the skew."""
        mask &= self.topology.labelled
        ceiling = self._max_skew - self._self + self._minimum()
        if ceiling < 0:
            mask[:] = False
            return
        self.topology.forbid(mask, [domain for domain, count in self._counts.items() if count > ceiling])

    def _minimum(self) -> int:
        # _counts lacks domains without counted pods, so a shorter _counts means that the minimum is zero.
        if self._domains < self._min_domains or len(self._counts) < self._domains:
            return 0
        return min(self._counts.values(), default=0)

    def _count(self, domain: int, step: int) -> None:
        count = self._counts.get(domain, 0) + step
        if count:
            self._counts[domain] = count
        else:
            self._counts.pop(domain, None)

    def _selects(self, labels: Labels) -> bool:
        selector: LabelSelector | None = self._selector
        if selector is None or not selector.matches(labels):
            return False
        return all(labels.get(key) == value for key, value in self._also.items())


class SpreadRules(Struct, frozen=True):
    """The spread rules of one template: its own constraints, and the counters that count its pods."""

    own: tuple[SpreadCounter, ...] = ()
    joins: tuple[SpreadCounter, ...] = ()


def eligible_nodes(
    template: PodTemplate,
    constraint: TopologySpreadConstraint,
    nodes: list[Node],
    keyed: NodeMask,
    selected: NodeMask,
) -> NodeMask:
    """Return the nodes that *constraint* considers.

    *keyed* marks nodes with all topology keys of the pod's constraints, *selected* nodes that its node selector and
    node affinity allow. ``nodeAffinityPolicy`` defaults to Honor, ``nodeTaintsPolicy`` to Ignore (KEP-3094).
    """
    eligible = keyed & selected if constraint.node_affinity_policy != "Ignore" else keyed.copy()
    if constraint.node_taints_policy == "Honor":
        tolerations = template.spec.tolerations
        for index in np.flatnonzero(eligible).tolist():
            if untolerated(nodes[index].taints, tolerations, HARD_EFFECTS) is not None:
                eligible[index] = False
    return eligible


class SpreadIndex:
    """The counters of all constraints that *templates* hold, over *nodes*; *topologies* are by topology key."""

    def __init__(
        self,
        templates: Iterable[PodTemplate],
        nodes: list[Node],
        filters: NodeFilters,
        topologies: Mapping[str, Topology],
    ) -> None:
        self._nodes = nodes
        self._filters = filters
        self._topologies = topologies
        self.own = {template: self._counters(template) for template in templates if template.spec.spread}
        """The counters of each template's own constraints."""
        self._by_selector: SelectorIndex[SpreadCounter] = SelectorIndex()
        for template, counters in self.own.items():
            for counter, constraint in zip(counters, template.spec.spread, strict=True):
                self._by_selector.add(template.namespace, constraint.label_selector, counter)
        self._without_cordoned = [
            each for counters in self.own.values() for each in counters if not each.counts_cordoned
        ]

    def joins(self, template: PodTemplate) -> tuple[SpreadCounter, ...]:
        """Return the counters that count pods of *template*."""
        near = self._by_selector.find(template.namespace, template.labels)
        return tuple(counter for counter in near if counter.matches(template))

    def close(self, node: int, sign: int) -> None:
        """Cordon *node* for every constraint, or, with *sign* -1, undo that."""
        for counter in self._without_cordoned:
            counter.close(node, sign)

    def _counters(self, template: PodTemplate) -> tuple[SpreadCounter, ...]:
        keyed = np.ones(len(self._nodes), dtype=np.bool_)
        for constraint in template.spec.spread:
            keyed &= self._topologies[constraint.topology_key].labelled
        selected = self._filters.selected(template.spec)
        return tuple(
            SpreadCounter(
                template,
                constraint,
                self._topologies[constraint.topology_key],
                eligible_nodes(template, constraint, self._nodes, keyed, selected),
            )
            for constraint in template.spec.spread
        )


class PodDemand(Struct, frozen=True, eq=False):
    """The demand of one pod on a node, compiled for a space. Replicas of a template share it."""

    template: PodTemplate
    rows: tuple[tuple[int, int], ...]
    """(row of the matrix, amount) of every requested resource."""
    scoring: NDArray[np.float64]
    """A column of milli-CPU and bytes, as kube-scheduler's scoring assumes them."""
    requested: NDArray[np.float64] | None
    """A column of the milli-CPU and bytes that are requested, ``None`` without any."""
    scored: tuple[tuple[int, int], ...]
    """(row of :attr:`Space.scored`, what such a pod adds)."""
    static: NodeMask
    """Nodes that labels, taints and the reach of volumes allow."""
    hardness: tuple[int, float]
    """Where pods stand in the order of placing, the hardest first: pods that few nodes allow, pods tied to others, the
    rest; larger requests first."""
    affinity: AffinityRules
    spread: SpreadRules
    attachments: Attachments
    plain: bool
    """Whether *rows* and *static* decide alone."""
    unknown: tuple[Reason, str] | None
    """Why placement can't judge the pod."""
    node_local: bool
    """Whether such a pod affects only the node it runs on."""
    strays: NodeMask | None = None
    """Nodes where kube-scheduler would let the pod go although it can't run there; see :class:`Platforms`."""


UsedPorts = dict[tuple[str, int], dict[int, list[str]]]
"""By protocol and port: the addresses for which each node's pods use that port."""

_Counted = tuple[AffinityRules | None, tuple[SpreadCounter, ...]]
"""What counts the pods of one template but for its ports and volumes."""

_UNCOUNTED: _Counted = (None, ())

_Tied = tuple[AffinityRules | None, tuple[SpreadCounter, ...], Attachments]
"""What counts the pods of one template."""


class Constraints:
    """The constraints of the pods of a space over its *nodes*, with counters that follow every move.

    *templates* are those of all pods of *snapshot*, bound or not.
    """

    def __init__(
        self, snapshot: Snapshot, nodes: list[Node], filters: NodeFilters, templates: Sequence[PodTemplate]
    ) -> None:
        self._snapshot = snapshot
        self._ports: UsedPorts = {}
        self.volumes = VolumeIndex(snapshot, nodes)
        topologies = {key: Topology(key, nodes) for key in sorted(topology_keys(templates))}
        known = None if "Namespace" in snapshot.missing else snapshot.namespaces
        self._affinity = AffinityIndex(templates, known, topologies)
        self._spread = SpreadIndex(templates, nodes, filters, topologies)
        self._counted: dict[PodTemplate, _Counted] = {}
        self._tied: dict[PodTemplate, _Tied] = {}
        for template in templates:
            self._count_by(template)
        for column, view in enumerate(snapshot.nodes.values() if self._tied else ()):
            self._count(view.pods, column, 1)

    def _count_by(self, template: PodTemplate) -> None:
        affinity, spread = self._counted[template] = self._count_rules(template)
        attachments = self.volumes.attachments(template) if template.spec.volumes else NO_ATTACHMENTS
        if affinity is not None or spread or attachments is not NO_ATTACHMENTS or template.spec.host_ports:
            self._tied[template] = (affinity, spread, attachments)

    def _count(self, pods: Iterable[Pod], column: int, step: int) -> None:
        """Count *step* more bound pods like each of *pods*."""
        known = self._tied
        for pod in pods:
            tied = known.get(pod.template)
            if tied is None:
                continue
            affinity, spread, attachments = tied
            if affinity is not None:
                affinity.add(column, step)
            if spread and pod.deletion is None:
                for counter in spread:
                    counter.add(column, step)
            if pod.template.spec.host_ports:
                self._use_ports(pod.template.spec, column, step)
            if attachments is not NO_ATTACHMENTS:
                self.volumes.add(column, attachments, step, shared=pod.deletion is None)

    def _count_rules(self, template: PodTemplate) -> _Counted:
        rules = self._affinity.rules(template)
        idle = not (rules.own or rules.against or rules.joins)
        joins = self._spread.joins(template)
        return _UNCOUNTED if idle and not joins else (None if idle else rules, joins)

    # Of one template

    def rules(self, template: PodTemplate) -> tuple[AffinityRules, SpreadRules]:
        """Return the rules that concern pods of *template*."""
        rules, joins = self._counted.get(template) or self._count_rules(template)
        return rules or self._affinity.rules(template), SpreadRules(self._spread.own.get(template, ()), joins)

    def unknown(self, template: PodTemplate) -> tuple[Reason, str] | None:
        """Return why placement can't judge pods of *template*, whatever their volumes."""
        spec = template.spec
        if spec.claims_devices:
            missing = self._snapshot.missing.get(DEVICE_CLASS)
            why = "there is no DeviceClass" if missing is None else f"{DEVICE_CLASS} objects are {missing}"
            return Reason.RESOURCE_CLAIMS, spec.devices_unknown or f"requests devices by resource claims, and {why}"
        if template in self._affinity.unknown:
            why = self._snapshot.missing.get("Namespace", "not read")
            return (
                Reason.UNKNOWN_NAMESPACE_LABELS,
                f"selects namespaces by label, but namespaces are unknown ({why})",
            )
        return None

    # Judging and changing

    def taken(self) -> tuple[dict[Tally, int], UsedPorts]:
        """Return on which nodes each count of affinity has pods now, as bits, and which host ports are used."""
        ports = {port: {node: [*used] for node, used in nodes.items()} for port, nodes in self._ports.items()}
        return self._affinity.taken(), ports

    def restrict(self, mask: NodeMask, demand: PodDemand) -> None:
        """Clear *mask* on nodes that constraints forbid."""
        demand.affinity.restrict(mask)
        for counter in demand.spread.own:
            counter.restrict(mask)
        restrict_ports(mask, demand, self._ports)
        if demand.attachments is not NO_ATTACHMENTS:
            self.volumes.restrict(mask, demand.attachments)

    def restrict_all(self, masks: NDArray[np.bool_], demands: Sequence[PodDemand]) -> None:
        """Clear in each of *masks* the nodes that constraints forbid to the demand of the same number."""
        size = (masks.shape[1] + 7) // 8
        packed: list[bytes] = []
        for mask, demand in zip(masks, demands, strict=True):
            nodes = 0 if demand.plain else demand.affinity.excluded
            if nodes is None or not demand.node_local or demand.template.spec.host_ports:
                self.restrict(mask, demand)
            packed.append((nodes or 0).to_bytes(size, "little"))
        bits = np.frombuffer(b"".join(packed), dtype=np.uint8).reshape(len(demands), size)
        masks &= np.unpackbits(bits, axis=1, count=masks.shape[1], bitorder="little") == 0

    def allows(self, demand: PodDemand, node: int) -> bool:
        """Whether *node* is none of those that :meth:`restrict` clears, for a demand that is node-local."""
        if not demand.affinity.allows(node):
            return False
        ports = demand.template.spec.host_ports
        return not any(_taken(ip, self._ports.get((protocol, port), {}).get(node, ())) for ip, protocol, port in ports)

    def close(self, node: int, sign: int) -> None:
        """Cordon *node*, or, with *sign* -1, undo that."""
        self._spread.close(node, sign)

    def change(self, demand: PodDemand, node: int, step: int) -> None:
        """Count *step* more pods with *demand* on *node*."""
        demand.affinity.add(node, step)
        for counter in demand.spread.joins:
            counter.add(node, step)
        if demand.template.spec.host_ports:
            self._use_ports(demand.template.spec, node, step)
        if demand.attachments is not NO_ATTACHMENTS:
            self.volumes.add(node, demand.attachments, step)

    def _use_ports(self, spec: PodSpec, node: int, step: int) -> None:
        for ip, protocol, port in spec.host_ports:
            used = self._ports.setdefault((protocol, port), {}).setdefault(node, [])
            if step > 0:
                used.append(ip)
            elif ip in used:
                used.remove(ip)


def restrict_ports(mask: NodeMask, demand: PodDemand, ports: UsedPorts) -> None:
    """Clear *mask* on nodes where a host port that *demand* needs is among the used *ports*."""
    for ip, protocol, port in demand.template.spec.host_ports:
        for node, used in ports.get((protocol, port), {}).items():
            if _taken(ip, used):
                mask[node] = False


def _taken(ip: str, used: Sequence[str]) -> bool:
    """Whether one of the addresses *used* for a port excludes *ip*; an empty one stands for all."""
    return any(not ip or not other or ip == other for other in used)


CPU, MEMORY, PODS = 0, 1, 2
"""Rows of the resource matrix in every space; other resources follow in name order."""

UNLIMITED = 2**62


class Saved(Struct, frozen=True):
    """The state of a space when its journal had *mark* entries."""

    mark: int
    next_start: int
    open: NodeMask
    free: NDArray[np.int64]
    scored: NDArray[np.float64]


class Space:
    """The scheduling state of a snapshot. ``open[i]`` says whether node *i* may receive pods."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.nodes: list[Node] = [view.node for view in snapshot.nodes.values()]
        self.names = [node.name for node in self.nodes]
        self.index = {name: number for number, name in enumerate(self.names)}
        self.open: NodeMask = np.array([self._receives(node, snapshot) for node in self.nodes], dtype=np.bool_)
        templates = self._templates()
        self._rows = self._resource_rows(templates)
        self.capacity: NDArray[np.int64] = np.zeros((len(self._rows), len(self.nodes)), dtype=np.int64)
        for column, node in enumerate(self.nodes):
            for name, amount in node.allocatable.items():
                self.capacity[self._rows[name], column] = min(amount, UNLIMITED)
        self.known: NDArray[np.float64] = np.maximum(self.capacity[: MEMORY + 1], 1).astype(np.float64)
        """The capacity of CPU and memory as a divisor: at least 1."""
        self.kinds: NDArray[np.int64] = np.maximum((self.capacity[: MEMORY + 1] > 0).sum(axis=0), 1)
        """How many of CPU and memory each node has, as a divisor."""
        self.free = self.capacity.copy()
        self.scored: NDArray[np.float64] = np.zeros((4, len(self.nodes)))
        """milli-CPU and bytes that are not requested, as kube-scheduler's scoring assumes them, then those that are."""
        self.scored[:2] = self.capacity[: MEMORY + 1]
        self.next_start = 0
        """Where the modelled scheduler continues to look for feasible nodes."""
        self.leaving: NodeMask | None = None
        self.leaving_taint: Taint | None = None
        """Nodes about to go, which pods should avoid; the soft taint that tells kube-scheduler so, if there is one."""
        self.tolerating: dict[tuple[PodDemand, Taint], bool] = {}
        """What pods are known to tolerate of the taint of nodes about to go."""
        self._demands: dict[tuple[PodTemplate, int], PodDemand] = {}
        self.filters = NodeFilters(self.nodes)
        self.platforms = Platforms(snapshot, self.nodes)
        self._journal: list[tuple[PodDemand | None, int, int]] = []
        self._lengths: NDArray[np.float64] | None = None
        self._changed: set[int] = set()
        self.constraints = Constraints(snapshot, self.nodes, self.filters, templates)
        self._sum_up()

    # Building

    @staticmethod
    def _receives(node: Node, snapshot: Snapshot) -> bool:
        # Stricter than kube-scheduler, for safety. An unreadable pod takes an unknown amount from its node.
        if not node.ready or node.unschedulable or node.deletion is not None or node.lifecycle:
            return False
        return all(each.node != node.name for each in snapshot.unreadable)

    def _templates(self) -> list[PodTemplate]:
        bound = (view.pods for view in self.snapshot.nodes.values())
        everyone = (*bound, self.snapshot.unscheduled, self.snapshot.to_come)
        return list({pod.template: None for pods in everyone for pod in pods})

    def _resource_rows(self, templates: list[PodTemplate]) -> dict[str, int]:
        names = {name for node in self.nodes for name in node.allocatable}
        names.update(*(view.usage.requested for view in self.snapshot.nodes.values()))
        names.update(*(each.spec.requests for each in templates), *(pod.requests for pod in self.snapshot.unscheduled))
        rows = {"cpu": CPU, "memory": MEMORY, POD_COUNT: PODS}
        for name in sorted(names - rows.keys()):
            rows[name] = len(rows)
        return rows

    def _sum_up(self) -> None:
        """Subtract the requests of bound pods."""
        for column, view in enumerate(self.snapshot.nodes.values()):
            for name, amount in view.usage.requested.items():
                self.free[self._rows[name], column] -= amount
            self.scored[:2, column] -= view.usage.scoring
        self.scored[2:] = self.known - self.free[: MEMORY + 1]

    # What a pod demands

    def demand_of(self, pod: Pod) -> PodDemand:
        """Return the demands of *pod* on a node.

        During a resize the larger amounts count, since the replacement may request either. Where a VPA changes what the
        replacement of a pod requests, that counts; a pod that has yet to find a node is what it is.
        """
        key = (pod.template, 0 if pod.requests is pod.template.spec.requests else id(pod.requests))
        if self.snapshot.anew and pod.uid and not pod.node and pod.template in self.snapshot.anew:
            key = (pod.template, -1)
        found = self._demands.get(key)
        if found is None:
            found = self._demands[key] = self._compile(
                pod, None if key[1] == -1 else self.snapshot.anew.get(pod.template)
            )
        return found

    def _compile(self, pod: Pod, anew: Anew | None) -> PodDemand:
        template, spec = pod.template, pod.template.spec
        unknown = self.constraints.unknown(template)
        static = self.filters.static(spec)
        attachments = NO_ATTACHMENTS
        if spec.volumes:
            try:
                reach, attachments = self.constraints.volumes.reach(template)
                if reach is not None:
                    static = static & reach
            except VolumeUnknownError as error:
                unknown = unknown or (Reason.UNKNOWN_VOLUME, str(error))
        static, strays = self.platforms.split(template, static)
        affinity, spread = self.constraints.rules(template)
        idle = not (affinity.own or affinity.against or affinity.joins or affinity.group)
        plain = idle and not (spread.own or spread.joins or spec.host_ports or attachments is not NO_ATTACHMENTS)
        amounts, scoring = largest((pod.requests, spec.requests)), spec.scoring
        if anew is not None:
            amounts, scoring = anew.requests, anew.scoring
            if anew.problem:
                unknown = unknown or (
                    Reason.REQUESTS_UNKNOWN,
                    f"VerticalPodAutoscaler {anew.autoscaler} can't be read: {anew.problem}",
                )
        rows = tuple((self._rows[name], amount) for name, amount in amounts.items() if amount > 0)
        cpu, memory = amounts.get("cpu", 0), amounts.get("memory", 0)
        count = int(np.count_nonzero(static))
        level = 0 if count * 4 <= len(self.nodes) else 2 if plain else 1
        return PodDemand(
            template=template,
            rows=rows,
            scoring=np.array([scoring], dtype=np.float64).T,
            requested=np.array([[cpu], [memory]], dtype=np.float64) if cpu or memory else None,
            scored=((0, -scoring[0]), (1, -scoring[1]), (2, cpu), (3, memory)),
            static=static,
            hardness=(level, -max((amount * float(self.scale[row]) for row, amount in rows), default=0.0)),
            affinity=affinity,
            spread=spread,
            attachments=attachments,
            plain=plain,
            unknown=unknown,
            node_local=plain
            or (affinity.node_local and not (spread.own or spread.joins or attachments is not NO_ATTACHMENTS)),
            strays=strays,
        )

    # Judging

    def feasible(self, demand: PodDemand) -> NodeMask:
        """Return the open nodes on which one more pod with *demand* passes every filter now."""
        mask = self.open & demand.static
        for row, amount in demand.rows:
            mask &= self.free[row] >= amount
        if not demand.plain:
            self.constraints.restrict(mask, demand)
        return mask

    def accepts(self, demand: PodDemand, node: int) -> bool:
        """Whether *node* is open and passes every filter."""
        if not (self.open[node] and demand.static[node]):
            return False
        if any(self.free[row, node] < amount for row, amount in demand.rows):
            return False
        return self.constraints.allows(demand, node) if demand.node_local else bool(self.feasible(demand)[node])

    @cached_property
    def scale(self) -> NDArray[np.float64]:
        """One over the largest amount of any node, by row, which makes unlike resources comparable."""
        scale: NDArray[np.float64] = 1.0 / np.maximum(self.capacity.max(axis=1, initial=1), 1)
        return scale

    def free_lengths(self) -> NDArray[np.float64]:
        """Return the Euclidean length of each node's free amounts, in shares of the largest node."""
        if self._lengths is None:
            self._lengths = np.sqrt(((self.free * self.scale[:, None]) ** 2).sum(axis=0))
        elif self._changed:
            columns = sorted(self._changed)
            self._lengths[columns] = np.sqrt(((self.free[:, columns] * self.scale[:, None]) ** 2).sum(axis=0))
        self._changed.clear()
        return self._lengths

    def sizes(self) -> list[float]:
        """Return each node's size: CPU, memory and extended resources as shares of the largest node's, summed."""
        rows = [row for name, row in self._rows.items() if name not in (POD_COUNT, "ephemeral-storage")]
        return list((self.capacity[rows] * self.scale[rows, None]).sum(axis=0).tolist())

    # Changing

    def place(self, demand: PodDemand, node: int) -> None:
        """Bind one pod with *demand* to *node*."""
        self._change(demand, node, 1)
        self._journal.append((demand, node, 1))

    def remove(self, demand: PodDemand, node: int) -> None:
        """Take one pod with *demand* off *node*."""
        self._change(demand, node, -1)
        self._journal.append((demand, node, -1))

    def close(self, node: int) -> None:
        """Cordon *node*: it receives no more pods, but stays a topology domain for the scheduler."""
        if self.open[node]:
            self.open[node] = False
            self.constraints.close(node, 1)
            self._journal.append((None, node, 1))

    def mark(self) -> int:
        """Return a point to :meth:`rollback` to."""
        return len(self._journal)

    def rollback(self, mark: int) -> None:
        """Undo everything since *mark*."""
        while len(self._journal) > mark:
            demand, node, step = self._journal.pop()
            if demand is None:
                self.open[node] = True
                self.constraints.close(node, -1)
            else:
                self._change(demand, node, -step)

    def saved(self) -> Saved:
        """Return the state to :meth:`restore`."""
        return Saved(self.mark(), self.next_start, self.open.copy(), self.free.copy(), self.scored.copy())

    def restore(self, saved: Saved) -> None:
        """Undo everything since *saved*, which takes less time than a rollback of a whole plan."""
        while len(self._journal) > saved.mark:
            demand, node, step = self._journal.pop()
            if demand is None:
                self.constraints.close(node, -1)
            elif not demand.plain:
                self.constraints.change(demand, node, -step)
        self.open[:], self.free[:], self.scored[:] = saved.open, saved.free, saved.scored
        self.next_start, self._lengths = saved.next_start, None

    def _change(self, demand: PodDemand, node: int, step: int) -> None:
        free, scored = self.free, self.scored
        for row, amount in demand.rows:
            free[row, node] -= step * amount
        for row, amount in demand.scored:
            scored[row, node] += step * amount
        self._changed.add(node)
        if not demand.plain:
            self.constraints.change(demand, node, step)

    # Explaining

    def resource_names(self) -> list[str]:
        """Names of the matrix' rows, in row order."""
        return sorted(self._rows, key=self._rows.__getitem__)


class Memory:
    """What the nodes of *space* offered when it was made, to pods that concern only the node they run on."""

    def __init__(self, space: Space) -> None:
        self._open, self._free = space.open.copy(), space.free.copy()
        self._taken, self._ports = space.constraints.taken()

    def feasible(self, demand: PodDemand) -> NodeMask:
        """Return what :meth:`Space.feasible` would have returned then for *demand*, a node-local one of the space."""
        mask = self._open & demand.static
        for row, amount in demand.rows:
            mask &= self._free[row] >= amount
        excluded = 0
        for each in demand.affinity.excluding:
            for tally in each.tallies():
                excluded |= self._taken.get(tally, 0)
        clear(mask, excluded)
        restrict_ports(mask, demand, self._ports)
        return mask


__all__ = ["CPU", "MEMORY", "PODS", "UNLIMITED", "Memory", "PodDemand", "Space"]
