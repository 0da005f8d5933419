"""Machines that a pool could have: its own types as its nodes show them, others as the facts and the formulas say."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec
from msgspec import Struct

from tightship.cluster import NodeView, Snapshot
from tightship.cluster.node_marks import control_plane, keeps_volumes, mark_of, virtual
from tightship.cluster.pools import pool_of, shown
from tightship.cluster.state import add
from tightship.fit.model import Asked, FitError
from tightship.fit.shapes import (
    Cloud,
    Shape,
    allocatable,
    cloud_of,
    clouds,
    family,
    local_disks,
    shape_of,
    shared,
    type_labels,
)
from tightship.objects import CSINode, Node, Pod
from tightship.objects.money import INSTANCE_TYPE_LABELS, NodePrice, price_of
from tightship.objects.quoting import near, quoted
from tightship.objects.resources import POD_COUNT, Resources
from tightship.objects.selectors import HARD_EFFECTS, Labels, NodeSelector, Taint, untolerated
from tightship.objects.volume import REGION, ZONE

ARCH, OS, HOSTNAME = "kubernetes.io/arch", "kubernetes.io/os", "kubernetes.io/hostname"
_PLACE = frozenset(
    {HOSTNAME, ZONE, REGION, "failure-domain.beta.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/region"}
)
_OF_TYPE = re.compile(
    r"karpenter\.(k8s\.aws|azure\.com)/(instance|sku)-|cloud\.google\.com/(machine-family|gke-cpu|gke-boot|gke-local|"
    r"gke-accel|gke-gpu|gke-max|gke-memory)|kubernetes\.azure\.com/(sku|accel)|k8s\.amazonaws\.com/accel|nvidia\.com/|"
    r"feature\.node\.kubernetes\.io/|topology\.(ebs|gke|disk)\.csi|(node|beta)\.kubernetes\.io/instance-type$"
)
"""Labels that say something of the machine's type or its place, and are not its pool's."""

_HARDWARE = re.compile(
    r"(nvidia|amd|intel|xilinx|habana|google)\.[a-z]+/|aws\.amazon\.com/|hugepages-|vpc\.amazonaws\.com/"
)
"""Resources that the type decides. Others, such as a device plugin's, are the same on all nodes of a pool."""

_SPOT: Mapping[str, Mapping[str, str]] = {
    "AWS": {"karpenter.sh/capacity-type": "spot", "eks.amazonaws.com/capacityType": "SPOT"},
    "Azure": {"kubernetes.azure.com/scalesetpriority": "spot"},
    "Google Cloud": {"cloud.google.com/gke-spot": "true"},
}


class Pool(Struct, frozen=True):
    """A pool's nodes, and what its nodes have in common. *places* are the labels of its zones, by zone."""

    name: str
    views: tuple[NodeView, ...]
    cloud: str
    arch: str
    labels: Labels
    taints: tuple[Taint, ...]
    places: Mapping[str, Labels]


class Machine(Struct, frozen=True):
    """A machine that could be bought: a *node* to be, with its DaemonSets' pods. *free* is what they leave."""

    pool: str
    type: str
    zone: str
    spot: bool
    node: Node
    daemons: tuple[Pod, ...]
    free: Resources
    price: NodePrice
    limits: CSINode | None


def type_of(node: Node) -> str:
    """Return the instance type of *node*, empty without a label."""
    return next((node.labels[label] for label in INSTANCE_TYPE_LABELS if node.labels.get(label)), "")


