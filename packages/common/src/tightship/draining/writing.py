"""The requests of a drain: read a node, write a node by compare-and-swap, evict a pod.

A write is one merge patch against the version that was read. Each request that changes something takes *only_if*, which
is asked when the request is about to leave: a leader may have been stopped, or waited for a connection, for longer than
its Lease lasts.

``spec.taints`` is one atomic list. A patch contains the list only if it changes, as the server had it (including fields
we don't know, such as ``timeAdded``), and never without the resource version. Of several writers one wins, and the
others get :class:`~tightship.objects.api_errors.Conflict`.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from msgspec import Struct

from tightship.drain.answers import EvictionResult, classify
from tightship.drain.machine import NodeChange
from tightship.kube.connection import WRITE_TIMEOUT, Connection
from tightship.objects import DEPLOYMENT, Deployment, Node, ObjectError, Pod, decode
from tightship.objects.api_errors import BadAnswer, KubeError, NotFound, NotSent
from tightship.objects.drain_record import DRAIN_ANNOTATION, FIELD_MANAGER, DrainRecord, encode_record
from tightship.objects.pod import DRAINING
from tightship.objects.unreadable import UNREADABLE
from tightship.objects.workloads import RESTARTED_AT

Taint = dict[str, object]
"""A taint as it is on the wire."""

READ_TIMEOUT = 15.0
"""Seconds for one read of a node."""

_OURS = "tightship.dev/"


class _Meta(Struct, frozen=True, rename="camel"):
    resource_version: str = ""


class _Spec(Struct, frozen=True):
    taints: list[Taint] | None = None


class _Wire(Struct, frozen=True):
    metadata: _Meta
    spec: _Spec = _Spec()


class LiveNode(Struct, frozen=True):
    """A node as the server has it, with its taints as on the wire."""

    node: Node
    version: str
    taints: tuple[Taint, ...]


def _live(raw: bytes, verb: str, name: str, connection: Connection) -> LiveNode:
    try:
        node, wire = decode("Node", raw), msgspec.json.decode(raw, type=_Wire)
    except (*UNREADABLE, ObjectError) as error:
        raise BadAnswer(verb, _path(name), connection.server, f"not a node: {error}") from error
    if not isinstance(node, Node):  # pragma: no cover - decode() answers by kind
        raise TypeError(f"a node was asked for, not {type(node).__name__}")
    return LiveNode(node, wire.metadata.resource_version, tuple(wire.spec.taints or ()))


def as_written(node: Node) -> LiveNode | None:
    """Return *node*, as the cache has it, for a patch of its taints; ``None`` if it has taints of others.

    Those may have fields that we don't know, and a patch would lose them. A patch meets a conflict where the server has
    another version.
    """
    if any(not taint.key.startswith(_OURS) for taint in node.taints):
        return None
    taints: list[Taint] = [{"key": each.key, "value": each.value, "effect": each.effect} for each in node.taints]
    return LiveNode(node, node.resource_version, tuple(taints))


def _path(name: str) -> str:
    return f"/api/v1/nodes/{name}"


async def read_node(connection: Connection, name: str) -> LiveNode | None:
    """Return node *name* from the server, ``None`` if it does not exist. Raises the connection's errors."""
    try:
        raw = await connection.request("GET", _path(name), timeout=READ_TIMEOUT)
    except NotFound:
        return None
    return _live(raw, "GET", name, connection)


class NodePatch(Struct, kw_only=True, frozen=True):
    """A patch of annotations and labels (``None`` removes one), all taints, and the cordon.

    ``None`` leaves a field as it is.
    """

    annotations: dict[str, str | None] = {}
    labels: dict[str, str | None] = {}
    taints: tuple[Taint, ...] | None = None
    unschedulable: bool | None = None


async def patch_node(
    connection: Connection, live: LiveNode, patch: NodePatch, *, only_if: Callable[[], bool]
) -> LiveNode:
    """Write *patch* on *live*, and return the changed node.

    Raises :class:`~tightship.objects.api_errors.Conflict` if the node has changed since the read,
    ``NotFound`` if it is gone, :class:`~tightship.objects.api_errors.NotSent` if *only_if*
    says no, and the connection's other errors.
    """
    spec: dict[str, object] = {}
    if patch.taints is not None:
        spec["taints"] = list(patch.taints) or None
    if patch.unschedulable is not None:
        spec["unschedulable"] = True if patch.unschedulable else None
    metadata: dict[str, object] = {"resourceVersion": live.version, "annotations": patch.annotations}
    if patch.labels:
        metadata["labels"] = patch.labels
    body: dict[str, object] = {"metadata": metadata}
    if spec:
        body["spec"] = spec
    raw = await connection.request(
        "PATCH",
        _path(live.node.name),
        params={"fieldManager": FIELD_MANAGER},
        body=msgspec.json.encode(body),
        content_type="application/merge-patch+json",
        timeout=WRITE_TIMEOUT,
        only_if=only_if,
    )
    return _live(raw, "PATCH", live.node.name, connection)


