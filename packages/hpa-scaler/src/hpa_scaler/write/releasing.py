"""Gives HPAs back to their users: restores their bounds and removes our annotation. Needs no Prometheus.

As on opt-out three values are compared: a bound that is no longer what we set is somebody's newer value, and stays. A
running controller would take up an opted-in HPA again at once. So while one leads, no such HPA is given back unless
somebody insists.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct

from hpa_scaler.decide.writing import Patch, Restoration, restoration, state_of
from hpa_scaler.report.document import Move, ReleaseEntry, ReleaseOutcome
from hpa_scaler.spec.annotations import ENABLE, enabled
from hpa_scaler.spec.rules import Rules
from hpa_scaler.write.applying import AT_ONCE
from hpa_scaler.write.sending import Sent, send
from tightship.app.cli import CliError
from tightship.app.runtime.loop import a_few_at_a_time
from tightship.core.api_errors import KubeError, one_line
from tightship.core.objects import HorizontalPodAutoscaler
from tightship.core.reasons import Reason, Refusal
from tightship.kube.connection import Connection
from tightship.kube.leases import Lease, held_leases

_NAMED = 5


class Leaders(Struct, frozen=True):
    """The Leases that controllers hold at the moment; *unknown* is why they are unknown, empty if they are known."""

    leases: tuple[Lease, ...] = ()
    unknown: str = ""

    @property
    def texts(self) -> tuple[str, ...]:
        """Who leads, by which Lease."""
        return tuple(f"{each.holder} by the Lease {each.namespace}/{each.name}" for each in self.leases)


async def leaders_of(connection: Connection, name: str, namespace: str, now: float) -> Leaders:
    """Return who leads by a Lease called *name*, in *namespace* or anywhere."""
    try:
        return Leaders(tuple(await held_leases(connection, name, now, namespace)))
    except KubeError as error:
        return Leaders(unknown=one_line(error))


def refuse_while_led(hpas: Iterable[HorizontalPodAutoscaler], leaders: Leaders, rules: Rules) -> None:
    """Raise :class:`CliError` if a controller leads that would take up some of *hpas* again."""
    if not leaders.leases:
        return
    keys = [hpa.key for hpa in hpas if enabled(hpa.annotations, rules.prefix)]
    if not keys:
        return
    some = ", ".join(keys[:_NAMED]) + (f" and {len(keys) - _NAMED} more" if len(keys) > _NAMED else "")
    raise CliError(
        f"a controller runs: {'; '.join(leaders.texts)}. It would take up again what is opted in: {some}",
        f"stop it (kubectl scale deployment hpa-scaler --replicas=0), or opt out (annotation {rules.prefix}/{ENABLE}), "
        "which gives back by itself; --force releases all the same",
    )


class Release(Struct, frozen=True):
    """Gives HPAs back by *rules*, at *now*."""

    connection: Connection
    rules: Rules
    now: float

    def plan(self, hpas: Iterable[HorizontalPodAutoscaler]) -> list[tuple[HorizontalPodAutoscaler, Restoration | None]]:
        """Return what gives each of *hpas* back, ``None`` if nothing of ours is on it."""
        return [(hpa, self._given(hpa)) for hpa in hpas]

    def shown(self, hpa: HorizontalPodAutoscaler, given: Restoration | None) -> ReleaseEntry:
        """Return what would become of *hpa*."""
        return self._entry(hpa, given, "nothing-ours" if given is None else "would-restore")

    async def carry_out(
        self, planned: Sequence[tuple[HorizontalPodAutoscaler, Restoration | None]], say: Callable[[str], None]
    ) -> list[ReleaseEntry]:
        """Give back what is *planned*, and return the results in the same order."""
        entries: dict[str, ReleaseEntry] = {}

        async def one(each: tuple[HorizontalPodAutoscaler, Restoration | None]) -> None:
            hpa, given = each
            entries[hpa.uid] = self._entry(hpa, None, "nothing-ours") if given is None else await self._give(hpa)
            say(f"giving back: {len(entries):,} of {len(planned):,}")

        await a_few_at_a_time(one, planned, AT_ONCE)
        return [entries[hpa.uid] for hpa, _ in planned]

    async def _give(self, hpa: HorizontalPodAutoscaler) -> ReleaseEntry:
        present, given = hpa, self._given(hpa)

        def make(thing: HorizontalPodAutoscaler) -> Patch | None:
            nonlocal present, given
            present, given = thing, self._given(thing)
            return None if given is None else given.patch

        async def always() -> bool:
            return True

        sent = await send(self.connection, hpa, make, always)
        return self._entry(present, given, _OUTCOMES[sent.ending], sent)

    def _given(self, hpa: HorizontalPodAutoscaler) -> Restoration | None:
        return restoration(hpa, state_of(hpa, self.rules.prefix)[0].history, self.rules, self.now)

    def _entry(
        self, hpa: HorizontalPodAutoscaler, given: Restoration | None, outcome: ReleaseOutcome, sent: Sent | None = None
    ) -> ReleaseEntry:
        moves = given is not None and outcome in ("restored", "would-restore")
        problem = state_of(hpa, self.rules.prefix)[1]
        detail = sent.detail if sent is not None else ""
        if problem:
            detail = str(Refusal(Reason.STATE_UNREADABLE, detail=problem))
        return ReleaseEntry(
            namespace=hpa.namespace,
            name=hpa.name,
            outcome="failed" if problem else outcome,
            opted_in=enabled(hpa.annotations, self.rules.prefix),
            minimum=Move(hpa.min_replicas, given.minimum if given is not None and moves else hpa.min_replicas),
            maximum=Move(hpa.max_replicas, given.maximum if given is not None and moves else hpa.max_replicas),
            left="" if given is None else given.left,
            detail=detail,
        )


_OUTCOMES: dict[str, ReleaseOutcome] = {
    "written": "restored",
    "unneeded": "nothing-ours",
    "refused": "refused",
    "gone": "gone",
    "failed": "failed",
    "unheard": "failed",
    "left": "failed",
}

__all__ = ["Leaders", "Release", "leaders_of", "refuse_while_led"]
