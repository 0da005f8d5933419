"""Label and field selectors as they stand in a request."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from tightship_simulator import labels
from tightship_simulator.api.errors import BadRequest

Json = dict[str, Any]
Matcher = Callable[[Json], bool]

_KEY = r"[A-Za-z0-9]([-A-Za-z0-9_./]*[A-Za-z0-9])?"
_TERM = re.compile(
    rf"\s*(?:(?P<absent>!)\s*(?P<missing>{_KEY})"
    rf"|(?P<key>{_KEY})\s*(?:(?P<set>\s(?:in|notin))\s*\((?P<values>[^()]*)\)"
    r"|(?P<operator>==|=|!=|>|<)\s*(?P<value>[-A-Za-z0-9_.]*))?)\s*(?:,|$)"
)
_OPERATORS = {"=": "In", "==": "In", "!=": "NotIn", ">": "Gt", "<": "Lt", "in": "In", "notin": "NotIn"}

_FIELDS: dict[str, frozenset[str]] = {
    "Pod": frozenset({"spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "status.phase", "status.podIP"}),
    "Node": frozenset({"spec.unschedulable"}),
    "Namespace": frozenset({"status.phase"}),
    "Secret": frozenset({"type"}),
    "ReplicaSet": frozenset({"status.replicas"}),
    "Job": frozenset({"status.successful"}),
    "Event": frozenset(
        {"type", "reason", "reportingComponent", "source"}
        | {f"involvedObject.{name}" for name in ("kind", "name", "namespace", "uid", "apiVersion", "fieldPath")}
        | {f"regarding.{name}" for name in ("kind", "name", "namespace", "uid", "apiVersion", "fieldPath")}
    ),
}
"""Fields that can be selected by, besides ``metadata.name`` and ``metadata.namespace`` of every kind."""


def label_matcher(text: str) -> Matcher:
    """Return whether an object's labels meet *text*. Raises :class:`BadRequest` for what is no selector."""
    requirements = []
    at = 0
    while text[at:].strip():
        term = _TERM.match(text, at)
        if term is None or not term[0].strip():
            raise BadRequest(f'unable to parse requirement: found "{text[at:]}" in the label selector "{text}"')
        at = term.end()
        requirements.append(_requirement(term))
    selector = {"matchExpressions": requirements}
    return lambda thing: labels.selects(selector, thing["metadata"].get("labels") or {})


def _requirement(term: re.Match[str]) -> Json:
    if term["absent"]:
        return {"key": term["missing"], "operator": "DoesNotExist"}
    if term["set"]:
        values = [each.strip() for each in term["values"].split(",")]
        return {"key": term["key"], "operator": _OPERATORS[term["set"].strip()], "values": values}
    if term["operator"]:
        return {"key": term["key"], "operator": _OPERATORS[term["operator"]], "values": [term["value"]]}
    return {"key": term["key"], "operator": "Exists"}


def field_matcher(kind: str, text: str) -> Matcher:
    """Return whether an object's fields meet *text*. Raises :class:`BadRequest` for a field that can't be asked for."""
    terms = []
    for part in filter(None, text.split(",")):
        operator = "!=" if "!=" in part else "==" if "==" in part else "="
        field, found, value = part.partition(operator)
        if not found:
            raise BadRequest(f'invalid selector: "{text}"; can\'t understand "{part}"')
        if not field.startswith(("metadata.name", "metadata.namespace")) and field not in _FIELDS.get(kind, ()):
            raise BadRequest(f"field label not supported: {field}")
        terms.append((field.replace("regarding.", "involvedObject."), operator != "!=", value))
    return lambda thing: all((_field(thing, field) == value) == wanted for field, wanted, value in terms)


def _field(thing: Json, path: str) -> str:
    if path == "source":
        return str((thing.get("source") or {}).get("component") or thing.get("reportingComponent") or "")
    value: object = thing
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    if isinstance(value, bool) or path == "spec.unschedulable":
        return "true" if value else "false"
    return "" if value is None else str(value)
