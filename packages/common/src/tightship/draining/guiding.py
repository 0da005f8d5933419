"""The part of one drain in the landings of its pods: what it wants, and what it has told the pilot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tightship.drain.answers import GOING, EvictionAnswer
from tightship.draining.pilot import Pilot
from tightship.objects import Pod


class Guided:
    """Tells *pilot*, if there is one, of the evictions of a drain that wants its pods on *targets*, by their uids."""

    def __init__(self, pilot: Pilot | None, targets: Mapping[str, str]) -> None:
        self.targets = targets
        self._pilot = pilot
        self._announced: set[str] = set()

    async def ready(self, pods: Sequence[Pod]) -> bool:
        """Have the pilot expect the replacements of *pods*, which are about to be evicted.

        Return true if they may be evicted at once. False means that this took a while, so the drain must first see
        whether it still wants to evict them.
        """
        wanted = {pod.uid for pod in pods if pod.uid in self.targets}
        if self._pilot is None or not self._pilot.available or wanted <= self._announced:
            return True
        new = wanted - self._announced
        self._announced |= wanted
        await self._pilot.expect([(pod, self.targets[pod.uid]) for pod in pods if pod.uid in new])
        return False

    def answered(self, pod: Pod, answer: EvictionAnswer) -> None:
        """Tell the pilot the answer to the eviction of *pod*. One without an answer may have been granted."""
        if self._pilot is not None:
            self._announced.discard(pod.uid)
            self._pilot.answered(pod.uid, going=answer in GOING or answer is EvictionAnswer.NO_ANSWER)

    def drop(self) -> None:
        """Tell the pilot that the pods that it was told of are not evicted."""
        while self._announced and self._pilot is not None:
            self._pilot.answered(self._announced.pop(), going=False)


__all__ = ["Guided"]
