"""The user's settings: the gates of each pool, and the rules of the judgement.

The name ``"*"`` stands for every pool without a name of its own here. :mod:`node_compactor.older` reads the keys of
estafette-k8s-node-compactor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from node_compactor.older import native
from tightship.nodes.annexes import PricesSetting
from tightship.planning.plan import STRATEGIES
from tightship.planning.plan.model import Measure
from tightship.process.settings.loading import (
    BudgetField,
    ConfigSource,
    Flag,
    Layered,
    Ratio,
    Seconds,
    resolve,
    wire_keys,
)
from tightship.process.settings.sections import (
    DisabledRules,
    DrainKeys,
    HowSure,
    LeastSaving,
    MostRemovals,
    NodeKeys,
    NodeSettings,
    PoolLabels,
    RateKeys,
    ScaleUpKeys,
    Schedulers,
    SearchKeys,
    SteeringKeys,
    SystemPodTimeout,
    not_below_an_hour,
)
from tightship.process.settings.windows import WindowsSetting, check_together
from tightship.rules.windows import Windows

EVERY_OTHER_POOL = "*"

if TYPE_CHECKING:
    StrategyName: TypeAlias = str
else:
    StrategyName = Literal[tuple(STRATEGIES)]


class PoolSettings(BaseModel):
    """The gates of one pool."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    enabled: bool = False
    limit: Annotated[
        Ratio,
        Flag(
            "--limit RATIO",
            "CPU requests over allocatable CPU below which a node may go: 0.75 or 75% (without --config: 0.75)",
        ),
    ] = Field(default=0.0, alias="cpuRequestRatioLimit")
    required_count: Annotated[
        int, Flag("--required-count N", "underutilized nodes a pool must have before one may go (without --config: 1)")
    ] = Field(default=0, ge=0, alias="requiredUnderutilizedNodeCount")
    """Underutilized nodes that the pool must have, besides nodes in drain, before one is removed."""
    minimum_nodes: Annotated[int, Flag("--min-nodes N", "nodes every pool keeps (default: 0)")] = Field(
        default=0, ge=0, alias="minimumNodeCount"
    )
    budget: Annotated[
        BudgetField | None,
        Flag(
            "--budget N|P%",
            "the pace: nodes of a pool that may be out at once, those in drain and not Ready together, a number or a "
            "percentage; explain shows it, and no plan is shorter for it (default: no limit)",
        ),
    ] = Field(default=None, alias="maximumNodesInDrain")
    nodes_per_hour: int = Field(default=0, ge=0, alias="maximumNodesPerHour")
    """Most nodes of the pool whose drains begin within any hour, whichever controller drains them; 0: no limit."""
    nodes_per_day: int = Field(default=0, ge=0, alias="maximumNodesPerDay")
    """The same within any 24 hours; not below the rate of an hour."""
    evictions_per_hour: int = Field(default=0, ge=0, alias="maximumEvictionsPerHour")
    """Most pods that drains of the pool's nodes evict within any hour; 0: no limit."""
    evictions_per_day: int = Field(default=0, ge=0, alias="maximumEvictionsPerDay")
    """The same within any 24 hours; not below the rate of an hour."""
    strategy: StrategyName | None = None
    """Which nodes of the pool go first; ``None``: as for all pools."""
    after_added: Seconds | None = Field(default=None, alias="coolDownAfterNodeAdded")
    """Pause of the pool after it got a node; ``None``, here and in the next two: as for all pools."""
    after_deleted: Seconds | None = Field(default=None, alias="coolDownAfterNodeDeleted")
    """Pause of the pool after a drain has removed one of its nodes."""
    after_failure: Seconds | None = Field(default=None, alias="coolDownAfterFailure")
    """Pause of the pool after a drain in it was given up."""
    windows: WindowsSetting = Windows()
    """When drains in the pool may begin, if the windows of all pools are open too."""

    _days = field_validator("nodes_per_day", "evictions_per_day")(not_below_an_hour)


class CoolDownKeys(Layered):
    """Cool-downs after events in a pool, or in any pool.

    Each default is what users of Cluster Autoscaler and of node-refiner expect, for the pools where the pause helps:

    * *Node added*, 10 minutes for its pool, none for the others. A new node is evidence of load that has not settled.
      Cluster Autoscaler waits as long (``--scale-down-delay-after-add``), by default for all groups at once;
      node-refiner waits an hour for the whole cluster. But a cluster of many pools always has some new node, so a
      global pause would prevent every removal (hence ``--scale-down-delay-type-local``). Users may set a global one.
    * *Node deleted*, none, as in Cluster Autoscaler and the older controller: one node goes at a time, and the next is
      judged on the resulting cluster.
    * *Drain failed*, 10 minutes for its pool (node-refiner's): the pool's nodes run the same workloads, so the next
      drain would likely fail as well and only move pods about. 3 minutes for all pools
      (``--scale-down-delay-after-failure``). The node itself has its own, growing ``backoff``.
    """

    after_added: Seconds = Field(default=600.0, alias="coolDownAfterNodeAdded")
    """Pause of a pool after it got a node. A pool may have its own."""
    after_deleted: Seconds = Field(default=0.0, alias="coolDownAfterNodeDeleted")
    """Pause of a pool after a drain has removed one of its nodes. A pool may have its own."""
    after_failure: Seconds = Field(default=600.0, alias="coolDownAfterFailure")
    """Pause of a pool after a drain in it was given up. A pool may have its own."""
    all_after_added: Seconds = Field(default=0.0, alias="clusterCoolDownAfterNodeAdded")
    """Pause of all pools after any of them got a node."""
    all_after_deleted: Seconds = Field(default=0.0, alias="clusterCoolDownAfterNodeDeleted")
    """Pause of all pools after a drain has removed a node."""
    all_after_failure: Seconds = Field(default=180.0, alias="clusterCoolDownAfterFailure")
    """Pause of all pools after a drain was given up."""


