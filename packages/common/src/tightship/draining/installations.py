"""The list of live installations: one more annotation on the claims' Lease, so no further right is needed.

Each leader enters its installation, and renews the entry four times in the span that the others wait for a sign of
life. No clock of one is compared with another's: an entry that stands still for that long is dropped, as a Lease is
taken (:mod:`tightship.kube.leases`). Whoever was out of reach of the API server meanwhile begins to watch anew.

The order of the list decides who holds a pool, so each claim reads it in the same compare-and-swap as the claims. If
the list gets lost, whoever writes it next enters all whom it knew, in their order.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence

import msgspec

from tightship.cluster.installations import EVERY_OTHER, Beside, Installation, short
from tightship.cluster.pools import KNOWN_POOL_LABELS
from tightship.draining.lease_room import fitted
from tightship.draining.ledger import Ledger
from tightship.kube.host import monotonic, wall
from tightship.kube.leases import Lease
from tightship.objects import Node
from tightship.objects.api_errors import KubeError, one_line
from tightship.objects.reasons import Reason, Refusal
from tightship.objects.times import rfc3339
from tightship.objects.unreadable import UNREADABLE

INSTALLATIONS_ANNOTATION = "tightship.dev/installations"

MOST = 32
"""Most installations in the list."""

LONGEST = 1000
"""Most bytes for the names of an installation's pools and their labels; with more, it claims all pools."""

LEAST_LASTS, MOST_LASTS = 120.0, 1800.0
"""Seconds for which others wait for a sign of life: room for a rollout, or for a replica on another node."""

_LOOKS = 4
_LEAVING = 5.0

_log = logging.getLogger(__name__)
_decoder = msgspec.json.Decoder(list[Installation])


def lasts(lease_duration: float) -> float:
    """Return how long others wait for an installation whose Lease lasts *lease_duration* seconds."""
    return min(max(LEAST_LASTS, 4 * lease_duration), MOST_LASTS)


