"""Which request of a drain a replica is lost at, and what such a request is called."""

from __future__ import annotations

from tightship_testkit.faults import Call, Fault
from tightship_testkit.marks import OWNING

_PHASES = (*sorted(OWNING), "Backoff", "Marked")


def counts(call: Call) -> bool:
    """Return whether a call is a write of the drain itself.

    Events change nothing, and elections have tests of their own.
    """
    election = call.path.endswith("-leader") or (call.path.endswith("/leases") and b"-leader" in call.body)
    return call.write_number > 0 and "/events" not in call.path and not election


def named(call: Call) -> str:
    """Return what tells a request of a drain from others."""
    phase = next((each for each in _PHASES if b'phase\\":\\"' + each.encode() in call.body), "")
    return f"{call.verb}{' watch' * call.is_watch} {call.path} {phase}".strip()


class AtWrite:
    """Disturbs the drain's own write number *number*, once; 0 disturbs none. *seen* are those writes so far."""

    def __init__(self, number: int, fault: Fault) -> None:
        self.seen: list[Call] = []
        self._number = number
        self._fault = fault

    @property
    def met(self) -> Call | None:
        """The write that was disturbed."""
        return self.seen[self._number - 1] if 0 < self._number <= len(self.seen) else None

    async def __call__(self, call: Call) -> Fault | None:
        """Return what the call meets."""
        if not counts(call):
            return None
        self.seen.append(call)
        return self._fault if len(self.seen) == self._number else None
