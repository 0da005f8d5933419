"""The annexes that controllers of nodes have. With a folder and its lines here deleted, the rest works as before."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeAlias

from tightship.cluster.installations import Beside
from tightship.deletion_costs import pod_costs
from tightship.draining.extensions import Guide, Landed, PodCosts
from tightship.draining.installations import Installations
from tightship.kube.cache import ClusterCache
from tightship.kube.connection import Connection
from tightship.landing import landing_guide
from tightship.process.serving import Frame
from tightship.process.settings.process import NodeProcessSettings
from tightship.process.settings.sections import NodeSettings

GuideMaker: TypeAlias = Callable[
    [Frame[NodeSettings], NodeProcessSettings, ClusterCache, Installations, Callable[[Landed], None]], Guide
]
CostMaker: TypeAlias = Callable[[Connection, Callable[[], Beside], logging.Logger], PodCosts]

GUIDE: GuideMaker | None = landing_guide
"""What leads the replacements of evicted pods; without it, only soft taints steer."""

COSTS: CostMaker | None = pod_costs
"""What writes deletion costs on pods; without it, nothing does."""
