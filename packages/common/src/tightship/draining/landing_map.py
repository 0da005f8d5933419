"""The ConfigMap of landings, which the chart's admission policy reads.

The chart makes the ConfigMap beside the policy, and notes the policy in :data:`POLICY_ANNOTATION`. So the controller
knows whether there is a policy, and which, without a right to read policies. The controller owns ``data``: by the uid
of a controller of pods, the nodes where its next pods should land. Every write is one merge patch against the version
that was read, and removes what others have put in.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec import Struct

from tightship.kube.connection import Connection
from tightship.kube.retrying import RetryPolicy
from tightship.objects.api_errors import BadAnswer, Conflict, NotFound
from tightship.objects.drain_record import FIELD_MANAGER
from tightship.objects.unreadable import UNREADABLE

POLICY_ANNOTATION = "tightship.dev/landing-policy"

POLICY_VERSION = "2"
"""The version of the policy that this controller can work with: the first one kept no pod off nodes that leave."""

REQUEST_TIMEOUT = 4.0
"""Seconds for each request: somebody waits."""

_TRIES = 4


class _Meta(Struct, frozen=True, rename="camel"):
    resource_version: str = ""
    annotations: dict[str, str] | None = None


class _Wire(Struct, frozen=True):
    metadata: _Meta
    data: dict[str, str] | None = None


class LandingMap:
    """The ConfigMap *name* in *namespace*. One task at a time may call the methods."""

    def __init__(self, connection: Connection, namespace: str, name: str) -> None:
        self._connection = connection
        self._path = f"/api/v1/namespaces/{namespace}/configmaps/{name}"
        self._what = f"ConfigMap {namespace}/{name}"
        self._version = ""
        self.data: Mapping[str, str] | None = None
        """The data as last read or written, ``None`` while nobody knows."""
        self.policy: str | None = None
        """The policy as last read, such as ``hints/2``; empty if none is noted, ``None`` if there is no ConfigMap."""

    def __str__(self) -> str:
        return self._what

    async def read(self) -> None:
        """Read the ConfigMap. A missing one is no error. Raises :class:`~tightship.objects.api_errors.KubeError`."""
        # Drains look at the policy meanwhile: what was last known of it holds until the answer comes.
        self.data = None
        try:
            raw = await self._connection.request("GET", self._path, timeout=REQUEST_TIMEOUT, retry=False)
        except NotFound:
            self.data, self.policy = {}, None
            return
        self._take("GET", raw)

    async def write(self, data: Mapping[str, str], *, unseen: bool = True) -> None:
        """Make *data* the ConfigMap's whole data. A missing ConfigMap stays missing.

        With *unseen* false, the write only succeeds if nobody has written since this object last did. Raises
        :class:`~tightship.objects.api_errors.KubeError`, the last conflict included.
        """
        if not unseen and self.data is None:
            return
        policy = RetryPolicy(attempts=_TRIES if unseen else 1, first=0.0)
        await policy.retrying(lambda error: isinstance(error, Conflict))(self._write, data)

    async def _write(self, data: Mapping[str, str]) -> None:
        if self.data is None:
            await self.read()
        before, version = self.data or {}, self._version
        if self.policy is None or before == data:
            return
        gone = dict.fromkeys(key for key in before if key not in data)
        body = {"metadata": {"resourceVersion": version}, "data": {**gone, **data}}
        # Nobody knows what is there until the answer comes.
        self.data = None
        try:
            raw = await self._connection.request(
                "PATCH",
                self._path,
                params={"fieldManager": FIELD_MANAGER},
                body=msgspec.json.encode(body),
                content_type="application/merge-patch+json",
                timeout=REQUEST_TIMEOUT,
            )
        except NotFound:
            self.data, self.policy = {}, None
        else:
            self._take("PATCH", raw)

    def _take(self, verb: str, raw: bytes) -> None:
        try:
            wire = msgspec.json.decode(raw, type=_Wire)
        except UNREADABLE as error:
            raise BadAnswer(verb, self._path, self._connection.server, f"not a ConfigMap: {error}") from error
        self._version, self.data = wire.metadata.resource_version, wire.data or {}
        self.policy = (wire.metadata.annotations or {}).get(POLICY_ANNOTATION, "")


def policy_problem(policy: str | None, mode: str, what: str) -> str:
    """Return why steering by *mode* does not work with *policy*, noted on *what*; nothing if it does."""
    if policy is None:
        return (
            f"{what} does not exist: the chart makes it with the admission policy, on Kubernetes 1.36 and newer, if "
            f"its config says steering: {mode}"
        )
    if not policy:
        return f"{what} has no annotation {POLICY_ANNOTATION}, which the chart writes with the admission policy"
    if policy == f"{mode}/{POLICY_VERSION}":
        return ""
    found = f"{what} says that the admission policy is {policy[:60]!r}, not {mode}/{POLICY_VERSION}"
    return f"{found}: upgrade the chart's release with steering: {mode}"


__all__ = ["POLICY_ANNOTATION", "POLICY_VERSION", "LandingMap", "policy_problem"]
