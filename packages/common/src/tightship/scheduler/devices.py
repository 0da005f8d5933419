"""Devices of dynamic resource allocation as amounts of a resource, so that plans count them like any other. Pure.

Pods ask for devices by claims of a template (``resourceClaims``), or by an extended resource that a DeviceClass backs
(KEP-5004). Where no two such wishes compete for some of the same devices only, what a node has of each is a number: its
devices in complete pools of the newest generation, without tainted ones and those that others hold. Pods of which that
can't be said keep their nodes, with the reason ResourceClaims.

Of a CEL selector, for the expressions that drivers ship and people write, judged are comparisons joined by ``&&``: of
the driver, of an attribute with text, a whole number or a truth value, and of a capacity with a quantity. Any other
expression raises :class:`SelectorUnknownError`: what uses it is not judged.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar
from weakref import WeakKeyDictionary

import msgspec
from msgspec import Struct

from tightship.cluster import NOT_SERVED, NodeView, Snapshot
from tightship.cluster.state import sum_up
from tightship.objects import Pod, PodSpec, PodTemplate
from tightship.objects.devices import (
    DEVICE_CLASS,
    DEVICE_KINDS,
    RESOURCE_CLAIM,
    Allocated,
    Device,
    DeviceRequest,
    ResourceSlice,
)
from tightship.objects.quantity import QuantityError, nano
from tightship.objects.quoting import quoted
from tightship.objects.resources import Resources

_TEXT = r"(?:\"(?P<text>[^\"\\]{0,256})\"|'(?P<single>[^'\\]{0,256})')"
_DOMAIN = r"(?:\"(?P<domain>[^\"\\]{1,256})\"|'(?P<domain1>[^'\\]{1,256})')"
_FIELD = rf"device\.(?P<map>attributes|capacity)\[{_DOMAIN}\]\.(?P<name>\w{{1,64}})"
_DRIVER = re.compile(rf"device\.driver\s{{0,9}}==\s{{0,9}}{_TEXT}")
_ATTRIBUTE = re.compile(rf"{_FIELD}\s{{0,9}}==\s{{0,9}}(?:{_TEXT}|(?P<number>-?\d{{1,18}})|(?P<truth>true|false))")
_CAPACITY = re.compile(
    rf"{_FIELD}\.compareTo\(\s{{0,9}}quantity\({_TEXT}\)\s{{0,9}}\)\s{{0,9}}(?P<sign>>=|==|>|<=|<)\s{{0,9}}0"
)


_T = TypeVar("_T")


class SelectorUnknownError(Exception):
    """An expression that no rule here can judge; the message quotes it."""


def selected(expression: str, driver: str, device: Device) -> bool:
    """Return whether *device* of *driver* meets *expression*. Raises :class:`SelectorUnknownError`."""
    # As in CEL, what follows a comparison that fails is not looked at.
    return all(_meets(term.strip(), expression, driver, device) for term in expression.split("&&"))


def _meets(term: str, expression: str, driver: str, device: Device) -> bool:
    if found := _DRIVER.fullmatch(term):
        return _said(found) == driver
    if (found := _ATTRIBUTE.fullmatch(term)) and found["map"] == "attributes":
        attribute = _field(device.attributes, found, driver)
        if attribute is not None and found["number"]:
            return attribute.number == int(found["number"])
        if attribute is not None and found["truth"]:
            return attribute.truth == (found["truth"] == "true")
        if attribute is not None and attribute.string is not None:
            return attribute.string == _said(found)
    elif (found := _CAPACITY.fullmatch(term)) and found["map"] == "capacity":
        capacity = _field(device.capacity, found, driver)
        if capacity is not None:
            try:
                left, right = nano(capacity.value), nano(_said(found))
            except QuantityError:
                raise SelectorUnknownError(f"the selector {quoted(expression)}") from None
            order, sign = (left > right) - (left < right), found["sign"]
            return {">=": order >= 0, "==": order == 0, ">": order > 0, "<=": order <= 0, "<": order < 0}[sign]
    raise SelectorUnknownError(f"the selector {quoted(expression)}")


def _said(found: re.Match[str]) -> str:
    return found["text"] if found["text"] is not None else found["single"] or ""


def _field(fields: dict[str, _T], found: re.Match[str], driver: str) -> _T | None:
    domain = found["domain"] or found["domain1"]
    own = fields.get(f"{domain}/{found['name']}")
    return own if own is not None or domain != driver else fields.get(found["name"])


_PREFIX = "deviceclass.resource.kubernetes.io/"
"""Before the name of a DeviceClass, this is the extended resource that each class backs."""

_MOST = 2**31
"""More devices than that are as good as endless."""


class _Needs(Struct, frozen=True):
    """What a pod needs of each group of devices, in place of the extended resources *instead_of*; or a *problem*."""

    amounts: tuple[tuple[str, int], ...] = ()
    instead_of: tuple[str, ...] = ()
    problem: str = ""


_made: WeakKeyDictionary[PodTemplate, dict[_Needs, PodTemplate]] = WeakKeyDictionary()


def with_devices(snapshot: Snapshot) -> Snapshot:
    """Return *snapshot* with devices as amounts in ``allocatable`` of nodes and in requests of pods.

    Nothing changes in a cluster whose pods ask for no device.
    """
    missing = {kind: why for kind in DEVICE_KINDS if (why := snapshot.missing.get(kind))}
    broken = any(each.kind == DEVICE_CLASS for each in snapshot.unreadable)
    if NOT_SERVED in missing.values() or not (missing or snapshot.device_classes or broken):
        return snapshot
    survey = _Survey(snapshot, _unknown(snapshot, missing))
    demands = {
        pod.key: survey.needs(pod)
        for pods in (*(view.pods for view in snapshot.nodes.values()), snapshot.unscheduled)
        for pod in pods
        if survey.asks(pod)
    }
    if not demands:
        return snapshot
    found = survey.settled(demands)
    nodes: dict[str, NodeView] = {}
    for name, view in snapshot.nodes.items():
        pods = tuple(_replaced(pod, found.get(pod.key)) for pod in view.pods)
        used: Counter[str] = Counter()
        for pod in view.pods:
            used.update(dict(found[pod.key].amounts) if pod.key in found else {})
        more = survey.free(name, used)
        if not more and all(new is old for new, old in zip(pods, view.pods, strict=True)):
            nodes[name] = view
            continue
        node = msgspec.structs.replace(view.node, allocatable={**more, **view.node.allocatable})
        nodes[name] = NodeView(node, pods, sum_up(pods))
    unscheduled = tuple(_replaced(pod, found.get(pod.key)) for pod in snapshot.unscheduled)
    return msgspec.structs.replace(snapshot, nodes=nodes, unscheduled=unscheduled)


def _unknown(snapshot: Snapshot, missing: Mapping[str, str]) -> str:
    """Return why no device is known to be free, empty if that is known: a claim that can't be read may hold any."""
    if missing:
        return ", ".join(f"{kind} objects could not be read ({why})" for kind, why in missing.items())
    bad = (each.key for each in snapshot.unreadable if each.kind == RESOURCE_CLAIM)
    return next((f"{RESOURCE_CLAIM} {key} can't be read, and may hold any device" for key in bad), "")


