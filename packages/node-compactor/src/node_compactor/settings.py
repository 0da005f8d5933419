"""What a user can set: the gates of each pool, and the rules of the judgement.

The pool configuration is the older controller's JSON, read as it is: ``{"nodePools": {NAME: {...}}}`` with the keys
``enabled``, ``scaleDownCPURequestRatioLimit`` and ``scaleDownRequiredUnderutilizedNodeCount``. New keys take the same
style, and the name ``"*"`` stands for every pool that is not named.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Annotated, Literal

from pydantic import AliasChoices, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from tightship.durations import DurationError, parse_duration
from tightship.evictability import SWITCHABLE as SWITCHABLE_POD_RULES
from tightship.nodes import SWITCHABLE as SWITCHABLE_NODE_RULES
from tightship.pools import KNOWN_POOL_LABELS
from tightship.reasons import Reason

EVERY_OTHER_POOL = "*"

SWITCHABLE_RULES = SWITCHABLE_NODE_RULES | SWITCHABLE_POD_RULES
"""Reasons whose rules a user may switch off."""


def _seconds(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return value
    try:
        return parse_duration(str(value), plain_unit="s")
    except DurationError as error:
        raise ValueError(str(error)) from error


Seconds = Annotated[float, BeforeValidator(_seconds), Field(ge=0)]
"""A duration in seconds; ``10m`` and, as in the older controller, a plain number of seconds are read."""


class Budget(BaseModel):
    """How many nodes of a pool (or the cluster) may be in drain at once: a number or a percentage of its nodes."""

    model_config = ConfigDict(frozen=True)

    count: int | None = None
    percent: float | None = None

    def allows(self, nodes: int) -> int:
        """Return how many of *nodes* that is; a percentage is rounded up, so that a small pool is never stuck at 0."""
        if self.count is not None:
            return self.count
        return math.ceil(nodes * (self.percent or 0.0) / 100)

    def __str__(self) -> str:
        return str(self.count) if self.count is not None else f"{self.percent:g}%"


def parse_budget(value: object) -> object:
    """Return a :class:`Budget` from ``3`` or ``"10%"``; raise :class:`ValueError` for anything else."""
    if isinstance(value, Budget):
        return value
    text = str(value).strip()
    if not isinstance(value, bool) and text.isascii():
        if text.isdigit():
            return Budget(count=int(text))
        number = text.removesuffix("%")
        if text.endswith("%") and number.replace(".", "", 1).isdigit() and float(number) <= 100:
            return Budget(percent=float(number))
    raise ValueError(f"{value!r} is not a budget; allowed is a number of nodes such as 3, or a percentage up to 100%")


BudgetField = Annotated[Budget, BeforeValidator(parse_budget)]


def _rules(value: object) -> object:
    if not isinstance(value, (list, tuple, set, frozenset)):
        raise ValueError("must be a list of reasons")  # noqa: TRY004 - pydantic reports ValueError
    unknown = sorted(str(each) for each in value if each not in SWITCHABLE_RULES)
    if unknown:
        allowed = ", ".join(sorted(SWITCHABLE_RULES))
        raise ValueError(f"{', '.join(unknown)} can't be switched off; allowed are {allowed}")
    return frozenset(Reason(str(each)) for each in value)


Rules = Annotated[frozenset[Reason], BeforeValidator(_rules)]
"""Reasons whose rules are switched off."""


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


class SettingsError(ValueError):
    """Settings that can't be used; *problems* has one line for each, naming the key, the value and what is allowed."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


class CompactorSettings(BaseModel):
    """Everything the compactor's judgement depends on besides the cluster and the time. Durations are in seconds."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    pools: Mapping[str, PoolSettings] = Field(default_factory=dict, alias="nodePools")
    strategy: Literal["least-utilized", "fewest-nodes"] = "least-utilized"
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
        found = error.errors()
        problems = {_one_line(each["loc"], each.get("input"), each["msg"], each["type"], named) for each in found}
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
    for name, field in model.model_fields.items():
        choices = field.validation_alias
        keys[name] = field.alias or (str(choices.choices[0]) if isinstance(choices, AliasChoices) else name)
    return keys
