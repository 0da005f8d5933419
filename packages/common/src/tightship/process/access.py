"""Who may read metrics, status and page: whoever the cluster itself lets read, as controller-runtime has it.

A TokenReview says whose a bearer token is, and a SubjectAccessReview whether that user may ``get`` the path as a
nonResourceURL. Verdicts are kept for a short time, so that a scrape costs the API server little, and questions have a
pace, so that strangers can't have it asked as often as they like.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import OrderedDict
from http import HTTPStatus

import msgspec
from msgspec import Struct

from tightship.kube.connection import Connection
from tightship.kube.host import monotonic
from tightship.kube.pacing import TokenBucket
from tightship.objects.api_errors import KubeError, one_line
from tightship.objects.unreadable import UNREADABLE
from tightship.process.logging import sparing

GRANTED_FOR, REFUSED_FOR = 60.0, 10.0
"""Seconds for which a verdict counts."""
AT_LONGEST = 300.0
"""Seconds for which a grant counts while there are more questions than the pace allows."""
KEPT = 256
"""Most verdicts that are kept; the oldest go first."""
PACE, AT_ONCE = 5.0, 20.0
"""Reviewed requests a second in the long run, and at once."""
PATIENCE = 2.0
"""Seconds a request waits for its turn."""
REVIEW_TIMEOUT = 5.0
"""Seconds for one review."""

_TOKENS = "/apis/authentication.k8s.io/v1/tokenreviews"
_ACCESS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
_log = sparing(logging.getLogger(__name__))


class Denial(Struct, frozen=True):
    """Why a request is not answered: *status* 401, 403 or 503, and a *text* for who asked."""

    status: HTTPStatus
    text: str


class _User(Struct, frozen=True, omit_defaults=True):
    username: str = ""
    uid: str = ""
    groups: list[str] = []
    extra: dict[str, list[str]] = {}


class _TokenStatus(Struct, frozen=True):
    authenticated: bool = False
    user: _User = _User()


class _TokenReview(Struct, frozen=True):
    status: _TokenStatus = _TokenStatus()


class _AccessStatus(Struct, frozen=True):
    allowed: bool = False


class _AccessReview(Struct, frozen=True):
    status: _AccessStatus = _AccessStatus()


class _Verdict(Struct, frozen=True):
    denial: Denial | None
    at: float

    def counts(self, now: float) -> bool:
        return now < self.at + (GRANTED_FOR if self.denial is None else REFUSED_FOR)


_Key = tuple[bytes, str]
_UNKNOWN = Denial(HTTPStatus.UNAUTHORIZED, "show a token of the cluster: Authorization: Bearer TOKEN")


class Access:
    """Asks the API server of *connection*. Its account needs ``create`` on both kinds of reviews."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._bucket = TokenBucket(PACE, AT_ONCE)
        self._verdicts: OrderedDict[_Key, _Verdict] = OrderedDict()

    async def denial(self, authorization: str, path: str) -> Denial | None:
        """Return why a request with this header may not get *path*, ``None`` if it may. Never raises for an answer."""
        scheme, _, token = authorization.partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token or not token.isascii():
            return _UNKNOWN
        # A token in memory could be dumped.
        key = hashlib.sha256(token.encode()).digest(), path
        known = self._verdicts.get(key)
        if known is not None and known.counts(monotonic()):
            return known.denial
        try:
            async with asyncio.timeout(PATIENCE):
                await self._bucket.take()
        except TimeoutError:
            if known is not None and known.denial is None and monotonic() < known.at + AT_LONGEST:
                return None
            return Denial(HTTPStatus.SERVICE_UNAVAILABLE, "too many requests wait for a review of their token")
        try:
            denial = await self._reviewed(token, path)
        except (*UNREADABLE, KubeError) as error:
            _log.warning("a token can't be reviewed, so nobody gets %s: %s", path, one_line(error))
            return Denial(HTTPStatus.SERVICE_UNAVAILABLE, "the API server could not be asked; the log says why")
        self._verdicts.pop(key, None)
        self._verdicts[key] = _Verdict(denial, monotonic())
        while len(self._verdicts) > KEPT:
            self._verdicts.popitem(last=False)
        return denial

    async def _reviewed(self, token: str, path: str) -> Denial | None:
        raw = await self._post(_TOKENS, "authentication.k8s.io/v1", "TokenReview", {"token": token})
        who = msgspec.json.decode(raw, type=_TokenReview).status
        if not who.authenticated or not who.user.username:
            return _UNKNOWN
        spec = {
            "user": who.user.username,
            "uid": who.user.uid,
            "groups": who.user.groups,
            "extra": who.user.extra,
            "nonResourceAttributes": {"path": path, "verb": "get"},
        }
        raw = await self._post(_ACCESS, "authorization.k8s.io/v1", "SubjectAccessReview", spec)
        if msgspec.json.decode(raw, type=_AccessReview).status.allowed:
            return None
        name = " ".join(who.user.username.split())[:200]
        return Denial(HTTPStatus.FORBIDDEN, f"{name} may not get the nonResourceURL {path}")

    async def _post(self, path: str, version: str, kind: str, spec: object) -> bytes:
        body = msgspec.json.encode({"apiVersion": version, "kind": kind, "spec": spec})
        return await self._connection.request("POST", path, body=body, timeout=REVIEW_TIMEOUT)
