"""Label selectors, as the API server matches them."""

from __future__ import annotations

from collections.abc import Mapping

from tightship_testkit.client import Json


def matches(selector: Json | None, labels: Mapping[str, str]) -> bool:
    """Whether a LabelSelector selects these labels; none selects nothing, an empty one all.

    Raises ValueError for an operator that the API does not know.
    """
    if selector is None:
        return False
    for key, value in (selector.get("matchLabels") or {}).items():
        if labels.get(key) != value:
            return False
    return all(_meets(term, labels) for term in selector.get("matchExpressions") or [])


def _meets(term: Json, labels: Mapping[str, str]) -> bool:
    key, values = term["key"], term.get("values") or []
    match term["operator"]:
        case "In":
            return labels.get(key) in values
        case "NotIn":
            return labels.get(key) not in values
        case "Exists":
            return key in labels
        case "DoesNotExist":
            return key not in labels
        case operator:
            raise ValueError(f"unknown operator in a label selector: {operator}")
