"""Selectors, taints and tolerations on raw API objects, by the API's documentation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Json = dict[str, Any]
Labels = Mapping[str, str]


def selects(selector: Json | None, labels: Labels) -> bool:
    """Whether a LabelSelector matches; an absent one matches nothing, an empty one everything."""
    if selector is None:
        return False
    if any(labels.get(key) != value for key, value in (selector.get("matchLabels") or {}).items()):
        return False
    return all(_meets(each, labels) for each in selector.get("matchExpressions") or [])


def blank(selector: Json) -> bool:
    """Whether a LabelSelector has no requirement."""
    return not selector.get("matchLabels") and not selector.get("matchExpressions")


def node_selected(pod: Json, node: Json) -> bool:
    """Whether node selector and required node affinity allow the node."""
    spec = pod["spec"]
    labels = node["metadata"].get("labels") or {}
    if any(labels.get(key) != value for key, value in (spec.get("nodeSelector") or {}).items()):
        return False
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if required is None:
        return True
    return any(_term_matches(term, node["metadata"]["name"], labels) for term in required["nodeSelectorTerms"])


def _term_matches(term: Json, name: str, labels: Labels) -> bool:
    expressions, fields = term.get("matchExpressions") or [], term.get("matchFields") or []
    if not expressions and not fields:
        return False
    return all(_meets(each, labels) for each in expressions) and all(
        _meets(each, {"metadata.name": name}) for each in fields
    )


def _meets(requirement: Json, labels: Labels) -> bool:
    key, operator, values = requirement["key"], requirement["operator"], requirement.get("values") or []
    if operator == "Exists":
        return key in labels
    if operator == "DoesNotExist":
        return key not in labels
    if operator == "In":
        return labels.get(key) in values
    if operator == "NotIn":
        return labels.get(key) not in values
    try:
        have, bound = int(labels[key]), int(values[0])
    except (KeyError, ValueError):
        return False
    return have > bound if operator == "Gt" else have < bound


def intolerable(pod: Json, taints: list[Json]) -> str:
    """Return the first NoSchedule or NoExecute taint the pod does not tolerate, or an empty text."""
    for taint in taints:
        if taint["effect"] != "PreferNoSchedule" and not tolerates(pod, taint):
            return f"{taint['key']}:{taint['effect']}"
    return ""


def tolerates(pod: Json, taint: Json) -> bool:
    """Whether one of the pod's tolerations covers the taint."""
    for toleration in pod["spec"].get("tolerations") or []:
        if toleration.get("effect") not in (None, "", taint["effect"]):
            continue
        if toleration.get("key") not in (None, "", taint["key"]):
            continue
        if toleration.get("operator", "Equal") == "Exists":
            return True
        if toleration.get("key") and toleration.get("value", "") == taint.get("value", ""):
            return True
    return False
