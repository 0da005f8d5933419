"""Whether the places that an earlier plan chose still hold. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from tightship.core.objects import Pod
from tightship.planning.placement.space import Space


def all_land(space: Space, node: str, pods: Iterable[Pod]) -> bool:
    """Whether each of *pods*, which leave *node*, still has its place on the landing in the snapshot of *space*.

    A search for other places may miss these: whoever chose them may have searched for much longer. *space* stays as it
    is.
    """
    landings, origin = space.snapshot.landings, space.index.get(node)
    if not landings or origin is None:
        return False
    mark = space.mark()
    try:
        space.close(origin)
        asks = [(space.ask(pod), space.index.get(landings.get(pod.uid, ""))) for pod in pods]
        for ask, _ in asks:
            space.lift(ask, origin)
        for ask, target in asks:
            if target is None or ask.unknown is not None or not space.accepts(ask, target):
                return False
            space.place(ask, target)
        return True
    finally:
        space.rollback(mark)


__all__ = ["all_land"]
