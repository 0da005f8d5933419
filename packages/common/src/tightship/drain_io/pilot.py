"""The pilot: leads the replacements of evicted pods to the nodes that the plan chose (``steering: hints``, ``exact``).

Before a drain evicts pods, :meth:`Pilot.expect` enters their controllers and targets into the ConfigMap of landings.
The chart's admission policy reads that. In the mode *hints* it gives new pods of these controllers a preferred node
affinity; in the mode *exact* it gates them. The pilot then nominates the target of each gated pod, and removes the
gate. The scheduler has the last word.

A gate must never outlive us. So every replica, leading or not, removes the gate of any pod that it has seen gated for
:data:`WATCHED` seconds. A leader removes a gate at once if it has no target for the pod. Whoever starts or stops to
lead, or is switched off, first forgets all expectations, empties the ConfigMap, and removes every gate that it sees.

A drain waits at most :data:`LONGEST` seconds for the pilot, and never fails because of it: at worst the pods go without
a target, and the next plan starts from where they landed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from tightship.core.api_errors import Forbidden, KubeError, problem_of
from tightship.core.objects import Pod
from tightship.drain.landings import Landed, Landings, takes_pods, wished
from tightship.drain_io.landing_map import LandingMap, policy_problem
from tightship.drain_io.publishing import LONGEST, Publisher
from tightship.drain_io.terms import EXACT, PILOTED, LandingFigures, Terms
from tightship.drain_io.ungating import Ungating
from tightship.kube.cache import CacheCrashed, ClusterCache
from tightship.kube.connection import Connection
from tightship.kube.host import monotonic
from tightship.kube.listing import list_all
from tightship.kube.resources import BY_KIND

_log = logging.getLogger(__name__)

INFORMED = 0.5
"""Seconds after a write until the policy goes by it: with one API server of Kubernetes 1.37 it took at most 0.05 s."""

WATCHED = 5.0
"""Seconds after which any replica removes a gate."""

STOPPING = 2.5
"""Most seconds for each of the two steps of a stop: the whole process has a grace."""

_SWEEP = 2.0
_SETTLE = 1.0
_BUSY, _PAUSE, _IDLE, _IDLE_WITHOUT = 0.25, 0.05, 1.0, 5.0


class Pilot:
    """Leads replacements by way of *landing_map*, and counts where they land. :meth:`run` has to run meanwhile."""

    def __init__(
        self,
        connection: Connection,
        cache: ClusterCache,
        landing_map: LandingMap,
        terms: Terms,
        count: Callable[[Landed], None] = lambda _: None,
    ) -> None:
        self._connection = connection
        self._cache = cache
        self._map = landing_map
        self._terms = terms
        self._count = count
        self._book = Landings()
        self._ungating = Ungating(connection, terms.leading)
        self._landed = dict.fromkeys(Landed, 0)
        self._publisher = Publisher(landing_map, self._book.data, lambda: self._active == EXACT)
        self._wake = asyncio.Event()
        self._active = ""
        self._led = self._used = self._gating = self._closed = False
        # Whether the ConfigMap is known to be empty, or out of reach.
        self._tidy = False
        # When to look where pods landed, and until when every gate goes.
        self._look_at = self._sweeping = -1e9
        self._problem = ""

    @property
    def available(self) -> bool:
        """Whether evicted pods are led now."""
        led = bool(self._active) and not self._closed and self._terms.leading() and self._wanted() == self._active
        return led and not (self._active == EXACT and self._ungating.refused)

    @property
    def exact(self) -> bool:
        """Whether evicted pods land on their targets, and not only where the scheduler's model sees them."""
        return self.available and self._active == EXACT

    @property
    def problems(self) -> tuple[str, ...]:
        """Return whole sentences about what is wrong."""
        own = (f"Soft taints steer alone: {self._problem}.",) if self._problem else ()
        return (*own, *self._ungating.problems)

    def figures(self) -> LandingFigures | None:
        """Return the state of the pilot, ``None`` unless the settings ask for one."""
        mode = self._terms.steering()
        if mode not in PILOTED:
            return None
        counts = {result.value: number for result, number in self._landed.items()}
        return LandingFigures(mode=mode, problem=self._problem, expected=len(self._book), **counts)

    def stray(self, *, ours: bool) -> bool:
        """Whether a dry run has gates to remove: a controller of its installation left them.

        *ours* says that this installation gives back what it left, entries in the ConfigMap included. Otherwise only
        its settings tell whose gates these are.
        """
        if not ours:
            return self._terms.steering() == EXACT and self._ungating.any_after(WATCHED)
        # Whoever ends once nothing is left must not depend on when run() has last looked.
        self._ungating.see(self._cache.unscheduled(), monotonic())
        entries = self._terms.steering() in PILOTED and not self._tidy
        late = monotonic() < self._publisher.wrote + _SWEEP
        return entries or late or self._ungating.any_after(0.0)

    @property
    def unfinished(self) -> bool:
        """Whether this replica has entries left in the ConfigMap that it keeps trying to remove."""
        return self._used and self._publisher.differs

    def targets(self) -> Mapping[str, str]:
        """Return where pods should land, by uid: pods in eviction, and replacements on their way."""
        return self._book.targets() if self.available else {}

    async def look(self) -> None:
        """Find out whether there is a policy to work with, as every pass of a leader begins. Never raises.

        A new leader first empties the ConfigMap and removes all gates.
        """
        if self._closed or not self._terms.leading():
            return
        if not self._led:
            self._led = True
            self._forget()
        mode = self._wanted()
        if not (self._used or self._ungating.surprised or self._terms.steering() in PILOTED):
            self._say("")
            return
        problem = ""

        def judge(policy: str | None) -> None:
            nonlocal problem
            problem = policy_problem(policy, mode, str(self._map)) if mode else ""
            if mode == EXACT and self._ungating.refused:
                # Whoever may not remove gates must not have more pods gated.
                problem = problem or "this controller may not remove scheduling gates"
            self._activate("" if problem else mode)

        try:
            await self._publisher.reread(judge)
        except (KubeError, TimeoutError) as error:
            problem = f"{self._map} can't be read or written: {problem_of(error)}"
            self._activate("")
            self._tidy = isinstance(error, Forbidden)
        else:
            self._used = bool(self._active)
            self._tidy = not self._active
        self._say(problem if mode else "")

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
                await asyncio.sleep(max(0.0, self._publisher.told + INFORMED - monotonic()))
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
        """Nominate, ungate, count and tidy up, until cancelled or until the cache breaks off."""
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
            await self._ungating.stop()

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

    async def finish(self) -> None:
        """Remove the gates that are left after a leader's last eviction. The policy may still gate pods until then."""
        if not self._led or not self._terms.leading():
            return
        late = self._publisher.wrote + INFORMED + _PAUSE - monotonic()
        try:
            async with asyncio.timeout(STOPPING):
                waiting: Iterable[Pod] = self._cache.unscheduled()
                if late > -_SWEEP:
                    await asyncio.sleep(max(0.0, late))
                    unbound = msgspec.structs.replace(BY_KIND["Pod"], field_selector="spec.nodeName=")
                    listing = await list_all(self._connection, unbound)
                    waiting = [each for each in listing.things if isinstance(each, Pod)]
                tasks = [self._ungating.begin(each, None, "the controller stops") for each in waiting if each.lands]
                await asyncio.gather(*tasks, return_exceptions=True)
        except (CacheCrashed, KubeError, TimeoutError) as error:
            _log.warning("scheduling gates may be left on pods: %s", problem_of(error))

    def _wanted(self) -> str:
        mode = self._terms.steering()
        return mode if mode in PILOTED and self._terms.acting() else ""

    def _activate(self, mode: str) -> None:
        if mode != self._active:
            self._forget()
            self._gating = mode == EXACT
        self._active = mode
        if mode:
            self._used = True

    def _forget(self) -> None:
        """Drop all expectations, and remove every gate for a while, those that are still to come included."""
        self._book.clear()
        self._active = ""
        # Without gates of our own, those that we see are another controller's: only the watch over old ones counts.
        if self._led and (self._gating or self._terms.steering() == EXACT):
            self._sweeping = monotonic() + _SWEEP
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
            self._publisher.retract()
            self._led = False
            self._used = False
        if self._active and not self.available:
            self._forget()
        self._book.expire(now)
        gated = self._ungating.see(self._cache.unscheduled(), now)
        if self._terms.watching():
            self._set_free(gated, now, leading)
        if self._book.open and now >= self._look_at:
            self._look_at = now + _SETTLE
            for result in self._book.look(self._cache.snapshot(), now):
                self._landed[result] += 1
                self._count(result)
        if leading and self._used and self._publisher.differs:
            self._publisher.publish_later()
        elif self._used and not self._active and not self._closed:
            self._used = False
        return bool(gated) or self._book.open or now < self._sweeping

    def _set_free(self, gated: Sequence[Pod], now: float, leading: bool) -> None:
        for pod in gated:
            if not self._ungating.due(pod, now):
                continue
            owner = pod.owner.uid if pod.owner is not None else ""
            target = self._book.target_of(pod, now) if self.exact else None
            if target is not None:
                usable = target if takes_pods(self._cache.snapshot(), target) else None
                self._ungating.begin(pod, usable, "" if usable else f"its target {target} takes no pods any more")
            elif leading and self._gating and self._book.names(owner, now):
                self._ungating.begin(pod, None, "nobody expects it")
            elif now < self._sweeping or self._ungating.waited(pod, now) >= WATCHED:
                swept = now < self._sweeping
                why = "nobody expects anything" if swept else f"gated for {WATCHED:g} s"
                self._ungating.begin(pod, None, why, surprising=not swept)
                # Somebody may have edited the ConfigMap, or a write of an earlier leader may have come late.
                self._map.data = None

    async def _rest(self, revision: int, *, busy: bool) -> None:
        if busy:
            await asyncio.sleep(_PAUSE)
            if not self._wake.is_set():
                await self._cache.changed(revision, _BUSY)
            return
        idle = _IDLE if self._used or self._terms.steering() == EXACT else _IDLE_WITHOUT
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(idle):
                await self._wake.wait()


__all__ = ["Pilot"]
