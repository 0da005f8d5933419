"""Topology spread constraints (``DoNotSchedule``), as kube-scheduler's ``PodTopologySpread`` filters.

The drained node stays in the cluster, cordoned and soon empty, until the autoscaler deletes it. So the node remains a
domain (a *ghost*) unless the constraint honours taints that the pod does not tolerate (autoscaler#9287).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from msgspec import Struct

from tightship.objects import Node, PodTemplate, TopologySpreadConstraint
from tightship.objects.pod import CORDON, DRAINING
from tightship.objects.selectors import HARD_EFFECTS, Labels, LabelSelector, SelectorIndex, untolerated
from tightship.scheduler.static import NodeFilters
from tightship.scheduler.topology import NodeMask, Topology


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
        self.ghosts_count = constraint.node_taints_policy != "Honor" or all(
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
        if self.ghosts_count or not self.topology.labelled[node]:
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
        self._ghostless = [each for counters in self.own.values() for each in counters if not each.ghosts_count]

    def joins(self, template: PodTemplate) -> tuple[SpreadCounter, ...]:
        """Return the counters that count pods of *template*."""
        near = self._by_selector.find(template.namespace, template.labels)
        return tuple(counter for counter in near if counter.matches(template))

    def close(self, node: int, sign: int) -> None:
        """Cordon *node* for every constraint, or, with *sign* -1, undo that."""
        for counter in self._ghostless:
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
