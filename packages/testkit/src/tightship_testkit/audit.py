"""The API server's audit log, one event per answered request."""

from __future__ import annotations

from pathlib import Path

import msgspec


class User(msgspec.Struct, frozen=True):
    """Who asked."""

    username: str = ""


class ObjectRef(msgspec.Struct, frozen=True):
    """What was asked for."""

    resource: str = ""
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    api_group: str = msgspec.field(default="", name="apiGroup")


class ResponseStatus(msgspec.Struct, frozen=True):
    """What was answered."""

    code: int = 0
    reason: str = ""
    message: str = ""


class AuditEvent(msgspec.Struct, frozen=True, rename="camel"):
    """A request and its answer. Times are RFC 3339 with microseconds."""

    verb: str
    request_uri: str = msgspec.field(name="requestURI")
    user: User = User()
    user_agent: str = ""
    object_ref: ObjectRef = ObjectRef()
    response_status: ResponseStatus = ResponseStatus()
    request_received_timestamp: str = ""
    stage_timestamp: str = ""
    response_object: msgspec.Raw = msgspec.Raw(b"null")
    """What was answered to a patch or update of a node or HPA; ``null`` for any other request."""
    stage: str = ""

    @property
    def code(self) -> int:
        """The HTTP status answered."""
        return self.response_status.code


def read(path: Path, offset: int = 0) -> tuple[list[AuditEvent], int]:
    """Events from a byte offset on, and the offset after the last whole line."""
    with path.open("rb") as log:
        log.seek(offset)
        events, length = parse(log.read())
    return events, offset + length


def parse(data: bytes) -> tuple[list[AuditEvent], int]:
    """Events in a part of a log, and the length of its whole lines in bytes."""
    whole = data[: data.rfind(b"\n") + 1]
    decoder = msgspec.json.Decoder(AuditEvent)
    return [decoder.decode(line) for line in whole.splitlines()], len(whole)