class CompactorSettings(
    NodeSettings, DrainKeys, NodeKeys, CoolDownKeys, ScaleUpKeys, SearchKeys, SteeringKeys, RateKeys
):
    """The compactor's settings: its only input besides the cluster and the time. Durations are in seconds.

    The reference and documents list the keys in the order of these fields, then of the sections from the last on.
    """

    pools: Mapping[str, PoolSettings] = Field(default_factory=dict, alias="nodePools")
    strategy: Annotated[
        StrategyName,
        Flag(
            "--strategy NAME",
            f"which nodes go first: {', '.join(STRATEGIES)} (default: {next(iter(STRATEGIES))})",
            "plan",
        ),
    ] = "least-utilized"
    utilization: Annotated[
        Measure,
        Flag(
            "--utilization WORD",
            "what least-utilized goes by: dominant (the largest of the ratios of CPU, memory and extended resources) "
            "or cpu (default: dominant)",
            "plan",
        ),
    ] = "dominant"
    """What ``least-utilized`` goes by: ``dominant``, the largest of the ratios of CPU, memory and extended resources,
    or ``cpu``."""
    placement: HowSure
    minimum_age: Annotated[
        Seconds,
        Flag(
            "--min-age DURATION",
            "age below which a node stays: 90s, 10m, 1h30m, or a plain number of seconds (default: 0 while planning)",
        ),
    ] = Field(default=1200.0, alias="minimumNodeAge")
    """Age below which a node stays (the older controller's default)."""
    marked_for: Annotated[
        Seconds,
        Flag(
            "--marked-for DURATION",
            "how long a node must have been marked underutilized, in the same forms (default: 0 while planning)",
        ),
    ] = Field(default=300.0, alias="neededMarkedTimeForRemoval")
    cluster_budget: Annotated[
        BudgetField | None, Flag("--cluster-budget N|P%", "the same for the whole cluster (default: 1)", rank=-1)
    ] = Field(default=None, alias="maximumNodesInDrain")
    max_nodes: MostRemovals
    minimum_saving: LeastSaving
    pool_labels: PoolLabels
    ignore_daemonsets: Annotated[
        bool, Flag("--ignore-daemonsets", "leave DaemonSet pods out of both sides of the ratio (default: no)", "rules")
    ] = Field(default=False, alias="ignoreDaemonSetsUtilization")
    ignore_mirror_pods: Annotated[
        bool, Flag("--ignore-mirror-pods", "leave mirror pods out of both sides of the ratio (default: no)", "rules")
    ] = Field(default=False, alias="ignoreMirrorPodsUtilization")
    disabled_rules: DisabledRules
    schedulers: Schedulers
    system_pod_timeout: SystemPodTimeout
    prices: PricesSetting
    windows: WindowsSetting

    @field_validator("pools")
    @classmethod
    def _meet(cls, pools: Mapping[str, PoolSettings], info: ValidationInfo) -> Mapping[str, PoolSettings]:
        own = {name: pool.windows for name, pool in pools.items() if pool.enabled and pool.windows}
        check_together(info.data.get("windows") or Windows(), own)
        return pools

    @classmethod
    def read(cls, field: str, value: object) -> object:
        """Return *value* for the validation: the settings inside pools by key, because flags are merged by key."""
        if field != "pools" or not isinstance(value, Mapping):
            return value
        keys = wire_keys(PoolSettings)
        return {
            name: {keys.get(key, key): each for key, each in pool.items()} if isinstance(pool, Mapping) else pool
            for name, pool in value.items()
        }

    @property
    def strategies(self) -> frozenset[str]:
        """The strategies of all enabled pools, or that of a plan without any."""
        chosen = frozenset(pool.strategy or self.strategy for pool in self.pools.values() if pool.enabled)
        return chosen or frozenset({self.strategy})

    def windows_of(self, pool: str) -> Sequence[Windows]:
        """Return the windows of all pools and those of *pool*: all of them must be open."""
        own = self.pool(pool)
        return (self.windows,) if own is None else (self.windows, own.windows)

    def pool(self, name: str) -> PoolSettings | None:
        """Return the settings of pool *name*, else of ``"*"``, else ``None``."""
        return self.pools.get(name) or self.pools.get(EVERY_OTHER_POOL)


def load_settings(values: Mapping[str, object]) -> CompactorSettings:
    """Return settings from plain values by their keys; see :func:`tightship.process.settings.loading.load`."""
    return resolve(CompactorSettings, ConfigSource(CompactorSettings, native(values)))
