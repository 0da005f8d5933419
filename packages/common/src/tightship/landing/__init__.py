"""Leads the replacements of evicted pods to the nodes that a plan chose: the annex of ``steering: hints``."""

from __future__ import annotations

from collections.abc import Callable

from tightship.draining.extensions import Guide, Landed
from tightship.draining.installations import Installations
from tightship.kube.cache import ClusterCache
from tightship.landing.controller import LandingController, MissedLandings
from tightship.landing.landing_map import LandingMap
from tightship.process.loop import in_thread
from tightship.process.serving import Frame
from tightship.process.settings.process import NodeProcessSettings
from tightship.process.settings.sections import NodeSettings


def landing_guide(
    frame: Frame[NodeSettings],
    run: NodeProcessSettings,
    cache: ClusterCache,
    installations: Installations,
    count: Callable[[Landed], None],
) -> Guide:
    """Return what leads pods in the process of *frame*; *count* is called for each replacement that has landed."""
    connection, live = frame.connection, frame.live
    missed = MissedLandings(
        connection, cache, beside=lambda: installations.beside, leading=frame.leading, in_thread=in_thread
    )
    return LandingController(
        cache,
        LandingMap(connection, run.namespace, run.landings),
        missed,
        steering=lambda: live.current.steering,
        acting=frame.acting,
        leading=frame.leading,
        count=count,
    )


__all__ = ["landing_guide"]