def pools_of(asked: Asked) -> tuple[list[Pool], Counter[str]]:
    """Return the pools that are asked about, and how many nodes are left alone, by reason.

    Raises :class:`FitError` for a pool that doesn't exist.
    """
    members: dict[str, list[NodeView]] = {}
    alone: Counter[str] = Counter()
    known: set[str] = set()
    for view in asked.snapshot.nodes.values():
        pool = pool_of(view.node)
        known.add(pool)
        if asked.pools is not None and pool not in asked.pools:
            continue
        if virtual(view.node) is not None:
            alone["no machine"] += 1
        elif control_plane(view.node, view.pods) is not None:
            alone["of the control plane"] += 1
        elif keeps_volumes(view.node) is not None:
            alone["with replicas of volumes on their disks"] += 1
        elif view.node.labels.get(OS, "linux") != "linux":
            alone["without Linux"] += 1
        elif not type_of(view.node):
            alone["without an instance type"] += 1
        else:
            members.setdefault(pool, []).append(view)
    for name in sorted((asked.pools or frozenset()) - known):
        raise FitError(f"no node is in pool {quoted(name)}; the pools are {', '.join(map(shown, sorted(known)))}")
    if not members:
        why = ", ".join(f"{count:,} {reason}" for reason, count in alone.items()) or "there is none"
        raise FitError(f"no node to find machines for ({why}); allowed are nodes with {INSTANCE_TYPE_LABELS[0]}")
    return [_pool(name, tuple(views)) for name, views in sorted(members.items())], alone


def _pool(name: str, views: tuple[NodeView, ...]) -> Pool:
    nodes = [view.node for view in views]
    found = Counter(cloud.cloud if (cloud := cloud_of(type_of(node))) else "" for node in nodes)
    taints = [
        each
        for each in nodes[0].taints
        if all(each in node.taints for node in nodes)
        and not each.key.startswith(("node.kubernetes.io/", "tightship.dev/", "karpenter.sh/"))
        and mark_of(each) is None
    ]
    places = {
        node.labels.get(ZONE, ""): {key: node.labels[key] for key in _PLACE & node.labels.keys()} for node in nodes
    }
    return Pool(
        name=name,
        views=views,
        cloud=found.most_common(1)[0][0],
        arch=Counter(node.labels.get(ARCH, "amd64") for node in nodes).most_common(1)[0][0],
        labels=_common(nodes),
        taints=tuple(taints),
        places=dict(sorted(places.items())),
    )


def _common(nodes: Sequence[Node]) -> dict[str, str]:
    """Return the labels of the pool, which all *nodes* share and which no type and no place decides."""
    first, *rest = nodes
    return {
        key: value
        for key, value in first.labels.items()
        if key not in _PLACE and not _OF_TYPE.match(key) and all(each.labels.get(key) == value for each in rest)
    }


def wanted_types(asked: Asked, pools: Sequence[Pool], mode: str) -> dict[str, frozenset[str] | None]:
    """Return the types that *mode* allows each pool, by its name; ``None`` stands for all.

    Raises :class:`FitError` for an unknown type or family.
    """
    own = {pool.name: frozenset(type_of(view.node) for view in pool.views) for pool in pools}
    if mode == "any":
        return dict.fromkeys(own)
    if mode == "same-types":
        return dict(own)
    every = frozenset().union(*own.values())
    if mode == "same-family":
        families = {name: {family(kind) for kind in kinds} for name, kinds in own.items()}
        known = every | frozenset(kind for cloud in clouds() for kind in cloud.types)
        return {name: frozenset(kind for kind in known if family(kind) in families[name]) for name in own}
    here = [cloud for cloud in clouds() if cloud.cloud in {pool.cloud for pool in pools}] or list(clouds())
    types = every.union(*(cloud.types for cloud in here))
    known_families = {family(kind) for kind in types}
    for word in asked.types:
        if word not in types and word not in known_families:
            names = " and ".join(cloud.cloud for cloud in here)
            raise FitError(
                f"--types {quoted(word)} is no machine type and no family that {names} has by our list; allowed are "
                f"types such as {min(every)} and families such as {family(min(every))}"
                f"{near(word, types | known_families)}"
            )
    return dict.fromkeys(own, frozenset(kind for kind in types if kind in asked.types or family(kind) in asked.types))


