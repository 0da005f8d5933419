"""Contradictions in the files of a cluster, in words: an API server would have prevented them.

None is an error: a plan is possible, but perhaps not of the cluster that somebody meant.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from tightship.cluster import Snapshot
from tightship.objects import ApiObject, Pod
from tightship.objects.counting import counted
from tightship.objects.quantity import MOST
from tightship.objects.quoting import quoted
from tightship.objects.selectors import LabelSelector, NodeSelector, Requirement

SOME_NAMESPACES = 2
"""Namespaces that ``kubectl cluster-info dump`` writes by itself."""

SHOWN = 3
"""Most examples that a remark names."""

_OPERATORS = frozenset({"In", "NotIn", "Exists", "DoesNotExist"})
_PERCENTAGE = re.compile(r"[0-9]{1,9}%", re.ASCII)


class Repeated:
    """Counts objects that occur more than once; the last of them counts."""

    def __init__(self) -> None:
        self._seen: Counter[tuple[str, str]] = Counter()

    def saw(self, kind: str, thing: ApiObject) -> None:
        """Record an object."""
        self._seen[kind, _key(thing)] += 1

    def remarks(self) -> Iterator[str]:
        """Yield a remark for each kind with objects that occur more than once."""
        repeated: dict[str, list[str]] = {}
        for (kind, key), times in self._seen.items():
            if times > 1:
                repeated.setdefault(kind, []).append(key)
        for kind, keys in sorted(repeated.items()):
            yield f"{_some(kind, keys)} more than once in the files: the last one counts"


def remarks_of(snapshot: Snapshot, strays: Sequence[Pod] = ()) -> tuple[str, ...]:
    """Return sentences about the contradictions in *snapshot*; *strays* are pods on nodes that the files don't have."""
    found: list[str] = [*_pods(snapshot, strays)]
    for each in (_amounts(snapshot), _operators(snapshot), _budgets(snapshot)):
        alike = list(each)
        found += alike[:SHOWN]
        if len(alike) > SHOWN:
            found.append(f"and {counted(len(alike) - SHOWN, 'more contradiction')} of this sort")
    return tuple(found)


def _pods(snapshot: Snapshot, strays: Sequence[Pod]) -> Iterator[str]:
    if "Pod" in snapshot.missing:
        yield "Pods are not in the file: every node looks empty. Give them too: -f nodes.json -f pods.json"
    if strays:
        nodes = list(dict.fromkeys(pod.node for pod in strays))
        keys = [pod.key for pod in strays]
        names = f"{', '.join(nodes[:SHOWN])}{_rest(nodes)}"
        where = "a node" if len(nodes) == 1 else "nodes"
        yield f"{_some('Pod', keys)} on {where} that the files don't have ({names}): nothing is planned there"


def partial(snapshot: Snapshot, lists: int) -> Iterator[str]:
    """Tell of pods that may be missing: ``kubectl cluster-info dump`` writes a PodList for each namespace, and without
    ``--all-namespaces`` only those of kube-system and one more. *lists* is how many PodLists there are.
    """
    spaces = sorted({pod.namespace for pod in _all_pods(snapshot)})
    if spaces and len(spaces) <= lists <= SOME_NAMESPACES:
        what = f"all pods are in {' and '.join(spaces)}: if there are more namespaces, nodes look emptier than they are"
        yield f"{what}; kubectl cluster-info dump writes the others only with --all-namespaces"


def _amounts(snapshot: Snapshot) -> Iterator[str]:
    for name, view in snapshot.nodes.items():
        for resource, amount in view.node.allocatable.items():
            if amount >= MOST:
                yield f"Node {name} says that it has more {resource} than any machine: {_count(resource)} counts"
    for pod in _all_pods(snapshot):
        for resource, amount in pod.requests.items():
            if amount >= MOST:
                yield f"Pod {pod.key} requests more {resource} than any machine has: {_count(resource)} counts"


def _count(resource: str) -> str:
    return f"{MOST // 1000:,}" if resource == "cpu" else f"{MOST:,}"


def _operators(snapshot: Snapshot) -> Iterator[str]:
    for operator, keys in _unknown(_pod_requirements(snapshot), _OPERATORS).items():
        yield f"{_some('Pod', keys)} with the unknown operator {quoted(operator)} in an affinity: it matches nothing"
    wanted = ((budget.key, _of(budget.selector)) for budget in snapshot.budgets)
    for operator, keys in _unknown(wanted, _OPERATORS).items():
        yield f"{_some('PodDisruptionBudget', keys)} with the unknown operator {quoted(operator)}: it selects nothing"


def _pod_requirements(snapshot: Snapshot) -> Iterator[tuple[str, Iterable[Requirement]]]:
    told: set[int] = set()
    for pod in _all_pods(snapshot):
        spec = pod.spec
        if id(spec) in told:
            continue
        told.add(id(spec))
        found = [*_terms(spec.node_affinity)]
        for term in (*spec.affinity, *spec.anti_affinity):
            found += [*_of(term.label_selector), *_of(term.namespace_selector)]
        for constraint in spec.spread:
            found += _of(constraint.label_selector)
        if found:
            yield pod.key, found


def _terms(selector: NodeSelector | None) -> Iterator[Requirement]:
    for term in selector.node_selector_terms if selector is not None else ():
        for each in (*(term.match_expressions or ()), *(term.match_fields or ())):
            # A node affinity alone may compare numbers.
            if each.operator not in ("Gt", "Lt"):
                yield each


def _of(selector: LabelSelector | None) -> tuple[Requirement, ...]:
    return () if selector is None else selector.match_expressions or ()


def _unknown(named: Iterable[tuple[str, Iterable[Requirement]]], known: frozenset[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for key, requirements in named:
        for operator in {each.operator for each in requirements} - known:
            found.setdefault(operator, []).append(key)
    return dict(sorted(found.items()))


def _budgets(snapshot: Snapshot) -> Iterator[str]:
    for budget in snapshot.budgets:
        for rule, value in (("maxUnavailable", budget.max_unavailable), ("minAvailable", budget.min_available)):
            if isinstance(value, str) and not _PERCENTAGE.fullmatch(value):
                allowed = "allowed is a number such as 1, or a percentage such as 50%"
                yield f"PodDisruptionBudget {budget.key}: {rule} {quoted(value)} is neither; {allowed}"
        if budget.max_unavailable is not None and budget.min_available is not None:
            yield f"PodDisruptionBudget {budget.key} has both maxUnavailable and minAvailable: one is allowed"


def _all_pods(snapshot: Snapshot) -> Iterator[Pod]:
    for view in snapshot.nodes.values():
        yield from view.pods
    yield from snapshot.unscheduled


def _some(kind: str, keys: list[str]) -> str:
    verb = "is" if len(keys) == 1 else "are"
    plural = kind if len(keys) == 1 else f"{len(keys):,} {kind}s"
    return f"{plural} {', '.join(keys[:SHOWN])}{_rest(keys)} {verb}"


def _rest(names: list[str]) -> str:
    return f" and {len(names) - SHOWN:,} more" if len(names) > SHOWN else ""


def _key(thing: ApiObject) -> str:
    namespace = getattr(thing, "namespace", "")
    return f"{namespace}/{thing.name}" if namespace else thing.name
