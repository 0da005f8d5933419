"""What keeps nodes, and what that costs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tightship.documents.build import blockers
from tightship.documents.document import Blocker
from tightship.objects.reasons import Reason, Refusal
from tightship_testkit.builders import snapshot

NO_PLACE, MARKED = Refusal(Reason.NO_PLACE, "shop/web-1", ""), Refusal(Reason.NODE_DO_NOT_DRAIN, "n", "")


def test_what_keeps_nodes_is_counted_and_summed_alone_and_beside_others() -> None:
    """The last node is not to be judged, and the plan itself keeps the one before."""
    kept = {"a": (NO_PLACE,), "b": (NO_PLACE, MARKED), "c": (MARKED,), "d": (NO_PLACE, NO_PLACE)}
    kept |= {"e": (Refusal(Reason.PDB_SPENT_BY_PLAN, "", ""),), "f": (NO_PLACE, Refusal(Reason.NOT_SELECTED, "", ""))}
    facts: Any = {
        name: SimpleNamespace(pool="spare", price=SimpleNamespace(monthly=10**number))
        for number, name in enumerate("abcdef")
    }
    assert blockers(snapshot(), facts, kept) == (
        Blocker("NoPlace", "pool spare", 3, 2, 1011, 1001),
        Blocker("NodeDoNotDrain", "pool spare", 2, 1, 110, 100),
    )
