"""The rules of a drain, as the settings of a controller give them. Pure."""

from __future__ import annotations

from msgspec import Struct


class DrainRules(Struct, frozen=True, kw_only=True):
    """The rules of a drain; all times are in seconds.

    A claimed node is left alone for *settle*, so that bindings under way become visible. One pod may refuse to go for
    *pod_timeout*; the evictions of a node may take *node_timeout*. A drain waits *await_timeout* for pods that end by
    themselves (0: such pods keep their node). With *keep_drained*, a drained node that nobody takes is kept instead of
    restored. What opens after a cordon has *after_cordon_timeout* to do so.
    """

    settle: float = 5.0
    pod_timeout: float = 600.0
    node_timeout: float = 1800.0
    await_timeout: float = 0.0
    not_ready_timeout: float = 300.0
    pending_timeout: float = 30.0
    after_cordon_timeout: float = 900.0
    hand_over_timeout: float = 3600.0
    keep_drained: bool = False
    backoff: float = 300.0
    backoff_limit: float = 6 * 3600.0
    hold_off: float = 4 * 3600.0
    most_in_flight: int = 10
    workload_pause: float = 0.0
    """Seconds between two evictions of one workload's pods."""
    min_stable_time: float = 0.0
    """Seconds for which the replacement of an evicted pod must have been Ready before the workload's next eviction."""
    past_budgets: bool = False
    """Delete pods instead of evicting them, in spite of every PDB, as the older controller did."""

    @property
    def rest(self) -> float:
        """Least seconds between two evictions of one workload's pods."""
        return max(self.workload_pause, self.min_stable_time)