def _replaced(pod: Pod, needs: _Needs | None) -> Pod:
    """Return *pod* with its devices among its requests, or with what is not known of them."""
    if needs is None:
        return pod
    known = _made.setdefault(pod.template, {})
    template = known.get(needs)
    if template is None:
        spec = pod.template.spec
        asked = msgspec.structs.replace(
            spec,
            requests=_requests(spec.requests, needs),
            claims_devices=bool(needs.problem),
            devices_unknown=needs.problem,
        )
        template = known[needs] = msgspec.structs.replace(pod.template, spec=asked)
    same = pod.requests is pod.template.spec.requests
    return msgspec.structs.replace(
        pod, template=template, requests=template.spec.requests if same else _requests(pod.requests, needs)
    )


def _requests(requests: Resources, needs: _Needs) -> Resources:
    kept = {name: amount for name, amount in requests.items() if name not in needs.instead_of}
    for name, count in needs.amounts:
        kept[name] = kept.get(name, 0) + count
    return kept


class _Group(Struct, frozen=True):
    """The devices that one wish may be met by: their *ids*, how many untainted ones each node has, or a *problem*."""

    name: str
    ids: frozenset[Allocated] = frozenset()
    by_node: Mapping[str, int] = {}
    problem: str = ""


_Selection = tuple[str, tuple[str, ...]]
"""A class, and selectors beside the class's own."""