class Market:
    """All machines that pools could have."""

    def __init__(self, asked: Asked) -> None:
        self._asked = asked
        self.daemons = list(_daemons(asked.snapshot))

    def machines(self, pool: Pool, types: frozenset[str] | None, gpus: bool) -> Iterator[Machine]:
        """Yield the machines of *pool* in each of its zones; with *gpus* also those that have some."""
        mirrors = _mirrors(pool)
        cloud = next((each for each in clouds() if each.cloud == pool.cloud), None)
        shown_by = {kind: [view.node for view in pool.views if type_of(view.node) == kind] for kind in _types(pool)}
        for kind, shape in self._offered(cloud, pool, types, gpus):
            node = _shown(shown_by[kind]) if kind in shown_by else _computed(pool, kind, shape, shown_by)
            for zone, place in pool.places.items():
                for spot in (False, True) if self._asked.spot is not None else (False,):
                    labels = {**node.labels, **place, **(_SPOT.get(pool.cloud, {}) if spot else {})}
                    made = msgspec.structs.replace(node, labels=labels, taints=pool.taints)
                    known = shown_by.get(kind) if not spot else None
                    price = price_of(known[0], self._asked.prices) if known else self._asked.prices.price(made)
                    if price is None:
                        continue
                    beside = (*(pod for pod in self.daemons if runs(pod, made)), *mirrors)
                    free = dict(made.allocatable)
                    for pod in beside:
                        add(free, pod.requests, -1)
                    limits = self._asked.snapshot.csi_nodes.get(pool.views[0].name)
                    yield Machine(pool.name, kind, zone, spot, made, beside, free, price, limits)

    def _offered(
        self, cloud: Cloud | None, pool: Pool, types: frozenset[str] | None, gpus: bool
    ) -> Iterator[tuple[str, Shape]]:
        """Yield the types that the pool may have: of its architecture, and none that nobody wants unasked."""
        known: Mapping[str, Shape] = {} if cloud is None else cloud.types
        own, named = _types(pool), frozenset(self._asked.types)
        for kind in own:
            if types is None or kind in types:
                yield kind, known.get(kind, Shape(0, 0))
        usual = {family(kind) for kind in own if kind in known and _odd(kind, known[kind])}
        for kind, shape in known.items():
            if kind in own or (types is not None and kind not in types) or shape.arch != pool.arch:
                continue
            asked_for = {kind, family(kind)} & (named | usual)
            if (_odd(kind, shape) and not asked_for) or (shape.gpus and not gpus and kind not in named):
                continue
            yield kind, shape


def _odd(kind: str, shape: Shape) -> bool:
    """Whether *kind* is for those who name its family or have others of that kind: shared, tiny or bare metal."""
    return shared(kind) or "metal" in kind or shape.cpu < 2


def _types(pool: Pool) -> list[str]:
    return sorted({type_of(view.node) for view in pool.views})


def _shown(nodes: Sequence[Node]) -> Node:
    """Return a node like *nodes*, all of one pool and type, with the least that any of them offers, but broken ones."""
    nodes = [each for each in nodes if each.allocatable.get("cpu")] or nodes
    common = {
        key: value
        for key, value in nodes[0].labels.items()
        if key not in _PLACE and all(each.labels.get(key) == value for each in nodes)
    }
    least = {name: min(each.allocatable.get(name, 0) for each in nodes) for name in nodes[0].allocatable}
    return _new(nodes[0], common, {name: amount for name, amount in least.items() if amount})


