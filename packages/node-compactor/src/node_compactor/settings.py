"""What a user can set: the gates of each pool, and the rules of the judgement.

The pool configuration is the older controller's JSON, read as it is: ``{"nodePools": {NAME: {...}}}`` with the keys
``enabled``, ``scaleDownCPURequestRatioLimit`` and ``scaleDownRequiredUnderutilizedNodeCount``. New keys take the same
style, and the name ``"*"`` stands for every pool that is not named.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

from pydantic import AliasChoices, BaseModel, ConfigDict, Field

from node_compactor.cool_downs import CoolDownKeys
from tightship.app.settings.fields import BudgetField, Rules, Seconds
from tightship.app.settings.loading import Location, dotted, load
from tightship.app.settings.sections import DrainKeys, NodeKeys, ScaleUpKeys, SteeringKeys
from tightship.planning.pools import KNOWN_POOL_LABELS

EVERY_OTHER_POOL = "*"

StrategyName = Literal["least-utilized", "fewest-nodes"]


class PoolSettings(BaseModel):
    """The gates of one pool. Names on the wire are the older controller's, or in its style."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    enabled: bool = False
    limit: float = Field(default=0.0, ge=0, alias="scaleDownCPURequestRatioLimit")
    """CPU requests over allocatable CPU below which a node is underutilized (0 to 1)."""
    required_count: int = Field(default=0, ge=0, alias="scaleDownRequiredUnderutilizedNodeCount")
    """Underutilized nodes the pool must have, besides those in drain, before one is removed."""
    minimum_nodes: int = Field(default=0, ge=0, alias="minimumNodeCount")
    """Nodes the pool keeps in any case."""
    budget: BudgetField | None = Field(default=None, alias="maximumNodesInDrain")
    """Nodes of the pool in drain at once, nodes that are not Ready included; a number or a percentage of the pool."""
    strategy: StrategyName | None = None
    """Which nodes of the pool go first; without it, as for all pools."""
    after_added: Seconds | None = Field(default=None, alias="coolDownAfterNodeAdded")
    """Pause of the pool when it got a node; without it, and so with the other two, as for all pools."""
    after_deleted: Seconds | None = Field(default=None, alias="coolDownAfterNodeDeleted")
    """Pause of the pool when a drain has removed one of its nodes."""
    after_failure: Seconds | None = Field(default=None, alias="coolDownAfterFailure")
    """Pause of the pool when a drain in it was given up."""


class CompactorSettings(DrainKeys, NodeKeys, CoolDownKeys, ScaleUpKeys, SteeringKeys):
    """Everything the compactor depends on besides the cluster and the time. Durations are in seconds."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    pools: Mapping[str, PoolSettings] = Field(default_factory=dict, alias="nodePools")
    strategy: StrategyName = "least-utilized"
    placement: Literal["possible", "likely", "certain"] = "likely"
    minimum_age: Seconds = Field(
        default=1200.0, validation_alias=AliasChoices("minimumNodeAge", "MINIMUM_NODE_AGE_SECONDS")
    )
    """Age below which a node is left alone (the older controller's default)."""
    marked_for: Seconds = Field(
        default=300.0,
        validation_alias=AliasChoices("neededMarkedTimeForRemoval", "NEEDED_MARKED_TIME_FOR_REMOVAL_SECONDS"),
    )
    """How long a node must have been underutilized without a break."""
    cluster_budget: BudgetField | None = Field(default=None, alias="maximumNodesInDrain")
    """Nodes of the whole cluster in drain at once."""
    max_nodes: int | None = Field(default=None, ge=1, alias="maximumNodesInPlan")
    """Removals after which a plan stops."""
    pool_labels: tuple[str, ...] = Field(default=KNOWN_POOL_LABELS, alias="nodePoolLabels")
    ignore_daemonsets: bool = Field(default=False, alias="ignoreDaemonSetsUtilization")
    ignore_mirror_pods: bool = Field(default=False, alias="ignoreMirrorPodsUtilization")
    disabled_rules: Rules = Field(default=frozenset(), alias="disabledRules")
    system_pod_timeout: Seconds = Field(default=3600.0, alias="blockingSystemPodTimeout")
    """How long after its creation a kube-system pod without a PDB blocks its node."""

    def pool(self, name: str) -> PoolSettings | None:
        """Return the settings of pool *name*, those of ``"*"`` where it is not named, ``None`` where neither is."""
        return self.pools.get(name) or self.pools.get(EVERY_OTHER_POOL)


def load_settings(values: Mapping[str, object], named: Callable[[Location], str] = dotted) -> CompactorSettings:
    """Return settings from plain values (keys on the wire or field names).

    See :func:`tightship.app.settings.loading.load`.

    Raises :class:`~tightship.app.settings.loading.SettingsError` with all problems.
    """
    return load(CompactorSettings, values, named, inner=PoolSettings)
