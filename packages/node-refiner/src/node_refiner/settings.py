"""The user's settings: the older controller's six keys, the order of candidates, and the settings of all controllers.

The configuration has all keys side by side in snake case, the older controller's style: ``settle_time`` is
node-compactor's ``settleTime``. A plain number of a duration means **minutes** there, as in the older controller;
durations in these fields are in seconds.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal, get_args, get_origin

from pydantic import Field, ValidationInfo, field_validator

from tightship.nodes.annexes import PricesSetting
from tightship.process.settings.fields import Budget, BudgetField, Flag, GoBool, Minutes, Seconds, is_duration
from tightship.process.settings.loading import wire_keys
from tightship.process.settings.sections import (
    DisabledRules,
    HowSure,
    MostRemovals,
    NodeSettings,
    PoolLabels,
    Schedulers,
    SteeringWord,
    SystemPodTimeout,
)

PREFIX = "NODE_REFINER_"
"""The prefix of environment variables; a key in capitals follows."""

CandidateOrder = Literal["score", "fewest_evictions", "pods_priority"]
_ORDERS = get_args(CandidateOrder)

_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


class RefinerSettings(NodeSettings):
    """The refiner's settings: its only input besides the cluster and the time. Durations are in seconds.

    The defaults of the first seven fields are from the older controller's README.
    """

    drainer_enabled: GoBool = True
    """Whether anything is drained. Otherwise the refiner judges and shows everything, and changes nothing."""
    time_gap: Seconds = 600.0
    """Pause after a drain: from its start while it is under way, then from its end."""
    time_since_last_addition: Seconds = 3600.0
    """Pause after a node was added to the cluster."""
    minimum_nodes: Annotated[int, Flag("--min-nodes N", "nodes the cluster keeps (default: 2)")] = Field(
        default=2, ge=0
    )
    minimum_non_tainted_nodes: Annotated[
        int,
        Flag(
            "--min-non-tainted-nodes N",
            "nodes without a taint that keeps pods away, which the cluster keeps (default: 2)",
        ),
    ] = Field(default=2, ge=0)
    count_tainted: Annotated[
        GoBool,
        Flag("--count-tainted", "count nodes of dedicated (tainted) pools as well, each pool by itself (default: no)"),
    ] = False
    """Whether nodes with equal taints that keep pods away are a pool with an excess of its own. Otherwise they stay."""
    excess_nodes_threshold: Annotated[
        float,
        Flag(
            "--threshold NODES", "nodes the cluster must be able to do without before one may go (default: 2)", rank=-1
        ),
    ] = Field(default=2.0, ge=0, allow_inf_nan=False)
    candidate_order: Annotated[
        CandidateOrder,
        Flag(
            "--candidate-order WORD",
            f"which nodes go first: {', '.join(_ORDERS[:-1])} or {_ORDERS[-1]} (default: score)",
            "plan",
        ),
    ] = "score"
    cpu_weight: Annotated[
        float, Flag("--cpu-weight W", "weight of the CPU ratio in the score (default: 0.8)", "plan")
    ] = Field(default=0.8, ge=0, allow_inf_nan=False)
    memory_weight: Annotated[
        float, Flag("--memory-weight W", "weight of the memory ratio in the score (default: 0.2)", "plan")
    ] = Field(default=0.2, ge=0, allow_inf_nan=False)
    placement: HowSure
    cluster_budget: BudgetField = Field(default=Budget(count=1), alias="maximum_nodes_in_drain")
    """Most nodes of the whole cluster in drain at once, including NotReady nodes."""
    max_nodes: MostRemovals
    pool_labels: PoolLabels
    """Labels that name a node's pool. Pools are only for display and selection; the refiner judges the whole
    cluster."""
    disabled_rules: DisabledRules
    schedulers: Schedulers
    system_pod_timeout: SystemPodTimeout
    prices: PricesSetting
    pod_timeout: Seconds = Field(default=510.0, alias="podEvictionTimeout")
    node_timeout: Seconds = Field(default=510.0, alias="nodeDrainTimeout")
    """The older controller gave every drain 8 minutes and 30 seconds."""
    backoff: Seconds = 600.0
    """By default as long as ``time_gap``, after which the older controller tried again."""
    scale_up_veto: GoBool = Field(default=True, alias="scaleUpVeto")
    """See :class:`~tightship.process.settings.sections.ScaleUpKeys`."""
    steering: SteeringWord = "taints"
    """See :class:`~tightship.process.settings.sections.SteeringKeys`."""
    deletion_cost: GoBool = Field(default=False, alias="deletionCost")
    """See :class:`~tightship.process.settings.sections.SteeringKeys`."""

    @field_validator("memory_weight")
    @classmethod
    def _weighs(cls, memory: float, info: ValidationInfo) -> float:
        if memory == 0 and info.data.get("cpu_weight") == 0:
            raise ValueError("cpu_weight is 0 as well; allowed is at least one above 0, or every node scores the same")
        return memory

    @staticmethod
    def spelled(key: str) -> str:
        """Return a camel-case key in snake case: ``maximumAPIFailures`` becomes ``maximum_api_failures``."""
        return _HUMP.sub("_", key).lower()

    @classmethod
    def variables(cls, field: str) -> tuple[str, ...]:
        """Return the name of the environment variable that sets *field*."""
        return (PREFIX + KEYS[field].upper(),)

    @classmethod
    def read(cls, field: str, value: object) -> object:
        """Return *value* for the validation: texts with commas as lists, plain numbers of durations as minutes."""
        if field in DURATIONS and isinstance(value, int | float) and not isinstance(value, bool):
            return Minutes(value)
        if not isinstance(value, str):
            return value
        if get_origin(cls.model_fields[field].annotation) in (tuple, frozenset):
            return [part.strip() for part in value.split(",") if part.strip()]
        return Minutes(value.strip()) if field in DURATIONS else value.strip()


KEYS = wire_keys(RefinerSettings)
"""The configuration's key of each field."""

DURATIONS = frozenset(name for name, field in RefinerSettings.model_fields.items() if is_duration(field))
"""Fields that hold durations."""

__all__ = ["DURATIONS", "KEYS", "PREFIX", "CandidateOrder", "RefinerSettings"]
