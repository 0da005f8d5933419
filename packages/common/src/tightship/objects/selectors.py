"""Label selectors, node selector terms, taints and tolerations, matched as the API machinery and kube-scheduler do.

These are wire structs, decoded by msgspec from the API's JSON with its field names, and each can match. On the command
line, a label selector is a text: equality-based and set-based (``labels.Parse``).
Sources: ``k8s.io/apimachinery/pkg/labels``, ``k8s.io/component-helpers/scheduling/corev1`` (node affinity, taints).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Generic, TypeVar

from msgspec import Struct

from tightship.objects.quoting import quoted

Labels = Mapping[str, str]
"""Labels of one object. Objects share these mappings; never change one."""

_INTEGER = re.compile(r"[+-]?[0-9]{1,63}", re.ASCII)


class Requirement(Struct, frozen=True, gc=False):
    """One ``matchExpressions`` or ``matchFields`` entry."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def matches(self, labels: Labels) -> bool:
        """Whether *labels* meet this requirement. An unknown operator matches nothing."""
        have = labels.get(self.key)
        match self.operator:
            case "In":
                return have is not None and have in self.values
            case "NotIn":
                return have is None or have not in self.values
            case "Exists":
                return have is not None
            case "DoesNotExist":
                return have is None
            case "Gt" | "Lt":
                return have is not None and len(self.values) == 1 and self._compares(have, self.values[0])
            case _:
                return False

    def _compares(self, have: str, want: str) -> bool:
        # Both sides must be 64-bit integers, or the requirement matches nothing (labels.Requirement.Matches).
        if not (_INTEGER.fullmatch(have) and _INTEGER.fullmatch(want)):
            return False
        left, right = int(have), int(want)
        if not all(-(2**63) <= number < 2**63 for number in (left, right)):
            return False
        return left > right if self.operator == "Gt" else left < right


class LabelSelector(Struct, frozen=True, rename="camel", gc=False):
    """``metav1.LabelSelector``. The empty selector matches everything; an absent one (``None``) matches nothing."""

    match_labels: dict[str, str] | None = None
    match_expressions: tuple[Requirement, ...] | None = None

    def matches(self, labels: Labels) -> bool:
        """Whether *labels* meet every part of the selector."""
        for key, want in (self.match_labels or {}).items():
            if labels.get(key) != want:
                return False
        return all(requirement.matches(labels) for requirement in self.match_expressions or ())

    @property
    def empty(self) -> bool:
        """Whether the selector has no requirement."""
        return not self.match_labels and not self.match_expressions

    def __hash__(self) -> int:
        return hash((tuple(sorted((self.match_labels or {}).items())), self.match_expressions))


_T = TypeVar("_T")


_Entry = tuple[LabelSelector | None, _T]
"""A thing with its selector, ``None`` if the entry under which the thing is filed is all that the selector asks."""


class _NamespaceIndex(Generic[_T]):
    """What is filed in one namespace: by label pair, by label key, and the rest."""

    def __init__(self) -> None:
        self.by_pair: dict[str, dict[str, list[_Entry[_T]]]] = {}
        self.by_key: dict[str, list[_Entry[_T]]] = {}
        self.rest: list[_Entry[_T]] = []

    def entries(self, key: str, value: str) -> list[_Entry[_T]]:
        return self.by_pair.setdefault(key, {}).setdefault(value, [])

    def add(self, selector: LabelSelector, thing: _T) -> None:
        pairs, requirements = selector.match_labels or {}, selector.match_expressions or ()
        filed: _Entry[_T] = (None if len(pairs) + len(requirements) == 1 else selector, thing)
        if len(pairs) == 1:
            ((key, value),) = pairs.items()
            self.entries(key, value).append(filed)
            return
        if pairs:
            # Any pair would do. A pair that few others ask for keeps the look-ups short.
            min((self.entries(*pair) for pair in sorted(pairs.items())), key=len).append(filed)
            return
        chosen = min((each for each in requirements if each.operator == "In"), key=_values, default=None)
        if chosen is not None:
            for value in dict.fromkeys(chosen.values):
                self.entries(chosen.key, value).append(filed)
            return
        present = next((each for each in requirements if each.operator in _PRESENT), None)
        if present is None:
            self.rest.append((selector, thing))
        else:
            self.by_key.setdefault(present.key, []).append(filed if present.operator == "Exists" else (selector, thing))

    def find(self, labels: Labels, found: list[_T]) -> None:
        for key, by_value in self.by_pair.items():
            value = labels.get(key)
            if value is not None and value in by_value:
                found += [thing for selector, thing in by_value[value] if selector is None or selector.matches(labels)]
        for key, filed in self.by_key.items():
            if key in labels:
                found += [thing for selector, thing in filed if selector is None or selector.matches(labels)]
        for selector, thing in self.rest:
            if selector is None or selector.matches(labels):
                found.append(thing)


