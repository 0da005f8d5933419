"""Label selectors on the command line: equality-based and set-based (``labels.Parse``)."""

from __future__ import annotations

import re

from tightship.objects.quoting import quoted
from tightship.objects.selectors import LabelSelector, Requirement

ALLOWED_FORMS = "allowed are a=b, a==b, a!=b, a in (b,c), a notin (b,c), a, !a, a>1, a<1, joined by commas"

_NAME = r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_KEY = rf"(?:[a-z0-9](?:[-a-z0-9.]{{0,251}}[a-z0-9])?/)?{_NAME}"
_VALUE = re.compile(rf"(?:{_NAME})?", re.ASCII)
_FORMS = (
    (re.compile(rf"({_KEY})\s*(?:==|=)\s*([^\s,=!<>()]*)", re.ASCII), "In"),
    (re.compile(rf"({_KEY})\s*!=\s*([^\s,=!<>()]*)", re.ASCII), "NotIn"),
    (re.compile(rf"({_KEY})\s+in\s*\(([^()]*)\)", re.ASCII), "In"),
    (re.compile(rf"({_KEY})\s+notin\s*\(([^()]*)\)", re.ASCII), "NotIn"),
    (re.compile(rf"({_KEY})\s*>\s*([+-]?[0-9]+)", re.ASCII), "Gt"),
    (re.compile(rf"({_KEY})\s*<\s*([+-]?[0-9]+)", re.ASCII), "Lt"),
    (re.compile(rf"!\s*({_KEY})", re.ASCII), "DoesNotExist"),
    (re.compile(rf"({_KEY})", re.ASCII), "Exists"),
)
_SPLIT = re.compile(r"\([^()]*+\)|[^,()]++|(,)|[()]")
"""Separates a selector at the commas outside of parentheses. The requirement refuses an unmatched parenthesis."""


class SelectorError(ValueError):
    """A text that is not a label selector."""

    def __init__(self, text: str, why: str) -> None:
        super().__init__(f"selector {quoted(text)}: {why}; {ALLOWED_FORMS}")


def parse_selector(text: str) -> LabelSelector:
    """Return the selector that *text* spells; an empty text selects everything. Raises :class:`SelectorError`."""
    if not text.strip():
        return LabelSelector()
    return LabelSelector(match_expressions=tuple(_requirement(part.strip(), text) for part in _parts(text)))


def _parts(text: str) -> list[str]:
    parts, begin = [], 0
    for found in _SPLIT.finditer(text):
        if found[1]:
            parts.append(text[begin : found.start()])
            begin = found.end()
    return [*parts, text[begin:]]


def _requirement(part: str, whole: str) -> Requirement:
    for form, operator in _FORMS:
        found = form.fullmatch(part)
        if found is None:
            continue
        if operator in ("Exists", "DoesNotExist"):
            return Requirement(found[1], operator)
        values = tuple(dict.fromkeys(value.strip() for value in found[2].split(",")))
        for value in values:
            if operator in ("In", "NotIn") and not _VALUE.fullmatch(value):
                raise SelectorError(whole, f"{quoted(value)} can't be the value of a label")
        return Requirement(found[1], operator, values)
    raise SelectorError(whole, f"{quoted(part)} is not a requirement" if part else "a requirement is empty")
