"""CapacityBuffers for what forecasts will start: so that nodes are there before the pods.

A buffer belongs to its HPA, and goes with it. It exists only while a forecast asks for room. What another process has
left is read once, when a term begins or after an error.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping

import msgspec
from msgspec import Struct

from hpa_scaler.decide.decision import Judged
from tightship.app.observability.logging import log
from tightship.core.api_errors import Forbidden, KubeError, NotFound, one_line
from tightship.core.objects import CAPACITY_BUFFER
from tightship.core.objects.buffers import ACTIVE
from tightship.core.unreadable import UNREADABLE
from tightship.kube.connection import Connection
from tightship.kube.resources import BY_KIND

AGAIN = 600.0
"""Seconds until a cluster without CapacityBuffers, or without the right to them, is asked again."""
LABEL = ("app.kubernetes.io/managed-by", "hpa-scaler")
"""The label of our buffers, and its value."""
_NAME = "hpa-scaler-"
_LONGEST = 200

Key = tuple[str, str]
"""Namespace and name of a buffer."""


class _Meta(Struct):
    namespace: str
    name: str


class _Spec(Struct, frozen=True):
    replicas: int | None = None


class _Buffer(Struct):
    metadata: _Meta
    spec: _Spec = _Spec()


class _List(Struct):
    items: list[_Buffer] | None = None


_lists = msgspec.json.Decoder(_List)


def wanted_buffers(judged: Iterable[Judged]) -> dict[Key, Mapping[str, object]]:
    """Return the buffers that the HPAs want, without a version."""
    found: dict[Key, Mapping[str, object]] = {}
    for each in judged:
        decision, hpa = each.decision, each.subject.hpa
        if not decision.room or decision.dry_run:
            continue
        key = decision.namespace, _NAME + decision.name[:_LONGEST]
        owner = {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "name": hpa.name, "uid": hpa.uid}
        target = {
            "apiGroup": hpa.target.api_version.rpartition("/")[0],
            "kind": hpa.target.kind,
            "name": hpa.target.name,
        }
        found[key] = {
            "kind": CAPACITY_BUFFER,
            "metadata": {
                "namespace": key[0],
                "name": key[1],
                "labels": dict([LABEL]),
                "ownerReferences": [owner],
            },
            "spec": {
                "provisioningStrategy": f"buffer.x-k8s.io/{ACTIVE}",
                "scalableRef": target,
                "replicas": decision.room,
            },
        }
    return found


class BufferKeeper:
    """Keeps the CapacityBuffers of forecasts as the HPAs want them, if that is switched *on*."""

    def __init__(
        self, connection: Connection, logger: logging.Logger, clock: Callable[[], float], *, on: bool = True
    ) -> None:
        self._on = on
        self._connection = connection
        self._log = logger
        self._clock = clock
        self._known: dict[Key, int] | None = None
        self._version = ""
        self._not_before = 0.0
        self._trouble = self._told = ""

    def forget(self) -> None:
        """Forget which buffers there are: another replica may have changed them."""
        self._known = None
        self._not_before = 0.0

    async def keep(self, judged: Iterable[Judged], namespaces: Iterable[str], may: Callable[[], bool]) -> None:
        """Make, change and remove buffers, while this replica *may* write. A failure is logged, and tried again."""
        wanted = wanted_buffers(judged)
        if not self._on or (self._version and not (wanted or self._known)):
            return
        if self._known is None and self._clock() >= self._not_before:
            try:
                self._known = await self._read(tuple(namespaces) or ("",))
            except (*UNREADABLE, KubeError) as error:
                self._trouble = one_line(error) if isinstance(error, KubeError) else str(error)
                self._not_before = self._clock() + (AGAIN if isinstance(error, NotFound | Forbidden) else 0.0)
        if self._known is not None:
            await self._settle(self._known, wanted, may)
        if self._trouble and wanted and self._trouble != self._told:
            log(self._log, logging.WARNING, "no room is kept for forecasts", error=self._trouble)
        if wanted:
            self._told = self._trouble

    async def _settle(
        self, known: dict[Key, int], wanted: Mapping[Key, Mapping[str, object]], may: Callable[[], bool]
    ) -> None:
        """Write what differs; a failure concerns its own buffer alone, and all are read again."""
        self._trouble = ""
        for key in [*(each for each in known if each not in wanted), *wanted]:
            replicas = _replicas(wanted[key]) if key in wanted else None
            if known.get(key) == replicas or not may():
                continue
            try:
                if replicas is None:
                    await self._remove(key)
                    del known[key]
                else:
                    await self._write(key, wanted[key], new=key not in known)
                    known[key] = replicas
            except KubeError as error:
                self._trouble = f"{'/'.join(key)}: {one_line(error)}"
                self._known = None

    async def _read(self, namespaces: tuple[str, ...]) -> dict[Key, int]:
        """Return the buffers that are ours, in the first version that is served."""
        versions = BY_KIND[CAPACITY_BUFFER].versions
        for resource in versions:
            found: dict[Key, int] = {}
            try:
                for namespace in namespaces:
                    ours = resource.within(namespace=namespace, label_selector="=".join(LABEL))
                    answer = await self._connection.request("GET", ours.path, params=ours.selectors)
                    items = _lists.decode(answer).items or []
                    found |= {(each.metadata.namespace, each.metadata.name): each.spec.replicas or 0 for each in items}
            except NotFound:
                if resource is versions[-1]:
                    raise
                continue
            self._version = resource.version
            return found
        raise AssertionError("no version of CapacityBuffers is known")

    def _path(self, key: Key, *, named: bool = True) -> str:
        group = BY_KIND[CAPACITY_BUFFER].group
        return f"/apis/{group}/{self._version}/namespaces/{key[0]}/capacitybuffers/{key[1] if named else ''}".rstrip(
            "/"
        )

    async def _write(self, key: Key, buffer: Mapping[str, object], *, new: bool) -> None:
        replicas = _replicas(buffer)
        if new:
            body = {"apiVersion": f"{BY_KIND[CAPACITY_BUFFER].group}/{self._version}", **buffer}
            await self._connection.request("POST", self._path(key, named=False), body=msgspec.json.encode(body))
        else:
            await self._connection.request(
                "PATCH",
                self._path(key),
                body=msgspec.json.encode({"spec": {"replicas": replicas}}),
                content_type="application/merge-patch+json",
            )
        log(self._log, logging.INFO, "room kept for a forecast", buffer="/".join(key), replicas=replicas)

    async def _remove(self, key: Key) -> None:
        try:
            await self._connection.request("DELETE", self._path(key))
        except NotFound:
            return
        log(self._log, logging.INFO, "room given back", buffer="/".join(key))


def _replicas(buffer: Mapping[str, object]) -> int:
    spec = buffer["spec"]
    assert isinstance(spec, dict)
    return int(spec["replicas"])
