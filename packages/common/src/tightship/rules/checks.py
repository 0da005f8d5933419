"""What the gates of a controller say to removing one node. A refusal is a closed check. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from tightship.objects.reasons import Reason, Refusal


class Check(Struct, frozen=True, gc=False):
    """One gate, asked about one node.

    *gate* names the gate for people. *reason* is the reason it refuses with, ``None`` for a remark that keeps no node.
    *detail* has the numbers, *fix* the smallest change that opens the gate, or nothing.
    """

    gate: str
    reason: Reason | None
    open: bool
    detail: str
    fix: str = ""

    def refusal(self, subject: str) -> Refusal | None:
        """Return why *subject* (a node) may not go, ``None`` while the gate is open."""
        if self.open or self.reason is None:
            return None
        return Refusal(self.reason, subject, self.detail, self.fix)


def remark(name: str, detail: str) -> Check:
    """Return something worth knowing that keeps no node."""
    return Check(name, None, True, detail)


def refusals(checks: Iterable[Check | None], subject: str) -> list[Refusal]:
    """Return the refusals of the closed ones of *checks* for *subject*, in order; ``None`` stands for no gate."""
    found = (None if each is None else each.refusal(subject) for each in checks)
    return sorted(each for each in found if each is not None)