_PRESENT = frozenset({"Exists", "Gt", "Lt"})
"""Operators that match only labels with the requirement's key."""


def _values(requirement: Requirement) -> int:
    return len(requirement.values)


class SelectorIndex(Generic[_T]):
    """Finds things by the labels that they select, without asking every selector.

    The index files a selector under label pairs one of which every match has: a pair of its ``matchLabels``, or each
    value of an ``In``. A selector that only asks for a key is filed under the key. A look-up asks only the selectors
    filed under the given labels, and the few others (``NotIn``, ``DoesNotExist``, the empty selector).
    """

    def __init__(self) -> None:
        self._indexes: dict[str | None, _NamespaceIndex[_T]] = {}

    def add(self, namespace: str | None, selector: LabelSelector | None, thing: _T) -> None:
        """File *thing* under *selector* in *namespace* (``None``: all). A *selector* of ``None`` selects nothing."""
        if selector is None:
            return
        index = self._indexes.get(namespace)
        if index is None:
            index = self._indexes[namespace] = _NamespaceIndex()
        index.add(selector, thing)

    def find(self, namespace: str, labels: Labels) -> list[_T]:
        """Return the things whose selectors match *labels* in *namespace*, in no particular order."""
        found: list[_T] = []
        for where in (namespace, None):
            index = self._indexes.get(where)
            if index is not None:
                index.find(labels, found)
        return found


class NodeSelectorTerm(Struct, frozen=True, rename="camel", gc=False):
    """One term of required node affinity; an empty term matches no node."""

    match_expressions: tuple[Requirement, ...] | None = None
    match_fields: tuple[Requirement, ...] | None = None

    def matches(self, name: str, labels: Labels) -> bool:
        """Whether the node *name* with *labels* meets every expression and field of the term."""
        if not self.match_expressions and not self.match_fields:
            return False
        if not all(requirement.matches(labels) for requirement in self.match_expressions or ()):
            return False
        fields = {"metadata.name": name}
        return all(requirement.matches(fields) for requirement in self.match_fields or ())


class NodeSelector(Struct, frozen=True, rename="camel", gc=False):
    """Terms joined by OR; no terms match no node."""

    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()

    def matches(self, name: str, labels: Labels) -> bool:
        """Whether any term matches the node *name* with *labels*."""
        return any(term.matches(name, labels) for term in self.node_selector_terms)


class Taint(Struct, frozen=True, gc=False):
    """A node taint."""

    key: str
    effect: str
    value: str | None = None

    def __str__(self) -> str:
        return f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"


class Toleration(Struct, frozen=True, gc=False):
    """A pod toleration. The gated operators ``Lt`` and ``Gt`` tolerate nothing here, which is the safe choice."""

    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None

    def tolerates(self, taint: Taint) -> bool:
        """Whether this toleration tolerates *taint* (``Toleration.ToleratesTaint``)."""
        if self.effect and self.effect != taint.effect:
            return False
        if self.key and self.key != taint.key:
            return False
        match self.operator or "Equal":
            case "Exists":
                return True
            case "Equal":
                return bool(self.key) and (self.value or "") == (taint.value or "")
            case _:
                return False


def untolerated(taints: Iterable[Taint], tolerations: Iterable[Toleration], effects: frozenset[str]) -> Taint | None:
    """Return the first taint with one of *effects* that no toleration tolerates, or ``None``."""
    tolerations = tuple(tolerations)
    for taint in taints:
        if taint.effect in effects and not any(toleration.tolerates(taint) for toleration in tolerations):
            return taint
    return None


HARD_EFFECTS = frozenset({"NoSchedule", "NoExecute"})
"""Effects that keep kube-scheduler from using a node."""

SOFT_EFFECTS = frozenset({"PreferNoSchedule"})
"""Effects that only lower a node's score."""


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
