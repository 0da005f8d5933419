"""On which nodes a pod's images run. kube-scheduler doesn't ask, but a wrong node refuses the pod or can't start it.

The kubelet refuses a pod whose ``spec.os`` or label ``kubernetes.io/os`` names another system (pkg/kubelet/lifecycle/
predicate.go). For what the pod does not say, what its workload shows counts: operating system, architecture and Windows
build of the nodes where its pods are Ready. A pod whose selector, affinity or tolerations name the label knows about
it, and goes where the scheduler lets it go.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from tightship.cluster import Snapshot
from tightship.cluster.owners import owners_of
from tightship.objects import Node, PodSpec, PodTemplate
from tightship.scheduler.topology import NodeMask

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


__all__ = ["Platforms"]
