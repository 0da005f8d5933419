"""Everything that can go wrong between Tightship and an API server, as typed errors.

The transport's exceptions never propagate: they become the causes of these errors. ``str()`` of each error is one line
for people that names verb, path and server, and never contains a token, a query string or a proxy's password.
"""

# ruff: noqa: N818 - named as the API names them: NotFound, Conflict, Gone

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec import Struct

from tightship.objects.unreadable import UNREADABLE


class KubeError(Exception):
    """The base of all errors at the cluster's edge."""


class ConfigError(KubeError):
    """The kubeconfig, or the service account of our pod, is unusable."""


class _NoAnswer(KubeError):
    hint = ""

    def __init__(self, verb: str, path: str, server: str, problem: str) -> None:
        super().__init__(f"{verb} {path} at {server}: {problem}{self.hint}")


class ConnectionFailed(_NoAnswer):
    """The server did not answer: network, TLS or timeout. The request may or may not have succeeded."""


class NotSent(_NoAnswer):
    """The request was not sent, because its sender might not write any more when its turn came. Nothing happened."""


class BadAnswer(_NoAnswer):
    """The answer is not one of an API server: broken JSON, or a page of something else at the same address."""

    hint = "; is this an API server?"


class StatusCause(Struct, frozen=True):
    """One entry of ``details.causes`` of a ``Status``; its reason shows that a PDB refused an eviction."""

    reason: str = ""
    message: str = ""
    field: str = ""


class ApiError(KubeError):
    """An answer with an HTTP *status* outside 2xx.

    *reason* and *message* come from the ``Status`` object; the reason may be empty. *retry_after* is in seconds,
    ``None`` if the server named no time.
    """

    hint = ""

    def __init__(
        self,
        status: int,
        reason: str = "",
        message: str = "",
        retry_after: float | None = None,
        *,
        causes: tuple[StatusCause, ...] = (),
        verb: str = "",
        path: str = "",
        server: str = "",
    ) -> None:
        where = f"{verb} {path} at {server}: " if verb else ""
        super().__init__(f"{where}{status} {reason or 'without a reason'}: {message or 'no message'}{self.hint}")
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after = retry_after
        self.causes = causes


class BadRequest(ApiError):
    """400: the server can't make sense of the request."""


class Unauthorized(ApiError):
    """401: the server does not, or no longer, accept the credentials."""

    hint = "; the server does not accept these credentials: log in again, or name another user or context"


class Forbidden(ApiError):
    """403: the server knows the caller but does not allow the request."""


class NotFound(ApiError):
    """404: the object does not exist, or the server does not serve its kind."""


class Conflict(ApiError):
    """409: another write came first, or a precondition failed."""


class Gone(ApiError):
    """410: the resource version or continue token is too old, so list again."""


class Invalid(ApiError):
    """422: validation refused the object."""


class TooManyRequests(ApiError):
    """429: priority and fairness, or, for an eviction, a disruption budget."""


class Unavailable(ApiError):
    """Any 5xx."""


_BY_STATUS: dict[int, type[ApiError]] = {
    400: BadRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    422: Invalid,
    429: TooManyRequests,
}


class AccessDenied(KubeError):
    """Reading kinds that every decision needs is forbidden."""

    def __init__(self, denied: Mapping[str, Forbidden], identity: str) -> None:
        refused = "; ".join(f"{kind}: {error.message or 'forbidden'}" for kind, error in sorted(denied.items()))
        super().__init__(
            f"{identity} does not allow reading {', '.join(sorted(denied))} ({refused}). "
            "Bind the ClusterRole in docs/permissions.md (list and watch of these resources) to this account"
        )


class NotSynced(KubeError):
    """The cache did not read *kind* in *timeout* seconds; *failure* is the last obstacle."""

    def __init__(self, kind: str, failure: KubeError | None, timeout: float) -> None:
        why = "not listed yet" if failure is None else one_line(failure)
        super().__init__(f"not synced after {timeout:g} s ({kind}: {why})")


class _Details(Struct):
    retry_after_seconds: float | None = msgspec.field(default=None, name="retryAfterSeconds")
    causes: tuple[StatusCause, ...] | None = None


class ApiStatus(Struct):
    """``metav1.Status``, the body of an error and the object of a watch's ``ERROR`` event."""

    code: int = 0
    reason: str = ""
    message: str = ""
    details: _Details | None = None


_status = msgspec.json.Decoder(ApiStatus)
_LONGEST_TEXT = 300


def api_error(
    status: int,
    body: bytes | msgspec.Raw,
    *,
    retry_after: str | None = None,
    verb: str = "",
    path: str = "",
    server: str = "",
) -> ApiError:
    """Return the typed error for an answer with *status* and *body*; *retry_after* is the header of that name."""
    try:
        parsed = _status.decode(body)
    except UNREADABLE:
        # A proxy or load balancer on the way answered in plain text or HTML.
        text = " ".join(bytes(body)[:_LONGEST_TEXT].decode("utf-8", "replace").split())
        parsed = ApiStatus(message=text)
    code = status or parsed.code
    seconds = parsed.details.retry_after_seconds if parsed.details else None
    if retry_after is not None and retry_after.strip().isdigit():
        seconds = float(retry_after.strip())
    kind = _BY_STATUS.get(code) or (Unavailable if code >= 500 else ApiError)
    causes = (parsed.details.causes if parsed.details else None) or ()
    return kind(
        code, parsed.reason, parsed.message, seconds or None, causes=causes, verb=verb, path=path, server=server
    )


def one_line(error: BaseException) -> str:
    """Return the text of *error* on one line, or its type's name if it has no text."""
    return " ".join(str(error).split()) or type(error).__name__


def problem_of(error: BaseException) -> str:
    """Return the text of *error* on one line. An error without a text is a timeout: there was no answer in time."""
    return one_line(error) if str(error) else "no answer in time"