class Installations:
    """The list in *ledger*, as seen by the installation of *controller* that leads by *lease*.

    Nothing is written unless *leading*.
    """

    def __init__(
        self,
        ledger: Ledger,
        *,
        controller: str,
        lease: str,
        lasts: float = LEAST_LASTS,
        leading: Callable[[], bool],
    ) -> None:
        self._ledger = ledger
        self._own = Installation(lease=lease, controller=controller, lasts=lasts)
        self._leading = leading
        self._lock = asyncio.Lock()
        self._listed: tuple[Installation, ...] = ()
        # Since when each other one stands still, and when each was last in the list (monotonic seconds).
        self._still: dict[str, tuple[str, float]] = {}
        self._last_renewal: dict[str, float] = {}
        self._known: frozenset[str] = frozenset()
        self._watching: float | None = None
        self._looked = self._wrote = -1e9

    @property
    def beside(self) -> Beside:
        """Who is beside us, as far as is known now."""
        now, lasts = monotonic(), self._own.lasts
        alive = None
        if self._watching is not None and now - self._watching >= lasts:
            alive = frozenset(short(lease) for lease, last in self._last_renewal.items() if now - last < lasts)
        return Beside(self._own.controller, self._own.lease, self._listed, alive, self._known)

    async def look(self, pools: Mapping[str, bool] | None = None, labels: Sequence[str] = KNOWN_POOL_LABELS) -> None:
        """Read the list and renew our entry in it, if that is due or *pools* have changed.

        Raises :class:`~tightship.objects.api_errors.KubeError`, the last conflict included.
        """
        async with self._lock:
            if pools is not None:
                own = () if labels == KNOWN_POOL_LABELS else tuple(labels)
                fits = len(msgspec.json.encode((pools, own))) <= LONGEST
                pools, own = (dict(pools), own) if fits else ({EVERY_OTHER: True}, ())
                self._own = msgspec.structs.replace(self._own, pools=pools, labels=own)
            listed: tuple[Installation, ...] = ()

            def edit(lease: Lease) -> Mapping[str, str] | None:
                nonlocal listed
                before = _decode(lease)
                listed = self._wanted(before, monotonic())
                return _with(lease, listed) if listed != (before or ()) and self._leading() else None

            if edit(await self._ledger.recent()) is not None:
                await self._ledger.change(edit)
                self._wrote = monotonic()
            if self._leading():
                self._listed = listed

    async def keep(self) -> None:
        """Give signs of life until cancelled, once :meth:`look` has entered us: a pass may take long."""
        while True:
            await asyncio.sleep(self._own.lasts / _LOOKS)
            if self._leading() and self._listed:
                try:
                    await self.look()
                except KubeError as error:
                    _log.debug("the list of installations can't be renewed: %s", one_line(error))

    async def leave(self) -> None:
        """Take us off the list, for others need not wait. Never raises."""

        def edit(lease: Lease) -> Mapping[str, str] | None:
            before = _decode(lease) or ()
            rest = tuple(each for each in before if each.lease != self._own.lease)
            return _with(lease, rest) if rest != before and self._leading() else None

        with contextlib.suppress(KubeError, TimeoutError):
            async with asyncio.timeout(_LEAVING):
                await self._ledger.change(edit)

    def refuses(self, node: Node, lease: Lease) -> Refusal | None:
        """Return why *node* may not be claimed by the list in *lease*, which is about to be written with the claim."""
        listed = _decode(lease) or ()
        if all(each.lease != self._own.lease for each in listed):
            return Refusal(Reason.COOL_DOWN, node.name, "this installation is not on the list of installations yet")
        return msgspec.structs.replace(self.beside, listed=listed).refusal(node)

    def _wanted(self, listed: tuple[Installation, ...] | None, now: float) -> tuple[Installation, ...]:
        """Return the list as it should be: *listed*, ``None`` if it was lost, with us and without the dead."""
        if self._watching is None or now - self._looked > self._own.lasts / 2:
            self._watching = now
            self._still.clear()
        self._looked = now
        known = self._listed if listed is None else listed
        still = {each.lease: self._still.get(each.lease, ("", now)) for each in known}
        self._still = {
            each.lease: still[each.lease] if still[each.lease][0] == each.renewed else (each.renewed, now)
            for each in known
        }
        kept = [
            each
            for each in known
            if each.lease == self._own.lease
            or now - self._still[each.lease][1] < min(max(LEAST_LASTS, each.lasts), MOST_LASTS)
        ]
        own = next((each for each in kept if each.lease == self._own.lease), None)
        for each in known:
            self._last_renewal.pop(each.lease, None)
        self._last_renewal |= {each.lease: now for each in kept}
        self._known |= self._last_renewal.keys()
        stamp = rfc3339(wall())
        due = own is None or listed is None or now - self._wrote >= self._own.lasts / _LOOKS - 1
        renewed = stamp if due or own is None else own.renewed
        entry = msgspec.structs.replace(self._own, since=own.since if own else stamp, renewed=renewed)
        if own is None:
            # Who begins nothing has nothing to hold: switched off, we stay unlisted.
            return tuple([*kept, entry] if self._own.pools and len(kept) < MOST else kept)
        return tuple(entry if each is own else each for each in kept)


def _decode(lease: Lease) -> tuple[Installation, ...] | None:
    """Return the list in *lease*; ``None`` if there is none that can be read."""
    try:
        found = _decoder.decode(lease.annotations.get(INSTALLATIONS_ANNOTATION, "null"))
    except UNREADABLE:
        return None
    unique = {each.lease: each for each in reversed(found)}
    return tuple(each for each in found if unique[each.lease] is each)


def _with(lease: Lease, installations: Sequence[Installation]) -> Mapping[str, str]:
    value = msgspec.json.encode(installations).decode()
    return fitted({**lease.annotations, INSTALLATIONS_ANNOTATION: value})
