"""The rules of a judgement, besides the HPA's own annotations; made from the settings. Durations are in seconds."""

from __future__ import annotations

from msgspec import Struct

from hpa_scaler.spec.annotations import PREFIX
from hpa_scaler.spec.queries import AGE_QUERY, FAILED_QUERY, LATE_QUERY


class Rules(Struct, frozen=True, kw_only=True):
    """The rules of every judgement.

    *lower_bound* is the lowest floor of HPAs that set none. *age_query* asks a server for the age of its data,
    *late_query* whether its samples come late, and *failed_query* for the targets that it could not scrape; an empty
    one is not sent. *longest_guard* is the longest time that young data hold a floor, *rollout_limit* the longest that
    a rollout does. *longest_gap* is the greatest age at which a history can be continued; *handover_gap* is the same
    for a history that another term of leadership left in the annotation. It must hide no cycle, because that cycle's
    results may not have been written down.

    After *contest_resets* changes by somebody else, each within *contest_window* of the one before, the controller
    leaves an HPA alone for *contest_pause*, doubled with each further change up to *contest_longest_pause*.

    The breaker for correlated drops looks at *drop_count* queries or more. If more than *drop_share* of them, or more
    than *drop_floor_share* of the pods that they wanted, are gone at once, each by more than *drop_size* of what it
    wanted, nothing is lowered for *drop_hold* (0: until they recover).

    A floor goes above *rise_factor* times what is known of the last day, and above *rise_pods*, only once the queries
    have wanted it for as long as they look back; and never above *maximum_factor* times the user's own maximum (0: no
    limit, each).
    """

    prefix: str = PREFIX
    lower_bound: int = 3
    age_query: str = AGE_QUERY
    late_query: str = LATE_QUERY
    failed_query: str = FAILED_QUERY
    cold_guard: bool = True
    longest_guard: float = 3600.0
    rollout_limit: float = 1800.0
    longest_gap: float = 300.0
    handover_gap: float = 300.0
    contest_resets: int = 3
    contest_window: float = 3600.0
    contest_pause: float = 900.0
    contest_longest_pause: float = 6 * 3600.0
    drop_count: int = 10
    drop_share: float = 0.5
    drop_floor_share: float = 0.5
    drop_size: float = 0.3
    drop_hold: float = 3600.0
    rise_factor: float = 3.0
    rise_pods: int = 10
    maximum_factor: float = 3.0


__all__ = ["Rules"]
