"""How often a node is written that is no node in drain."""

from __future__ import annotations

from tightship.kube.host import monotonic

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 120.0
"""Seconds between two writes of one node; they double while the node is written again and again."""


class WritePace:
    """Lets a node be written seldom while it is written again and again.

    A configuration that somebody switches on and off, and a policy that takes back what was written, would otherwise
    cost several writes a pass.
    """

    def __init__(self) -> None:
        # When a node was last written, and for how long it was not to be written after that.
        self._last: dict[str, tuple[float, float]] = {}

    def lets(self, node: str) -> bool:
        """Whether *node* may be written now. If so it counts as written."""
        now = monotonic()
        before, pause = self._last.get(node, (now, 0.0))
        if now < before + pause:
            return False
        calm = now >= before + 2 * LONGEST_PAUSE
        self._last[node] = now, FIRST_PAUSE if calm or not pause else min(2 * pause, LONGEST_PAUSE)
        return True


__all__ = ["WritePace"]
