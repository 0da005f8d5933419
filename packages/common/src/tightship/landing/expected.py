"""The landings that are expected: which replacements of evicted pods are expected, and on which nodes. Pure.

Before a drain evicts pods, it enters an expectation for each: the pod's controller will create a replacement, which
should land on the plan's target. An expectation holds for the eviction at hand only. A refused eviction ends it, and so
do its replacement and a few seconds without one.

:meth:`Landings.data` is what the admission policy has to know meanwhile: by the uid of a controller of pods, the nodes
where its next pods should land. The policy can't count, so it may also lead a pod that nobody expects.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec
from msgspec import Struct

from tightship.cluster import Snapshot
from tightship.draining.extensions import Landed
from tightship.objects import SAME_NAME, Pod
from tightship.objects.node import LEAVING
from tightship.objects.selectors import Requirement
from tightship.scheduler.space import Space

VALID = 5.0
"""Seconds after a granted eviction for which its replacement is expected."""

UNANSWERED = 40.0
"""Seconds for which an eviction may be without an answer: longer than one request for an eviction takes."""

LONGEST_GRACE = 120.0
"""Most seconds of a pod's grace period for which the replacement of a StatefulSet's pod is expected to come after."""

UNSCHEDULED = 30.0
"""Seconds after which a replacement without a node counts as not scheduled."""

_GONE = 2.0
"""Seconds after which a replacement that nobody sees counts as gone."""


AWAY = Requirement(LEAVING, "DoesNotExist")
NAME = "metadata.name"
"""What the policy has a led pod require of nodes, and the field by which the pod prefers some."""


class ExpectedLanding(Struct, frozen=True, kw_only=True):
    """A replacement of *pod*, expected on the node *target* until *until* (seconds).

    *answered* says that the server granted the eviction.
    """

    pod: Pod
    owner: str
    target: str
    until: float
    answered: bool = False


class Landing(Struct, frozen=True):
    """A replacement on its way to one of *targets* since *since* (seconds)."""

    targets: frozenset[str]
    since: float


def pods_of(snapshot: Snapshot, owners: Iterable[str]) -> dict[str, list[Pod]]:
    """Return the pods of *snapshot* by the uid of their controller, for each of *owners*."""
    found: dict[str, list[Pod]] = {uid: [] for uid in owners}
    for pod in _pods(snapshot):
        owner = pod.template.owner
        if owner is not None and owner.uid in found:
            found[owner.uid].append(pod)
    return found


def wanted_targets(moves: Iterable[tuple[Pod, str]], snapshot: Snapshot) -> list[tuple[Pod, str]]:
    """Return those of *moves* (pod, target) whose replacements can be led: a controller makes them, a scheduler
    that filters as kube-scheduler does places them, and the target is a node that still takes pods, led ones included.
    """
    return [
        (pod, target)
        for pod, target in moves
        if pod.owner is not None
        and pod.owner.uid
        and pod.spec.scheduler in snapshot.schedulers
        and takes_pods(snapshot, target)
    ]


def takes_pods(snapshot: Snapshot, node: str) -> bool:
    """Whether *node* exists, is Ready, is not cordoned, and does not leave."""
    view = snapshot.nodes.get(node)
    return view is not None and view.node.ready and not view.node.unschedulable and view.node.leaving is None


def preferred(pod: Pod) -> frozenset[str]:
    """Return the nodes that *pod* prefers by their names: where the admission policy leads it."""
    fields = (field for each in pod.spec.preferred_nodes for field in each.preference.match_fields or ())
    return frozenset(name for field in fields if field.key == NAME for name in field.values)


def led(pod: Pod) -> bool:
    """Whether the admission policy has led *pod*: it prefers nodes by their names, and keeps off all that leave."""
    required = pod.spec.node_affinity
    terms = [] if required is None else required.node_selector_terms
    terms = [each for each in terms if each.match_expressions or each.match_fields]
    return bool(preferred(pod)) and bool(terms) and all(AWAY in (each.match_expressions or ()) for each in terms)


def room_for(snapshot: Snapshot, pods: Iterable[Pod], leaving: Sequence[str]) -> list[str] | None:
    """Return those of the nodes *leaving*, the last ones first, that together take *pods* without a node.

    ``None`` if one of *pods* fits on none of them by the filters of kube-scheduler, as far as they are known.
    """
    space = Space(snapshot)
    order = [space.index[name] for name in reversed(leaving) if name in space.index]
    found: dict[str, None] = {}
    for pod in sorted(pods, key=lambda each: (-each.spec.priority, each.created, each.key)):
        ask = space.demand_of(pod)
        mask = space.feasible(ask) if ask.unknown is None else None
        node = next((each for each in order if mask is not None and mask[each]), None)
        if node is None:
            return None
        space.place(ask, node)
        found[space.names[node]] = None
    return list(found)


class Landings:
    """The expected landings. All times are in seconds of one clock, given as *now*."""

    def __init__(self) -> None:
        self._expected: dict[str, ExpectedLanding] = {}
        # The pods of a controller that existed before its first eviction, or that have been seen since.
        self._known: defaultdict[str, set[str]] = defaultdict(set)
        self._landing: dict[str, Landing] = {}

    def __len__(self) -> int:
        """Return how many replacements are expected, and have not been seen."""
        return len(self._expected)

    @property
    def open(self) -> bool:
        """Whether anything is expected or on its way."""
        return bool(self._expected or self._landing)

    def data(self) -> dict[str, str]:
        """Return the expected nodes by the uid of the controller of pods: names in order, separated by commas."""
        found: defaultdict[str, set[str]] = defaultdict(set)
        for each in self._expected.values():
            found[each.owner].add(each.target)
        return {owner: ",".join(sorted(found[owner])) for owner in sorted(found)}

    def targets(self) -> dict[str, str]:
        """Return the targets by the uid of the pod: of pods in eviction, and of replacements on their way."""
        found = {uid: each.target for uid, each in self._expected.items()}
        for uid, landing in self._landing.items():
            if len(landing.targets) == 1:
                [found[uid]] = landing.targets
        return found

    def expect(self, asked_for: Sequence[tuple[Pod, str]], snapshot: Snapshot, now: float) -> None:
        """Enter *asked_for* (pod, target): these pods are about to be evicted. *snapshot* shows the pods of before."""
        owners = {pod.owner.uid for pod, _ in asked_for if pod.owner is not None}
        here = pods_of(snapshot, owners)
        # Replacements of earlier evictions that nobody has seen yet must not pass for pods of before.
        self._see({owner: pods for owner, pods in here.items() if owner in self._known}, now)
        for owner, pods in here.items():
            self._known[owner].update(pod.uid for pod in pods)
        for pod, target in asked_for:
            if pod.owner is None:
                continue
            self._known[pod.owner.uid].add(pod.uid)
            self._expected[pod.uid] = ExpectedLanding(
                pod=pod, owner=pod.owner.uid, target=target, until=now + UNANSWERED
            )

    def later(self, wishes: Sequence[tuple[Pod, str]], snapshot: Snapshot, now: float) -> set[str]:
        """Return the uids of those of *wishes* (pod, target) that come after other replacements of their controllers.

        The policy can't count: with two targets at once, one node may get both pods, and the room of another.
        """
        owners = {pod.owner.uid for pod, _ in wishes if pod.owner is not None}
        open_ones = [each for each in self._expected.values() if each.owner in owners]
        # Whoever has come is on its target or on no node, or is seen a little later.
        here: dict[str, list[Pod]] = {each.owner: [] for each in open_ones}
        views = (snapshot.nodes.get(name) for name in {each.target for each in open_ones})
        for pod in (*snapshot.unscheduled, *(pod for view in views if view is not None for pod in view.pods)):
            if pod.owner is not None and pod.owner.uid in here:
                here[pod.owner.uid].append(pod)
        self._see(here, now)
        aims: defaultdict[str, set[str]] = defaultdict(set)
        for each in self._expected.values():
            aims[each.owner].add(each.target)
        found: set[str] = set()
        for pod, target in wishes:
            assert pod.owner is not None
            if aims[pod.owner.uid] - {target}:
                found.add(pod.uid)
            else:
                aims[pod.owner.uid].add(target)
        return found

    def answered(self, pod: str, *, going: bool, now: float) -> None:
        """Note whether the eviction of *pod* (a uid) was granted, or may have been."""
        known = self._expected.get(pod)
        if known is None:
            return
        if not going:
            self.withdraw([pod])
            return
        after = min(known.pod.spec.grace, LONGEST_GRACE) if _in_order(known) else 0.0
        self._expected[pod] = msgspec.structs.replace(known, answered=True, until=now + after + VALID)

    def withdraw(self, pods: Iterable[str]) -> None:
        """Forget the expectations of *pods* (uids)."""
        for uid in pods:
            self._expected.pop(uid, None)
        self._forget_known()

    def clear(self) -> None:
        """Forget all expectations."""
        self._expected.clear()
        self._landing.clear()
        self._known.clear()

    def look(self, snapshot: Snapshot, now: float) -> list[Landed]:
        """See replacements that have come, and return how those on their way ended."""
        if self._expected:
            self._see(pods_of(snapshot, {each.owner for each in self._expected.values()}), now)
        if not self._landing:
            return []
        where = {pod.uid: pod.node for pod in _pods(snapshot) if pod.uid in self._landing}
        found: list[Landed] = []
        for uid, landing in list(self._landing.items()):
            node = where.get(uid)
            if node:
                result = Landed.TARGET if node in landing.targets else Landed.ELSEWHERE
            elif now < landing.since + (_GONE if node is None else UNSCHEDULED):
                continue
            else:
                result = Landed.UNSCHEDULED
            del self._landing[uid]
            found.append(result)
        return found

    def expire(self, now: float) -> None:
        """End the expectations whose time is up."""
        self.withdraw([uid for uid, each in self._expected.items() if now >= each.until])

    def _see(self, here: Mapping[str, Sequence[Pod]], now: float) -> None:
        """Take new ones of *here*, the pods by the uid of their controller, for replacements."""
        for owner, pods in here.items():
            for pod in pods:
                if pod.uid in self._known[owner] or pod.deletion is not None:
                    continue
                expected = self._of(owner, pod)
                if expected is not None:
                    self._known[owner].add(pod.uid)
                    # Without a hint, only the node that was meant is one.
                    self._landing[pod.uid] = Landing(preferred(pod) or frozenset({expected.target}), now)
                    self.withdraw([expected.pod.uid])

    def _of(self, owner: str, pod: Pod) -> ExpectedLanding | None:
        """Return the expectation that *pod* meets best: its namesake's, its node's, its hint's, a granted one, the
        oldest.
        """
        found = [each for each in self._expected.values() if each.owner == owner]
        if any(_in_order(each) for each in found):
            return next((each for each in found if each.pod.key == pod.key), None)
        hints = preferred(pod)

        def key(each: ExpectedLanding) -> tuple[bool, bool, bool]:
            return each.target != pod.node, each.target not in hints, not each.answered

        return min(found, key=key, default=None)

    def _forget_known(self) -> None:
        owners = {each.owner for each in self._expected.values()}
        for owner in [owner for owner in self._known if owner not in owners]:
            del self._known[owner]


def _in_order(expected: ExpectedLanding) -> bool:
    """Whether the replacement has the name of the evicted pod, and comes once that is gone."""
    owner = expected.pod.owner
    return owner is not None and owner.kind in SAME_NAME


def _pods(snapshot: Snapshot) -> Iterator[Pod]:
    yield from snapshot.unscheduled
    for view in snapshot.nodes.values():
        yield from view.pods
