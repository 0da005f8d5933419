"""The pilot: leads the replacements of evicted pods to the nodes that the plan chose (``steering: hints``).

Before a drain evicts pods, :meth:`Pilot.expect` enters their controllers and targets into the ConfigMap of landings.
The chart's admission policy reads that. It gives new pods of these controllers a preferred node affinity to the
targets, and has them keep off all nodes that carry the label :data:`~tightship.objects.node.LEAVING`. The
scheduler has the last word.

A drain waits at most :data:`LONGEST` seconds for the pilot, and never fails because of it: at worst the pods go without
a target, and the next plan starts from where they landed. No pod waits for the pilot either:
:mod:`~tightship.draining.missed_landings` helps those that find no node.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence

from tightship.drain.landings import Landed, Landings, wished
from tightship.draining.landing_map import LandingMap, policy_problem
from tightship.draining.missed_landings import MissedLandings
from tightship.draining.publishing import LONGEST, Publisher
from tightship.draining.terms import HINTS, LandingFigures, Terms
from tightship.kube.cache import CacheCrashed, ClusterCache
from tightship.kube.host import monotonic
from tightship.objects import Pod
from tightship.objects.api_errors import Forbidden, KubeError, problem_of

_log = logging.getLogger(__name__)

INFORMED = 0.5
"""Seconds after a write until the policy goes by it: with one API server of Kubernetes 1.37 it took at most 0.05 s."""

STOPPING = 2.5
"""Most seconds for the last write of a replica that stops: the whole process has a grace."""

_SETTLE = 1.0
_BUSY, _PAUSE, _IDLE, _IDLE_WITHOUT = 0.25, 0.05, 1.0, 5.0


class Pilot:
    """Leads replacements by way of *landing_map*, and counts where they land. :meth:`run` has to run meanwhile.

    *missed* helps those that find no node.
    """

    def __init__(
        self,
        cache: ClusterCache,
        landing_map: LandingMap,
        terms: Terms,
        missed: MissedLandings,
        count: Callable[[Landed], None] = lambda _: None,
    ) -> None:
        self.missed = missed
        self._cache = cache
        self._map = landing_map
        self._terms = terms
        self._count = count
        self._book = Landings()
        self._landed = dict.fromkeys(Landed, 0)
        self._publisher = Publisher(landing_map, self._data)
        self._wake = asyncio.Event()
        # Whether there is a policy to work with; "unknown" once the ConfigMap could not be read.
        self._active = self._unknown = False
        self._led = self._used = self._closed = False
        # Whether the ConfigMap is known to be empty, or out of reach.
        self._tidy = False
        # When to look where pods landed.
        self._look_at = -1e9
        self._problem = ""

    @property
    def available(self) -> bool:
        """Whether evicted pods are led now."""
        return self._active and not self._closed and self._terms.leading() and self._wanted

    @property
    def labels(self) -> bool | None:
        """Whether nodes that leave carry the label now; ``None`` if those that do should keep it for a while."""
        if self.available:
            return None if self.missed.waiting else True
        return None if self._unknown and self._wanted else False

    @property
    def problems(self) -> tuple[str, ...]:
        """Return whole sentences about what is wrong."""
        return (f"Soft taints steer alone: {self._problem}.",) if self._problem else ()

    def figures(self) -> LandingFigures | None:
        """Return the state of the pilot, ``None`` unless the settings ask for one."""
        if self._terms.steering() != HINTS:
            return None
        counts = {result.value: number for result, number in self._landed.items()}
        return LandingFigures(mode=HINTS, problem=self._problem, expected=len(self._book), **counts)

    @property
    def stray(self) -> bool:
        """Whether a dry run whose installation gives back what it left may have entries in the ConfigMap to remove."""
        return self._terms.steering() == HINTS and not self._tidy

    @property
    def unfinished(self) -> bool:
        """Whether this replica has entries left in the ConfigMap that it keeps trying to remove."""
        return self._used and self._publisher.differs

    def targets(self) -> Mapping[str, str]:
        """Return where pods should land, by uid: pods in eviction, and replacements on their way."""
        return self._book.targets() if self.available else {}

    async def look(self) -> None:
        """Find out whether there is a policy to work with, as every pass of a leader begins. Never raises.

        A new leader first empties the ConfigMap.
        """
        if self._closed or not self._terms.leading():
            return
        if not self._led:
            self._led = True
            self._forget()
        wanted = self._wanted
        if not (self._used or self._terms.steering() == HINTS):
            self._say("")
            return
        problem = ""

        def judge(policy: str | None) -> None:
            nonlocal problem
            problem = policy_problem(policy, HINTS, str(self._map)) if wanted else ""
            self._activate(wanted and not problem)

        self._unknown = False
        try:
            await self._publisher.reread(judge)
        except (KubeError, TimeoutError) as error:
            problem = f"{self._map} can't be read or written: {problem_of(error)}"
            self._activate(False)
            self._tidy = isinstance(error, Forbidden)
            self._unknown = not self._tidy
        else:
            self._used = self._active
            self._tidy = not self._active
        self._say(problem if wanted else "")

    async def expect(self, moves: Sequence[tuple[Pod, str]]) -> None:
        """Prepare for the evictions of *moves* (pod, target): tell the policy. Never raises, and takes at most
        :data:`LONGEST` seconds.
        """
        if not moves or not self.available:
            return
        snapshot = self._cache.snapshot()
        wishes = wished(moves, snapshot)
        if not wishes:
            return
        self._book.expect(wishes, snapshot, monotonic())
        self._wake.set()
        try:
            async with asyncio.timeout(LONGEST):
                await self._publisher.publish()
                await asyncio.sleep(max(0.0, self._publisher.updated + INFORMED - monotonic()))
            failed = "" if self._map.policy else f"{self._map} does not exist any more"
        except (KubeError, TimeoutError) as error:
            failed = problem_of(error)
        if failed:
            self._book.withdraw(pod.uid for pod, _ in wishes)
            _log.warning("%d pods are evicted without a target: %s", len(wishes), failed)

    def answered(self, pod: str, *, going: bool) -> None:
        """Note whether the eviction of *pod* (a uid) was granted, or may have been."""
        self._book.answered(pod, going=going, now=monotonic())
        self._wake.set()

    async def run(self) -> None:
        """Help pods, count and tidy up, until cancelled or until the cache breaks off."""
        try:
            while True:
                revision = self._cache.revision
                self._wake.clear()
                busy = True
                try:
                    busy = self._tick(monotonic())
                except CacheCrashed:
                    return
                except Exception:
                    _log.exception("the pilot failed, and tries again")
                await self._rest(revision, busy=busy)
        finally:
            await self._publisher.stop()
            await self.missed.stop()

    async def close(self) -> None:
        """Expect nothing any more, and empty the ConfigMap: this replica stops. Drains may still evict."""
        used, self._closed = self._used, True
        self._forget()
        if not used or not self._terms.leading():
            return
        try:
            async with asyncio.timeout(STOPPING):
                await self._publisher.publish()
        except (KubeError, TimeoutError) as error:
            _log.warning("entries left in %s: %s", self._map, problem_of(error))

    @property
    def _wanted(self) -> bool:
        return self._terms.steering() == HINTS and self._terms.acting()

    def _data(self) -> Mapping[str, str]:
        spared = self.missed.owners
        return {owner: nodes for owner, nodes in self._book.data().items() if owner not in spared}

    def _activate(self, active: bool) -> None:
        if active != self._active:
            self._forget()
        self._active = active
        if active:
            self._used = True

    def _forget(self) -> None:
        """Drop all expectations."""
        self._book.clear()
        self._active = False
        self._wake.set()

    def _say(self, problem: str) -> None:
        if problem and problem != self._problem:
            _log.warning("soft taints steer alone: %s", problem)
        elif self._problem and not problem:
            _log.info("evicted pods are led again")
        self._problem = problem

    def _tick(self, now: float) -> bool:
        """Do what is due; return whether more will be due soon."""
        leading = self._terms.leading()
        if self._led and not leading:
            self._forget()
            self.missed.forget()
            self._publisher.retract()
            self._led = self._used = self._unknown = False
        if self._active and not self.available:
            self._forget()
        self._book.expire(now)
        if leading and self._led:
            self.missed.see(self._cache.unscheduled(), now)
        if self._book.open and now >= self._look_at:
            self._look_at = now + _SETTLE
            for result in self._book.look(self._cache.snapshot(), now):
                self._landed[result] += 1
                self._count(result)
        if leading and self._used and self._publisher.differs:
            self._publisher.publish_later()
        elif self._used and not self._active and not self._closed:
            self._used = False
        return self._book.open or self.missed.waiting

    async def _rest(self, revision: int, *, busy: bool) -> None:
        if busy:
            await asyncio.sleep(_PAUSE)
            if not self._wake.is_set():
                await self._cache.changed(revision, _BUSY)
            return
        idle = _IDLE if self._used or self._terms.steering() == HINTS else _IDLE_WITHOUT
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(idle):
                await self._wake.wait()


__all__ = ["Pilot"]
