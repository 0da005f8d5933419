"""What a request asks for: the path, and the parameters of a list or a watch. Pure."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from msgspec import Struct

from tightship_simulator.api.errors import BadRequest, UnknownPath
from tightship_simulator.api.kinds import BY_PLURAL, Kind
from tightship_simulator.api.selectors import Matcher, field_matcher, label_matcher

Json = dict[str, Any]


class Target(Struct, frozen=True):
    """The objects that a path names; *name* and *namespace* are empty where it names none."""

    kind: Kind
    namespace: str = ""
    name: str = ""
    subresource: str = ""


@lru_cache(maxsize=1024)
def target_of(path: str) -> Target:
    """Return what *path* names. Raises :class:`~tightship_simulator.api.errors.UnknownPath`."""
    match path.strip("/").split("/"):
        case ["api", version, *rest] if rest:
            group = ""
        case ["apis", group, version, *rest] if rest:
            pass
        case _:
            raise UnknownPath
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in {"status", "finalize"}:
        namespace, rest = rest[1], rest[2:]
    kind = BY_PLURAL.get((group, version, rest[0]))
    if kind is None or len(rest) > 3 or (namespace and not kind.namespaced):
        raise UnknownPath
    name, subresource = (*rest[1:], "", "")[:2]
    if name and kind.namespaced and not namespace:
        raise UnknownPath
    return Target(kind, namespace, name, subresource)


class Asked(Struct, frozen=True):
    """A request for objects, and the status code of its answer; *verb* is the audit log's word, such as ``patch``."""

    verb: str
    resource: str
    namespace: str
    name: str
    subresource: str
    agent: str
    """The ``User-Agent`` of the client."""
    dry_run: bool
    code: int

    @property
    def writes(self) -> bool:
        """Whether it may have changed something."""
        return self.verb not in {"get", "list", "watch"} and not self.dry_run


_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


def asked(method: str, target: Target, query: Mapping[str, str], agent: str, code: int) -> Asked:
    """Return what a request that names *target* is in the log of requests."""
    verb = _VERBS.get(method, "get" if target.name else "list")
    if verb in {"get", "list"} and flag(query, "watch"):
        verb = "watch"
    if verb == "delete" and not target.name:
        verb = "deletecollection"
    kind, dry = target.kind, query.get("dryRun") == "All"
    return Asked(verb, kind.plural, target.namespace, target.name, target.subresource, agent, dry, code)


class Selection(Struct, frozen=True):
    """Which objects of a kind a list or a watch is about."""

    namespace: str
    by_label: Matcher
    by_field: Matcher
    plain: bool
    """Whether there is no selector."""

    def takes(self, thing: Json) -> bool:
        """Whether an object is among them."""
        if self.namespace and thing["metadata"].get("namespace") != self.namespace:
            return False
        return self.plain or (self.by_label(thing) and self.by_field(thing))


def selection(target: Target, query: Mapping[str, str]) -> Selection:
    """Return what the parameters select. Raises :class:`~tightship_simulator.api.errors.BadRequest`."""
    labels, fields = query.get("labelSelector", ""), query.get("fieldSelector", "")
    if target.name:
        # A watch of one object by its path.
        fields = ",".join(filter(None, (fields, f"metadata.name={target.name}")))
    by_label, by_field = label_matcher(labels), field_matcher(target.kind.name, fields)
    return Selection(target.namespace, by_label, by_field, not (labels or fields))


def number(query: Mapping[str, str], name: str) -> int | None:
    """Return a parameter that is a number of 0 or more, ``None`` where it is absent."""
    text = query.get(name, "")
    if not text:
        return None
    if not text.isdigit():
        raise BadRequest(f'Invalid value: "{text}": {name} must be a number of 0 or more')
    return int(text)


def flag(query: Mapping[str, str], name: str) -> bool:
    """Return a parameter that is true or false."""
    return query.get(name, "").lower() in {"true", "1"}


def token_of(version: int, after: tuple[str, str]) -> str:
    """Return the token with which a list of *version* goes on after the namespace and name *after*."""
    return base64.urlsafe_b64encode(json.dumps([version, *after]).encode()).decode()


def read_token(token: str) -> tuple[int, tuple[str, str]]:
    """Return version and last key of a token. Raises :class:`~tightship_simulator.api.errors.BadRequest`."""
    try:
        version, namespace, name = json.loads(base64.urlsafe_b64decode(token))
        return int(version), (str(namespace), str(name))
    except (binascii.Error, ValueError, TypeError) as error:
        raise BadRequest(f"continue key is not valid: {token}") from error
