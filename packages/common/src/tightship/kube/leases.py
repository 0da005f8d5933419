"""``coordination.k8s.io/v1`` Lease: read one, create one, replace one unless somebody else did so first.

A write keeps everything in the object that this module does not know: labels and annotations of others, owner
references, fields of newer servers. A replace sends the uid along with the resourceVersion; otherwise the API server
would create a deleted Lease again.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import msgspec
from msgspec import Struct

from tightship.kube.connection import Connection
from tightship.kube.resources import Resource
from tightship.objects.api_errors import BadAnswer, ConnectionFailed, NotFound
from tightship.objects.unreadable import UNREADABLE

_GROUP_VERSION = "coordination.k8s.io/v1"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_Raws = dict[str, msgspec.Raw]


class Lease(Struct, frozen=True, kw_only=True):
    """One Lease. *duration* is in seconds; *acquired* and *renewed* are MicroTimes as their author wrote them.

    A missing field is empty or 0. *raw* is the object as it was read, empty before the Lease is created.
    """

    namespace: str
    name: str
    resource_version: str = ""
    holder: str = ""
    duration: int = 0
    acquired: str = ""
    renewed: str = ""
    transitions: int = 0
    annotations: Mapping[str, str] = {}
    raw: bytes = b""

    @property
    def exists(self) -> bool:
        """Whether the Lease was read from the server."""
        return bool(self.resource_version)


class _Meta(Struct):
    name: str = ""
    namespace: str = ""
    resource_version: str = msgspec.field(default="", name="resourceVersion")
    annotations: dict[str, str] | None = None


class _Spec(Struct):
    holder: str | None = msgspec.field(default=None, name="holderIdentity")
    duration: int | None = msgspec.field(default=None, name="leaseDurationSeconds")
    acquired: str | None = msgspec.field(default=None, name="acquireTime")
    renewed: str | None = msgspec.field(default=None, name="renewTime")
    transitions: int | None = msgspec.field(default=None, name="leaseTransitions")


class _Wire(Struct):
    metadata: _Meta
    spec: _Spec | None = None


_wire = msgspec.json.Decoder(_Wire)
_raws = msgspec.json.Decoder(_Raws)
_SPEC_FIELDS = {each.name: each.encode_name for each in msgspec.structs.fields(_Spec)}


def micro_time(microseconds: int) -> str:
    """Return *microseconds* since 1970 as a MicroTime: RFC 3339 in UTC with exactly six decimals."""
    return (_EPOCH + timedelta(microseconds=microseconds)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def decode_lease(body: bytes) -> Lease:
    """Return the Lease in *body*. Raises :class:`msgspec.DecodeError` or :class:`UnicodeDecodeError`."""
    wire = _wire.decode(body)
    spec = wire.spec or _Spec()
    return Lease(
        namespace=wire.metadata.namespace,
        name=wire.metadata.name,
        resource_version=wire.metadata.resource_version,
        holder=spec.holder or "",
        duration=spec.duration or 0,
        acquired=spec.acquired or "",
        renewed=spec.renewed or "",
        transitions=spec.transitions or 0,
        annotations=wire.metadata.annotations or {},
        raw=body,
    )


def encode_lease(lease: Lease) -> bytes:
    """Return *lease* as JSON: the object as it was read, with the changed fields replaced."""
    base, document, metadata, spec = Lease(namespace=lease.namespace, name=lease.name), _Raws(), _Raws(), _Raws()
    if lease.raw:
        base = decode_lease(lease.raw)
        document = _raws.decode(lease.raw)
        metadata = _raws.decode(document["metadata"])
        spec = _raws.decode(document["spec"]) if _has_spec(document) else spec
    else:
        document |= {"apiVersion": _raw(_GROUP_VERSION), "kind": _raw("Lease")}
        metadata |= {"name": _raw(lease.name), "namespace": _raw(lease.namespace)}
    if lease.annotations != base.annotations:
        metadata["annotations"] = _raw(dict(lease.annotations))
    for field, key in _SPEC_FIELDS.items():
        value = getattr(lease, field)
        if value != getattr(base, field):
            spec[key] = _raw(value)
    return msgspec.json.encode({**document, "metadata": metadata, "spec": spec})


class LeaseStore:
    """The Lease *name* in *namespace*. Nothing is retried here; each call ends within its timeout.

    Every method takes a *timeout* in seconds for the whole call, including loading credentials, and raises
    :class:`~tightship.objects.api_errors.KubeError`. A write may have succeeded despite a
    ``ConnectionFailed`` or a 5xx, and even despite a 409, because the transport repeats
    a PUT whose idle connection broke.
    """

    def __init__(self, connection: Connection, namespace: str, name: str) -> None:
        self.namespace = namespace
        self.name = name
        self.resource = Resource(
            "Lease", "coordination.k8s.io", "v1", "leases", field_selector=f"metadata.name={name}", namespace=namespace
        )
        self._connection = connection
        self._collection = self.resource.path
        self._path = f"{self._collection}/{name}"

    def __str__(self) -> str:
        return f"Lease {self.namespace}/{self.name}"

    async def get(self, timeout: float) -> Lease:  # noqa: ASYNC109 - raises a typed error
        """Return the Lease as it is now, or a blank one to be written if it does not exist."""
        try:
            return await self._send("GET", self._path, None, timeout)
        except NotFound:
            return Lease(namespace=self.namespace, name=self.name)

    async def write(self, lease: Lease, timeout: float) -> Lease:  # noqa: ASYNC109
        """Store *lease* over the version that it was read from, or create it, and return it as stored.

        Raises ``Conflict`` if the version changed, the Lease is gone, or a Lease that
        was not read exists.
        """
        verb, path = ("PUT", self._path) if lease.exists else ("POST", self._collection)
        return await self._send(verb, path, encode_lease(lease), timeout)

    async def _send(self, verb: str, path: str, body: bytes | None, seconds: float) -> Lease:
        server = self._connection.server
        try:
            # The transport's timeout covers one exchange. A refused token makes two, with a run of a plugin in between.
            async with asyncio.timeout(seconds):
                answer = await self._connection.request(verb, path, body=body, timeout=seconds, retry=False)
        except TimeoutError as error:
            raise ConnectionFailed(verb, path, server, f"no answer in {seconds:.3g} s") from error
        try:
            return decode_lease(answer)
        except UNREADABLE as error:
            raise BadAnswer(verb, path, server, f"not a Lease: {error}") from error


class _List(Struct):
    items: list[msgspec.Raw] | None = None


async def held_leases(connection: Connection, name: str, now: float, namespace: str = "") -> list[Lease]:
    """Return the Leases called *name*, in all namespaces or in one, that have a holder at *now* (seconds since 1970).

    Raises :class:`~tightship.objects.api_errors.KubeError`.
    """
    where = f"namespaces/{namespace}/" if namespace else ""
    path = f"/apis/{_GROUP_VERSION}/{where}leases"
    body = await connection.request("GET", path, params={"fieldSelector": f"metadata.name={name}"})
    try:
        leases = [decode_lease(bytes(raw)) for raw in msgspec.json.decode(body, type=_List).items or []]
    except UNREADABLE as error:
        raise BadAnswer("GET", path, connection.server, f"not a list of Leases: {error}") from error
    return [each for each in leases if each.holder and _runs_out(each) > now]


def _runs_out(lease: Lease) -> float:
    """Return when a Lease expires by its own times; a Lease without times never expires."""
    try:
        return datetime.fromisoformat(lease.renewed).timestamp() + lease.duration
    except ValueError:
        return math.inf


def _has_spec(document: Mapping[str, msgspec.Raw]) -> bool:
    return bytes(document.get("spec", msgspec.Raw(b"null"))) != b"null"


def _raw(value: object) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))