def _computed(pool: Pool, kind: str, shape: Shape, shown_by: Mapping[str, Sequence[Node]]) -> Node:
    """Return a node of another type than those of *pool*: what no type decides is as on the pool's nodes."""
    nodes = [node for each in shown_by.values() for node in each]
    # Pods for each node are a setting of the pool, unless its nodes show that network interfaces limit them.
    limited = all(
        (fact := shape_of(each)) is not None and fact.pods == node.allocatable.get(POD_COUNT, 0)
        for each, same in shown_by.items()
        for node in same
    )
    usual = min(node.allocatable.get(POD_COUNT, 110) for node in nodes)
    karpenter = "karpenter.sh/nodepool" in pool.labels
    offers = allocatable(pool.cloud, shape, (limited and shape.pods) or usual, karpenter=karpenter)
    # Local disks grow with the types of a family.
    disks = all(
        family(each) == family(kind) and (fact := shape_of(each)) is not None and fact.cpu <= shape.cpu
        for each in shown_by
        if local_disks(each)
    )
    for name in nodes[0].allocatable:
        if name not in offers and not _HARDWARE.match(name) and (disks or name != "ephemeral-storage"):
            offers[name] = min(node.allocatable.get(name, 0) for node in nodes)
    of_type = {**dict.fromkeys(INSTANCE_TYPE_LABELS, kind), ARCH: shape.arch, OS: "linux"}
    labels = {**pool.labels, **of_type, **type_labels(pool.cloud, kind, shape)}
    return _new(nodes[0], labels, {name: amount for name, amount in offers.items() if amount > 0})


def _new(like: Node, labels: Labels, amounts: Resources) -> Node:
    return Node("", "", labels, {}, (), False, amounts, True, like.created, None, "", features=like.features)


def _daemons(snapshot: Snapshot) -> Iterator[Pod]:
    """Yield one pod of each DaemonSet, which no longer names its node."""
    seen: set[tuple[str, str]] = set()
    for view in snapshot.nodes.values():
        for pod in view.pods:
            owner = pod.owner
            if pod.daemon and pod.deletion is None and owner and (key := (pod.namespace, owner.uid)) not in seen:
                seen.add(key)
                spec = msgspec.structs.replace(pod.spec, node_affinity=_unpinned(pod.spec.node_affinity))
                template = msgspec.structs.replace(pod.template, spec=spec)
                yield msgspec.structs.replace(pod, template=template, requests=spec.requests)


def _unpinned(affinity: NodeSelector | None) -> NodeSelector | None:
    """Return the affinity without the node that the DaemonSet's controller adds to each term of each pod."""
    if affinity is None:
        return None
    terms = [msgspec.structs.replace(term, match_fields=None) for term in affinity.node_selector_terms]
    return None if any(not term.match_expressions for term in terms) else NodeSelector(tuple(terms))


def runs(pod: Pod, node: Node) -> bool:
    """Whether selectors, affinity and tolerations let *pod* run on *node*."""
    spec = pod.spec
    selected = all(node.labels.get(key) == value for key, value in spec.node_selector.items())
    affine = spec.node_affinity is None or spec.node_affinity.matches(node.name, node.labels)
    return selected and affine and untolerated(node.taints, spec.tolerations, HARD_EFFECTS) is None


def _mirrors(pool: Pool) -> tuple[Pod, ...]:
    """Return the static pods that most nodes of *pool* have, of one such node."""
    having: Counter[str] = Counter()
    for view in pool.views:
        having.update({_static(pod) for pod in view.pods if pod.mirror})
    usual = {name for name, count in having.items() if count * 2 > len(pool.views)}
    best = max(pool.views, key=lambda view: len(usual & {_static(pod) for pod in view.pods if pod.mirror}))
    return tuple(pod for pod in best.pods if pod.mirror and _static(pod) in usual)


def _static(pod: Pod) -> str:
    return pod.name.removesuffix(f"-{pod.node}")


def requested(views: Iterable[NodeView], name: str) -> float:
    """Return how much of *name* is requested on the nodes, as a share of what they offer."""
    views = tuple(views)
    offered = sum(view.node.allocatable.get(name, 0) for view in views)
    return sum(view.usage.requested.get(name, 0) for view in views) / offered if offered else 0.0