def claim_patch(live: LiveNode, record: DrainRecord) -> NodePatch:
    """Return the patch that adds the annotation, the taint and the cordon of a new drain."""
    ours: Taint = {"key": DRAINING.key, "value": record.op, "effect": DRAINING.effect}
    return NodePatch(
        annotations={DRAIN_ANNOTATION: encode_record(record)},
        taints=(*_others(live), ours),
        unschedulable=True,
    )


def record_patch(live: LiveNode, record: DrainRecord | None, change: NodeChange) -> NodePatch:
    """Return the patch that writes *record* (``None`` removes it) and makes *change*, and nothing else."""
    annotations = {DRAIN_ANNOTATION: None if record is None else encode_record(record)}
    if change is NodeChange.NOTHING:
        return NodePatch(annotations=annotations)
    others = _others(live)
    prior = record.prior_unschedulable if record is not None else False
    return NodePatch(
        annotations=annotations,
        taints=others if len(others) != len(live.taints) else None,
        unschedulable=prior if change is NodeChange.RESTORE and live.node.unschedulable != prior else None,
    )


def _others(live: LiveNode) -> tuple[Taint, ...]:
    return tuple(taint for taint in live.taints if taint.get("key") != DRAINING.key)


async def read_deployment(connection: Connection, key: str) -> tuple[Deployment, str] | None:
    """Return Deployment *key* (``namespace/name``) and its version from the server, ``None`` if it does not exist."""
    path = _deployment(key)
    try:
        raw = await connection.request("GET", path, timeout=READ_TIMEOUT)
    except NotFound:
        return None
    try:
        found, wire = decode(DEPLOYMENT, raw), msgspec.json.decode(raw, type=_Wire)
    except (*UNREADABLE, ObjectError) as error:
        raise BadAnswer("GET", path, connection.server, f"not a Deployment: {error}") from error
    assert isinstance(found, Deployment)
    return found, wire.metadata.resource_version


async def restart_deployment(
    connection: Connection, key: str, version: str, at: str, *, only_if: Callable[[], bool]
) -> None:
    """Restart Deployment *key*, if it still has *version*, as ``kubectl rollout restart`` does; *at* is what it writes.

    Raises like :func:`patch_node`.
    """
    template = {"metadata": {"annotations": {RESTARTED_AT: at}}}
    await connection.request(
        "PATCH",
        _deployment(key),
        params={"fieldManager": FIELD_MANAGER},
        body=msgspec.json.encode({"metadata": {"resourceVersion": version}, "spec": {"template": template}}),
        content_type="application/merge-patch+json",
        timeout=WRITE_TIMEOUT,
        only_if=only_if,
    )


def _deployment(key: str) -> str:
    namespace, _, name = key.partition("/")
    return f"/apis/apps/v1/namespaces/{namespace}/deployments/{name}"


async def send_away(
    connection: Connection, pod: Pod, *, past_budgets: bool, only_if: Callable[[], bool]
) -> EvictionResult | None:
    """Evict *pod* (delete it, with *past_budgets*) if it still has its UID, and return the answer.

    Never raises: a refusal and a missing answer are outcomes too. ``None`` if *only_if* said no, so that nothing was
    sent. The pod keeps its own grace period.
    """
    path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"
    options: dict[str, object] = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": pod.uid}}
    try:
        if past_budgets:
            body = msgspec.json.encode(options)
            await connection.request("DELETE", path, body=body, timeout=WRITE_TIMEOUT, only_if=only_if)
        else:
            eviction = {
                "apiVersion": "policy/v1",
                "kind": "Eviction",
                "metadata": {"name": pod.name, "namespace": pod.namespace},
                "deleteOptions": {"preconditions": {"uid": pod.uid}},
            }
            body = msgspec.json.encode(eviction)
            await connection.request("POST", f"{path}/eviction", body=body, timeout=WRITE_TIMEOUT, only_if=only_if)
    except NotSent:
        return None
    except KubeError as error:
        return classify(error)
    return classify(None)
