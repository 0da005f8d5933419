"""What evictions buy: plans that remove more and more nodes, each with as few evictions as are known."""

from __future__ import annotations

from msgspec import Struct

from tightship.planning.plan import Plan, Strategy


class Bought(Struct, frozen=True):
    """A *plan*, the *strategy* that made it, and *least*: no plan of one round that removes as many evicts fewer pods.

    *solved* says whether *least* is that of the linear program.
    """

    plan: Plan
    strategy: Strategy
    least: int
    solved: bool
