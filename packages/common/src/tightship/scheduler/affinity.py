"""Required inter-pod affinity and anti-affinity, both ways, as kube-scheduler's ``InterPodAffinity`` filters.

* A pod's own anti-affinity terms exclude domains that hold a pod they match.
* Anti-affinity terms of placed pods exclude their domains for a pod they match.
* A pod's affinity terms want, in each term's domain, a pod that matches **all** of them. While no pod in the cluster
  does, a pod that matches its own terms may start the group on any node that has all the keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Sized

from msgspec import Struct

from tightship.objects import Namespace, PodAffinityTerm, PodTemplate
from tightship.objects.selectors import LabelSelector, SelectorIndex
from tightship.scheduler.topology import DomainCounter, DomainSum, NodeMask, Tally, Topology, clear


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
