"""Constraints between pods, and what pods hold on nodes, compiled and counted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from tightship.cluster import Snapshot
from tightship.objects import Node, Pod, PodSpec, PodTemplate
from tightship.objects.devices import DEVICE_CLASS
from tightship.objects.reasons import Reason
from tightship.scheduler.affinity import AffinityIndex, AffinityRules, topology_keys
from tightship.scheduler.spread import SpreadCounter, SpreadIndex, SpreadRules
from tightship.scheduler.static import NodeFilters
from tightship.scheduler.topology import NodeMask, Tally, Topology
from tightship.scheduler.volumes import NO_ATTACHMENTS, Attachments, VolumeIndex


class PodDemand(Struct, frozen=True, eq=False):
    """The demand of one pod on a node, compiled for a space. Replicas of a template share it."""

    template: PodTemplate
    rows: tuple[tuple[int, int], ...]
    """(row of the matrix, amount) of every requested resource."""
    scoring: tuple[int, int]
    static: NodeMask
    """Nodes that labels, taints and the reach of volumes allow."""
    static_count: int
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
