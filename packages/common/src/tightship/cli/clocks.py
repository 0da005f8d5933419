"""The time of a cluster in files: the moment on which most of its clocks agree. Pure.

Every kubelet writes the time of its own clock into its node's status, at least every five minutes and up to half as
much later (``nodeStatusReportFrequency``). The API server writes the time of each object's creation, and in
``managedFields`` the time of each write; no file is older than the newest of these. A wrong clock is outvoted.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping

from tightship.objects.durations import format_duration
from tightship.objects.times import rfc3339

WINDOW = 450
"""Seconds between the reports of kubelets whose clocks agree."""

ODD = 900
"""Seconds from the time of a file from which a clock is wrong."""

RARELY = 3600
"""Seconds between the reports of kubelets that are told to report rarely, so that the API server's times are newer."""

_SHOWN = 3


def agreed_time(reports: Mapping[str, int], stamped: int) -> int:
    """Return the time of a file in seconds since 1970, 0 without any.

    *reports* are the latest times by the kubelets of nodes that still report, *stamped* is the latest time by the API
    server, 0 without any. Each kubelet has a vote, for the time up to a :data:`WINDOW` after its report. The API server
    has one and a half, for any time that is not before its own: it outvotes one kubelet, and two outvote it. Of moments
    with as many votes the earliest counts, because most protections end with time.
    """
    times = sorted(reports.values())

    def votes(at: int) -> float:
        agreeing = bisect_right(times, at) - bisect_left(times, at - WINDOW)
        return agreeing + 1.5 * (0 < stamped <= at + RARELY)

    best = max(sorted({*times, *([stamped] if stamped else [])}), key=votes, default=0)
    return max(best, stamped) if stamped <= best + RARELY else best


def odd_clocks(reports: Mapping[str, int], stamped: int, at: int) -> list[str]:
    """Return sentences about the clocks that are wrong by the time *at* of the file; see :func:`agreed_time`."""
    last = max((each for each in reports.values() if at - RARELY <= each <= at), default=at)
    odd = sorted(
        (name for name in reports if abs(reports[name] - last) > ODD), key=lambda name: -abs(reports[name] - at)
    )
    found = []
    if odd:
        named = ", ".join(f"{name} ({_off(reports[name] - at)})" for name in odd[:_SHOWN])
        more = f" and {len(odd) - _SHOWN:,} more" if len(odd) > _SHOWN else ""
        what = "a clock is wrong, that of node" if len(odd) == 1 else f"{len(odd):,} clocks are wrong, those of nodes"
        found.append(f"{what} {named}{more}: most of the file is of {rfc3339(at)}")
    if stamped > at + ODD:
        found.append(
            f"the API server has written {rfc3339(stamped)} on an object, {_off(stamped - at)} of what the nodes "
            f"report: most of the file is of {rfc3339(at)}"
        )
    return found


def _off(seconds: int) -> str:
    return f"{format_duration(abs(seconds))} {'ahead' if seconds > 0 else 'behind'}"
