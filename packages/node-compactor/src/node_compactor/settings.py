"""What a user can set: the gates of each pool, and the rules of the judgement.

The pool configuration is the older controller's JSON, read as it is: ``{"nodePools": {NAME: {...}}}`` with the keys
``enabled``, ``scaleDownCPURequestRatioLimit`` and ``scaleDownRequiredUnderutilizedNodeCount``. New keys take the same
style, and the name ``"*"`` stands for every pool that is not named.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError

from node_compactor.fields import SWITCHABLE_RULES, Budget, BudgetField, Rules, Seconds, parse_budget
from node_compactor.sections import DrainKeys, PacingKeys, SteeringKeys
from tightship.pools import KNOWN_POOL_LABELS

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


class SettingsError(ValueError):
    """Settings that can't be used; *problems* has one line for each, naming the key, the value and what is allowed."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


class CompactorSettings(DrainKeys, PacingKeys, SteeringKeys):
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


Location = tuple[int | str, ...]
"""Where a value stands: the keys from the outermost inwards."""


def dotted(location: Location) -> str:
    """Return a location as a person names it: ``nodePools.general.enabled``."""
    return ".".join(str(part) for part in location)


def load_settings(values: Mapping[str, object], named: Callable[[Location], str] = dotted) -> CompactorSettings:
    """Return settings from plain values (keys on the wire or field names).

    Raises :class:`SettingsError` with **all** problems, each naming the key, the value and what is allowed. *named*
    words a location, for values that don't come from a file.
    """
    try:
        return CompactorSettings.model_validate(dict(values))
    except ValidationError as error:
        keys = wire_keys(CompactorSettings)

        def placed(location: Location) -> str:
            # A default that another value makes impossible is placed by its field, which nobody wrote.
            outermost = [keys.get(str(each), each) if each not in values else each for each in location[:1]]
            return named((*outermost, *location[1:]))

        found = error.errors()
        problems = {_one_line(each["loc"], each.get("input"), each["msg"], each["type"], placed) for each in found}
        raise SettingsError(sorted(problems)) from error


def _one_line(location: Location, value: object, message: str, kind: str, named: Callable[[Location], str]) -> str:
    key = named(location)
    if kind == "extra_forbidden":
        allowed = ", ".join(sorted(wire_keys(PoolSettings if len(location) > 1 else CompactorSettings).values()))
        return f"{key}: unknown key; allowed are {allowed}"
    return f"{key}: {value!r}: {message.removeprefix('Value error, ')}"


def wire_keys(model: type[BaseModel]) -> dict[str, str]:
    """Return the key on the wire of each field of *model*, by the field's name."""
    keys: dict[str, str] = {}
    # What the model says itself comes before the sections it takes over, as people would write it.
    fields = sorted(model.model_fields.items(), key=lambda item: item[0] not in model.__annotations__)
    for name, field in fields:
        choices = field.validation_alias
        keys[name] = field.alias or (str(choices.choices[0]) if isinstance(choices, AliasChoices) else name)
    return keys


__all__ = [
    "EVERY_OTHER_POOL",
    "SWITCHABLE_RULES",
    "Budget",
    "CompactorSettings",
    "Location",
    "PoolSettings",
    "SettingsError",
    "StrategyName",
    "dotted",
    "load_settings",
    "parse_budget",
    "wire_keys",
]
