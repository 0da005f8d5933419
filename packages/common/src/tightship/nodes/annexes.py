"""The annexes that controllers of nodes have. With a folder and its lines here deleted, the rest works as before."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Annotated, TypeAlias

from pydantic import BeforeValidator, Field, InstanceOf

from tightship.advice import advise
from tightship.cluster.installations import Beside
from tightship.deletion_costs import pod_costs
from tightship.documents.build import Inputs
from tightship.draining.extensions import Guide, Landed, PodCosts
from tightship.draining.installations import Installations
from tightship.frontier import frontier
from tightship.kube.cache import ClusterCache
from tightship.kube.connection import Connection
from tightship.landing import landing_guide
from tightship.objects.money import PriceReader, Prices
from tightship.planning.changes import AdviceAsked
from tightship.planning.plan import Improve, Plan, Proven
from tightship.prices import prices
from tightship.process.serving import Frame
from tightship.process.settings.loading import Flag
from tightship.process.settings.process import NodeProcessSettings
from tightship.process.settings.sections import NodeSettings
from tightship.search import search

GuideMaker: TypeAlias = Callable[
    [Frame[NodeSettings], NodeProcessSettings, ClusterCache, Installations, Callable[[Landed], None]], Guide
]
CostMaker: TypeAlias = Callable[[Connection, Callable[[], Beside], logging.Logger], PodCosts]

Advise: TypeAlias = Callable[[AdviceAsked, Inputs, Sequence[str]], Inputs]
"""Adds to what a document is made of: advice about a plan, or about the named nodes."""

ADVISE: Advise | None = advise
"""What advises; without it, plans and explanations have no advice."""

SEARCH: Improve | None = search
"""What searches for better plans; without it, plans are those of their strategies."""

Frontier: TypeAlias = Callable[[int | None], tuple[Improve, Callable[[Plan], Proven]]]

FRONTIER: Frontier | None = frontier
"""What says what evictions buy; without it, ``plan`` has neither ``--frontier`` nor ``--evictions``."""

PRICES: PriceReader | None = prices
"""What reads prices; without it, only annotations tell what a node costs."""

GUIDE: GuideMaker | None = landing_guide
"""What leads the replacements of evicted pods; without it, only soft taints steer."""

COSTS: CostMaker | None = pod_costs
"""What writes deletion costs on pods; without it, nothing does."""


def _prices(value: object) -> object:
    return value if PRICES is None or isinstance(value, Prices) else PRICES(value, None)


def _price_file(path: str) -> object:
    return path if PRICES is None else PRICES(None, path)


PricesSetting = Annotated[
    InstanceOf[Prices],
    BeforeValidator(_prices),
    Field(default_factory=lambda: Prices() if PRICES is None else PRICES(None, None)),
    Flag(
        "--prices FILE",
        "prices of nodes for an hour, by instance type or label selector, as YAML or JSON; or the address of a "
        "Prometheus server that scrapes OpenCost: see docs/money.md (default: the annotations "
        "tightship.dev/hourly-price, then clouds' prices on demand)",
        "plan",
        parse=_price_file,
    ),
]
"""What nodes cost."""