class _Survey:
    """The devices of *snapshot*, and who wishes what. *problem*, if any, says why no wish can be judged."""

    def __init__(self, snapshot: Snapshot, problem: str) -> None:
        self._snapshot = snapshot
        self._problem = problem
        self._slices = list(_complete(snapshot.slices.values()))
        self._node_of = {
            Allocated(each.driver, each.pool.name, device.name): each.node
            for each in self._slices
            for device in each.devices
        }
        held = (one for claim in snapshot.resource_claims.values() for one in claim.allocated)
        self._held = frozenset(held)
        classes = sorted(snapshot.device_classes.items())
        self._extended = {each.extended: name for name, each in classes if each.extended}
        self._plugged = frozenset(name for view in snapshot.nodes.values() for name in view.node.allocatable)
        self._asks: dict[PodSpec, bool] = {}
        self._groups: dict[_Selection, _Group] = {}
        self._counted: list[_Group] = []

    def asks(self, pod: Pod) -> bool:
        """Whether *pod* asks for devices."""
        spec = pod.spec
        known = self._asks.get(spec)
        if known is None:
            known = self._asks[spec] = bool(spec.claims or self._backed(spec))
        return known

    def needs(self, pod: Pod) -> _Needs:
        """Return what *pod*, which asks for devices, needs: amounts by the groups of its own wishes alone."""
        spec = pod.spec
        extended = self._backed(spec)
        try:
            if self._problem:
                raise SelectorUnknownError(self._problem)
            amounts: Counter[str] = Counter()
            for each in self._asked(pod):
                amounts[self._group(each).name] += min(each.count, _MOST)
            for name in extended:
                of_class = self._extended.get(name, name.removeprefix(_PREFIX))
                amounts[self._group(DeviceRequest(of_class, (), 1)).name] += spec.requests[name]
        except SelectorUnknownError as error:
            what = "resource claims" if spec.claims else f"{', '.join(extended)}, which no device plugin offers"
            return _Needs(instead_of=extended, problem=f"requests devices by {what}: {error}")
        return _Needs(tuple(sorted(amounts.items())), extended)

    def _backed(self, spec: PodSpec) -> tuple[str, ...]:
        """Return the extended resources of *spec* behind which devices stand, since no device plugin offers them."""
        names = sorted(name for name in spec.requests if "/" in name and name not in self._plugged)
        if self._problem and not self._extended:
            return tuple(names)  # nothing tells which of them are devices
        return tuple(name for name in names if name in self._extended or name.startswith(_PREFIX))

    def _asked(self, pod: Pod) -> Iterator[DeviceRequest]:
        made = dict(pod.claims)
        for each in pod.spec.claims:
            if each.claim:
                raise SelectorUnknownError(f"claim {pod.namespace}/{each.claim} may serve several pods")
            key = f"{pod.namespace}/{made.get(each.name, '')}"
            claim = self._snapshot.resource_claims.get(key) if each.name in made else None
            if claim is None:
                raise SelectorUnknownError(f"the claim for {each.name} does not exist yet")
            for request in claim.requests:
                if request.problem:
                    raise SelectorUnknownError(f"claim {key} {request.problem}")
                yield request

    def _group(self, asked: DeviceRequest) -> _Group:
        selection = asked.device_class, asked.selectors
        group = self._groups.get(selection)
        if group is None:
            group = self._groups[selection] = self._found(*selection)
        if group.problem:
            raise SelectorUnknownError(group.problem)
        return group

    def _found(self, name: str, more: tuple[str, ...]) -> _Group:
        of_class = self._snapshot.device_classes.get(name)
        if of_class is None:
            return _Group("", problem=f"{DEVICE_CLASS} {name} does not exist, or can't be read")
        ids: set[Allocated] = set()
        by_node: Counter[str] = Counter()
        try:
            for each in self._slices:
                for device in each.devices:
                    if not all(selected(one, each.driver, device) for one in (*of_class.selectors, *more)):
                        continue
                    if not each.node or device.shared:
                        where = f"{each.driver}/{each.pool.name}/{device.name}"
                        return _Group("", problem=f"device {where} may be shared, or used on several nodes")
                    ids.add(Allocated(each.driver, each.pool.name, device.name))
                    by_node[each.node] += not device.tainted
        except SelectorUnknownError as error:
            return _Group("", problem=f"{error} of {DEVICE_CLASS} {name}, or of a claim, is none that Tightship judges")
        title = of_class.extended if of_class.extended and not more else f"devices of {name}"
        return _Group(f"{title} by {len(self._groups)} other selectors" if more else title, frozenset(ids), by_node)

    def settled(self, demands: Mapping[str, _Needs]) -> dict[str, _Needs]:
        """Return *demands* with one name for each set of devices. Sets that overlap are not judged."""
        groups = sorted((each for each in self._groups.values() if not each.problem), key=lambda each: each.name)
        first: dict[frozenset[Allocated], str] = {}
        names = {each.name: first.setdefault(each.ids, each.name) if each.ids else each.name for each in groups}
        apart = [each for each in groups if names[each.name] == each.name]
        bad = {
            each.name: other.name
            for each in apart
            for other in apart
            if each is not other and not each.ids.isdisjoint(other.ids)
        }
        self._counted = [each for each in apart if each.name not in bad]
        found: dict[str, _Needs] = {}
        for key, needs in demands.items():
            renamed: Counter[str] = Counter()
            for name, count in needs.amounts:
                renamed[names[name]] += count
            wrong = next((name for name in renamed if name in bad), None)
            if wrong is not None:
                detail = f"some {wrong} are also among {bad[wrong]}, so neither can be counted"
                found[key] = _Needs(instead_of=needs.instead_of, problem=detail)
            else:
                found[key] = _Needs(tuple(sorted(renamed.items())), needs.instead_of, needs.problem)
        return found

    def free(self, node: str, used: Counter[str]) -> dict[str, int]:
        """Return how many devices of each group *node* has for pods, of which those there use *used*."""
        more: dict[str, int] = {}
        for each in self._counted:
            have = each.by_node.get(node, 0)
            held = sum(self._node_of[one] == node for one in each.ids & self._held)
            if have or used[each.name]:
                more[each.name] = max(0, have - max(0, held - used[each.name]))
        return more


def _complete(slices: Iterable[ResourceSlice]) -> Iterator[ResourceSlice]:
    """Yield those of *slices* that belong to a complete pool: all slices of its newest generation are there."""
    pools: dict[tuple[str, str], list[ResourceSlice]] = {}
    for each in slices:
        pools.setdefault((each.driver, each.pool.name), []).append(each)
    for found in pools.values():
        newest = max(each.pool.generation for each in found)
        current = [each for each in found if each.pool.generation == newest]
        if all(each.pool.resource_slice_count == len(current) for each in current):
            yield from current
