"""Topology domains, and counters of pods by domain that follow every simulated move."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tightship.objects import Node

NodeMask = NDArray[np.bool_]
"""One flag per node of a space, in the space's node order."""


class Topology:
    """The domains of one topology key over the nodes of a space.

    ``domain_of[i]`` is the domain of node *i*, or -1 if the node lacks the label; ``members[d]`` are the indices of the
    nodes in domain *d*.
    """

    def __init__(self, key: str, nodes: Sequence[Node]) -> None:
        self.key = key
        numbers: dict[str, int] = {}
        domain_of: list[int] = []
        for node in nodes:
            value = node.labels.get(key)
            domain_of.append(-1 if value is None else numbers.setdefault(value, len(numbers)))
        self.domain_of = domain_of
        self.domains: NDArray[np.intp] = np.array(domain_of, dtype=np.intp)
        """The same as ``domain_of``, as an array."""
        members: list[list[int]] = [[] for _ in numbers]
        for index, domain in enumerate(domain_of):
            if domain >= 0:
                members[domain].append(index)
        self.members = [np.array(each, dtype=np.intp) for each in members]
        self.lone = len(numbers) > 1 and all(len(each) == 1 for each in members)
        """Whether each domain is one node, as of the hostname."""
        self._nodes = np.array([each[0] for each in members], dtype=np.intp) if self.lone else None
        self.labelled: NodeMask = np.array([domain >= 0 for domain in domain_of], dtype=np.bool_)

    def forbid(self, mask: NodeMask, domains: list[int]) -> None:
        """Clear *mask* for every node in one of *domains*."""
        if self._nodes is not None and len(domains) > 1:
            mask[self._nodes[domains]] = False
            return
        for domain in domains:
            mask[self.members[domain]] = False

    def nodes_in(self, mask: NodeMask) -> NDArray[np.intp]:
        """Return how many of the nodes in *mask* each domain has."""
        inside = self.domains[mask]
        return np.bincount(inside[inside >= 0], minlength=len(self.members))

    def union(self, domains: Sequence[int], size: int) -> NodeMask:
        """Return a mask of *size* nodes that sets the nodes in *domains*."""
        mask = np.zeros(size, dtype=np.bool_)
        for domain in domains:
            mask[self.members[domain]] = True
        return mask


class DomainCounter:
    """The number of counted pods in each domain; ``counts`` lacks domains without any."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self.counts: dict[int, int] = {}

    def add(self, node: int, step: int) -> None:
        """Count *step* (positive or negative) more pods on the node with index *node*."""
        domain = self.topology.domain_of[node]
        if domain < 0:
            return
        count = self.counts.get(domain, 0) + step
        if count:
            self.counts[domain] = count
        else:
            self.counts.pop(domain, None)


class Tally:
    """Pods of one kind: ``counts`` of them by domain, and their ``nodes`` as bits if each domain is one node.

    Many kinds together exclude a pod, so bits are what is faster to unite.
    """

    __slots__ = ("counts", "nodes", "topology")

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self.counts: dict[int, int] = {}
        self.nodes = 0

    def add(self, node: int, step: int) -> None:
        """Count *step* more pods on *node*."""
        domain = self.topology.domain_of[node]
        if domain < 0:
            return
        count = self.counts.get(domain, 0) + step
        if count:
            self.counts[domain] = count
        else:
            del self.counts[domain]
        if count in {0, step} and self.topology.lone:
            self.nodes ^= 1 << node


class DomainSum:
    """Pods in each domain, as *parts* by kind."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self.parts: list[Tally] = []

    @property
    def counts(self) -> dict[int, int]:
        """The number of pods in each domain that has some."""
        found: Counter[int] = Counter()
        for part in self.parts:
            found.update(part.counts)
        return found


def clear(mask: NodeMask, nodes: int) -> None:
    """Clear *mask* for every node whose bit in *nodes* is set."""
    if nodes:
        packed = np.frombuffer(nodes.to_bytes((len(mask) + 7) // 8, "little"), dtype=np.uint8)
        np.greater(mask, np.unpackbits(packed, count=len(mask), bitorder="little").view(np.bool_), out=mask)
