"""What the API server says no with: each a ``Status`` with the code, reason and message of the real one.

Messages follow ``k8s.io/apimachinery/pkg/api/errors``; clients match on them.
"""

# ruff: noqa: N818 - named as the API names them: NotFound, Conflict, Expired

from __future__ import annotations

from typing import Any

from tightship_simulator.api.kinds import Kind

Json = dict[str, Any]


class Refused(Exception):
    """A request that is not carried out. *retry_after* is in seconds, and is sent as a header too."""

    code = 500
    reason = "InternalError"

    def __init__(self, message: str, *, details: Json | None = None, retry_after: int = 0) -> None:
        super().__init__(message)
        self.message = message
        self.details = details or {}
        self.retry_after = retry_after
        if retry_after:
            self.details["retryAfterSeconds"] = retry_after

    @property
    def status(self) -> Json:
        """The ``Status`` object that is the body of the answer."""
        reported: Json = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
        reported["message"] = self.message
        if self.reason:
            reported["reason"] = self.reason
        if self.details:
            reported["details"] = self.details
        return {**reported, "code": self.code}


class BadRequest(Refused):
    """400: the request makes no sense."""

    code = 400
    reason = "BadRequest"


class Forbidden(Refused):
    """403: understood, and not allowed."""

    code = 403
    reason = "Forbidden"


class NotFound(Refused):
    """404: no such object."""

    code = 404
    reason = "NotFound"


class UnknownPath(NotFound):
    """404: nothing is served under this path."""

    def __init__(self) -> None:
        super().__init__("the server could not find the requested resource")


class MethodNotAllowed(Refused):
    """405: the path is served, but not this method."""

    code = 405
    reason = "MethodNotAllowed"

    def __init__(self) -> None:
        super().__init__("the server does not allow this method on the requested resource")


class AlreadyExists(Refused):
    """409: an object of this name is there."""

    code = 409
    reason = "AlreadyExists"


class Conflict(Refused):
    """409: another write came first, or a precondition does not hold."""

    code = 409
    reason = "Conflict"


class Expired(Refused):
    """410: a version that is no longer remembered."""

    code = 410
    reason = "Expired"


class UnsupportedMediaType(Refused):
    """415: a patch or a body of a kind that is not understood."""

    code = 415
    reason = "UnsupportedMediaType"


class Invalid(Refused):
    """422: the object would not be valid, or a JSON patch does not apply."""

    code = 422
    reason = "Invalid"


class TooManyRequests(Refused):
    """429: for an eviction the verdict of a PodDisruptionBudget."""

    code = 429
    reason = "TooManyRequests"


class WithoutReason(Refused):
    """500 without a reason: a pod in two PodDisruptionBudgets; a watch from what is no version."""

    reason = ""


class TooLarge(Refused):
    """504: a version that has not been reached."""

    code = 504
    reason = "Timeout"


def details(kind: Kind, name: str = "", uid: str = "") -> Json:
    """Return ``Status.details`` of an object."""
    reported = {"name": name, "group": kind.group, "kind": kind.plural, "uid": uid}
    return {key: value for key, value in reported.items() if value}


def not_found(kind: Kind, name: str) -> NotFound:
    """Return the 404 of an object."""
    return NotFound(f'{kind.qualified} "{name}" not found', details=details(kind, name))


def already_exists(kind: Kind, name: str) -> AlreadyExists:
    """Return the 409 of a name that is taken."""
    return AlreadyExists(f'{kind.qualified} "{name}" already exists', details=details(kind, name))


def conflict(kind: Kind, name: str, problem: str) -> Conflict:
    """Return the 409 of a write on something that is not what the writer took it for."""
    detail = f'Operation cannot be fulfilled on {kind.qualified} "{name}": {problem}'
    return Conflict(detail, details=details(kind, name))


def invalid(kind: Kind, name: str, problems: list[tuple[str, str]]) -> Invalid:
    """Return the 422 of an object; *problems* are fields and what is wrong with each."""
    detail = "; ".join(f"{field}: {problem}" for field, problem in problems)
    causes = [{"reason": "FieldValueInvalid", "message": problem, "field": field} for field, problem in problems]
    about = {"name": name, "group": kind.group, "kind": kind.name, "causes": causes}
    return Invalid(f'{kind.name}{f".{kind.group}" if kind.group else ""} "{name}" is invalid: {detail}', details=about)
