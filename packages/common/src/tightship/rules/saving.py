"""Whether what a node costs is worth the evictions that removing it takes. Pure."""

from __future__ import annotations

import math

from tightship.objects.counting import counted
from tightship.objects.money import HOURS_PER_MONTH, MICROS
from tightship.objects.reasons import Reason
from tightship.rules.checks import Check


def saving_check(price: int | None, evictions: int, least: float) -> Check | None:
    """Return whether removing a node saves at least *least* a month for each of its *evictions*.

    *price* is what an hour of the node costs, in millionths of the currency, ``None`` if nobody knows; *least* is in
    the currency. ``None`` without a least saving: then every removal is worth it.
    """
    if not least:
        return None
    what, reason = "saving per eviction", Reason.SAVING_TOO_SMALL
    wanted = f"minimumSavingPerEviction is {least:g}"
    if not evictions:
        return Check(what, reason, True, f"no pod has to be evicted; {wanted}")
    if price is None:
        fix = "give the node a price (--prices FILE), or set --min-saving-per-eviction 0"
        return Check(what, reason, False, f"the node has no price, and {wanted}", fix)
    each = price * HOURS_PER_MONTH / MICROS / evictions
    detail = f"{counted(evictions, 'eviction')} would save {each:,.2f} a month each, {wanted}"
    enough = math.floor(each * 100) / 100  # rounded down, because the shown setting must let the node through
    fix = f"lower minimumSavingPerEviction to {enough:g} (--min-saving-per-eviction {enough:g})"
    return Check(what, reason, each >= least, detail, "" if each >= least else fix)
