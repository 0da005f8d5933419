"""The sections of every node controller's settings: drains, the health brake, regrets, scale-ups and steering.

Each class is one section; the configuration has the keys of all sections side by side. Durations are in seconds.
Aliases are the keys.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, Self, get_args

import msgspec
from pydantic import BeforeValidator, Field, InstanceOf, ValidationInfo, field_validator

from tightship.cluster.pools import KNOWN_POOL_LABELS
from tightship.drain.machine import DrainRules
from tightship.objects.money import Prices
from tightship.objects.reasons import Reason
from tightship.objects.schedulers import SCHEDULERS, Scoring
from tightship.objects.selectors import Taint
from tightship.planning.demand import KEPT_FOR, ReservedDemand
from tightship.planning.plan.model import CANDIDATE, Placement, SteeringRules
from tightship.process.settings.loading import SWITCHABLE_RULES, BudgetField, Flag, Layered, Rules, Seconds, Share
from tightship.process.settings.windows import WindowsSetting
from tightship.rules.evictability import EvictionRules, RestartMode, awaited_for
from tightship.rules.rates import Rates
from tightship.rules.windows import Windows

_log = logging.getLogger(__name__)

_RULES = DrainRules()


Restarts = Annotated[RestartMode, BeforeValidator(lambda value: "off" if value in (False, "false") else value)]
"""YAML 1.1 reads ``off`` as false."""


class DrainKeys(Layered):
    """How a drain proceeds: :class:`tightship.drain.machine.DrainRules` has these names and defaults."""

    eviction_method: Literal["evict", "delete"] = Field(default="evict", alias="evictionMethod")
    """``evict`` asks the API server, which respects every PodDisruptionBudget. ``delete`` deletes the pods **past every
    PodDisruptionBudget**, as the older controller did: budgets then neither keep a node nor slow its drain."""
    restarts: Restarts = Field(default="off", alias="makeBeforeBreak")
    """Whether a Deployment is restarted by its own rollout, which starts a new pod before it ends one, where evicting
    its pods would leave none Ready: ``off``, ``marked`` (annotation, or label of the namespace,
    ``tightship.dev/make-before-break: "true"``), or ``all`` that have no ``false`` there. Needs the right to patch
    Deployments."""
    settle: Seconds = Field(default=_RULES.settle, alias="settleTime")
    """Time between cordoning a node and listing and judging its pods once more, so that a binding under way becomes
    visible (Cluster Autoscaler's ``--node-delete-delay-after-taint`` and Karpenter's minimum are 5 s)."""
    pod_timeout: Seconds = Field(default=_RULES.pod_timeout, alias="podEvictionTimeout")
    """A drain is given up once no pod has accepted its eviction for this long."""
    node_timeout: Seconds = Field(default=_RULES.node_timeout, alias="nodeDrainTimeout")
    """The longest time for emptying one node, without ``awaitCompletionFor``."""
    await_timeout: Seconds = Field(default=_RULES.await_timeout, alias="awaitCompletionFor")
    """How long a drain waits for pods that end by themselves: pods of Jobs that must not be restarted, and pods whose
    safe-to-evict annotation says ``on-completion``. 0: such pods keep their node."""
    not_ready_timeout: Seconds = Field(default=_RULES.not_ready_timeout, alias="notReadyTimeout")
    """A drain is given up once its node has been NotReady for this long; node lifecycle does the rest."""
    pending_timeout: Seconds = Field(default=_RULES.pending_timeout, alias="pendingTimeout")
    """A drain gives its node back once a pod has been without a node for this long, if the pod was created since the
    drain began and the node could take it. The longer, the likelier the autoscaler adds a node for the pod."""
    after_cordon_timeout: Seconds = Field(default=_RULES.after_cordon_timeout, alias="afterCordonTimeout")
    """How long a cordoned node waits for budgets that allow evictions only then, before anything is evicted."""
    hand_over_timeout: Seconds = Field(default=_RULES.hand_over_timeout, alias="handOverTimeout")
    """How long an empty node waits for the autoscaler (which by default removes it after 10 minutes)."""
    when_not_taken: Literal["restore", "keep"] = Field(default="restore", alias="whenNotTaken")
    """The end of an empty node that no autoscaler removes in time: ``restore`` uncordons the node, ``keep`` leaves it
    empty, cordoned and in drain for a person to delete."""
    backoff: Seconds = Field(default=_RULES.backoff, alias="backoff")
    """Pause before the next attempt at a node whose drain failed; doubles with each failure in a row."""
    backoff_limit: Seconds = Field(default=_RULES.backoff_limit, alias="backoffLimit", validate_default=True)
    """The longest such pause."""
    hold_off: Seconds = Field(default=_RULES.hold_off, alias="holdOff")
    """How long a node is left alone after somebody else uncordoned it during a drain."""
    most_in_flight: int = Field(default=_RULES.most_in_flight, ge=1, alias="maximumEvictionsInFlight")
    """Most pods of one node that may be leaving at a time."""

    @field_validator("backoff_limit")
    @classmethod
    def _grows(cls, limit: float, info: ValidationInfo) -> float:
        first = info.data.get("backoff")
        if first is not None and limit < first:
            raise ValueError(f"is below backoff; allowed is {first:g} s or more")
        return limit

    @property
    def past_budgets(self) -> bool:
        """Whether drains delete pods past every PodDisruptionBudget."""
        return self.eviction_method == "delete"

    @property
    def keep_drained(self) -> bool:
        """Whether a drained node that nobody removes stays drained."""
        return self.when_not_taken == "keep"

    @property
    def drain_rules(self) -> DrainRules:
        """The rules of drains."""
        return msgspec.convert(self, DrainRules, from_attributes=True)


class HealthKeys(Layered):
    """The health brake: no drain begins while the cluster is unhealthy."""

    not_ready_count: int = Field(default=1, ge=0, alias="maximumNotReadyNodeCount")
    """How many nodes may be NotReady before no drain begins any more, whatever the percentage says."""
    not_ready_share: Share = Field(default=0.1, alias="maximumNotReadyNodePercentage")
    """The same as a share of all nodes. The larger of the two counts, as with Cluster Autoscaler's
    ``--ok-total-unready-count`` (3) and ``--max-total-unready-percentage`` (45). These defaults are stricter: packing a
    troubled cluster later loses nothing."""
    api_failures: int = Field(default=2, ge=0, alias="maximumAPIFailures")
    """In how many passes in a row the API server may fail before no drain begins any more."""
    stranded_after: Seconds = Field(default=120.0, alias="pendingAfterDrainTimeout")
    """How long a pod created since the last drain may be Pending before no drain begins any more."""
    stranded_window: Seconds = Field(default=3600.0, alias="pendingAfterDrainWindow")
    """How long after a drain its Pending pods count: a pod that nothing can help must not stop drains permanently."""


class RegretKeys(Layered):
    """Lessons from drains after which a node was added again: see :mod:`tightship.rules.waiting`."""

    regret_window: Seconds = Field(default=3600.0, alias="regretWindow")
    """How long after a drain an added node counts as the drained node's return, and how long its pool then pauses. The
    pause doubles with each such node and halves with each drain without one. 0 switches this off."""
    regret_limit: Seconds = Field(default=86400.0, alias="regretLimit")
    """The longest such pause."""


class NodeKeys(HealthKeys, RegretKeys):
    """The conditions under which any controller of nodes begins something."""


class ScaleUpKeys(Layered):
    """Room for replicas that HPAs are about to start (:mod:`tightship.planning.demand`), and for pods
    that others will move (:mod:`tightship.rules.nodes`).
    """

    scale_up_veto: Annotated[
        bool,
        Flag(
            "--scale-up-veto",
            "keep nodes whose removal would need the room of replicas that HPAs are about to start (default: on)",
            "rules",
        ),
    ] = Field(default=True, alias="scaleUpVeto")
    scale_up_replicas: Annotated[
        int,
        Flag(
            "--scale-up-replicas N", "for how many replicas of each HPA room is kept, 1 or more (default: 100)", "rules"
        ),
    ] = Field(default=100, ge=1, alias="maximumScaleUpReplicas")
    """Most replicas of each HPA that get room: a runaway HPA must not cost every pass its time."""
    cordon_room_timeout: Annotated[
        Seconds,
        Flag(
            "--cordon-room-timeout DURATION",
            "how long room is kept for the pods of a node that others cordoned or that is not Ready; 0 keeps none "
            "(default: 24h)",
            "rules",
        ),
    ] = Field(default=KEPT_FOR, alias="cordonRoomTimeout")
    """How long room is kept for the pods of a node that somebody else cordoned, or that is not Ready. Such a node will
    be drained soon; one that stays so for ever must not keep the cluster from being compacted."""


Steering = Literal["off", "taints", "hints"]
"""How evicted pods find the places that the plan chose.

``taints``: soft taints on the nodes that go next. ``hints``: also a node affinity to the plan's targets and off all
nodes that the plan removes, which an admission policy gives to the pods.
"""


EXACT = "exact"
"""A word of earlier versions of this setting, which means ``hints`` now."""


def _steering(value: object) -> object:
    """Return the word for *value*: YAML 1.1 reads ``off`` as false."""
    word = str(value).strip().lower()
    if word == EXACT:
        _log.warning("steering: exact is no more: hints applies, which leads pods as well without a scheduling gate")
    word = {"false": "off", EXACT: "hints"}.get(word, word)
    if word not in get_args(Steering):
        raise ValueError(f"allowed are {', '.join(get_args(Steering))}")
    return word


SteeringWord = Annotated[Steering, BeforeValidator(_steering)]


class SteeringKeys(Layered):
    """How evicted pods are led to nodes that stay."""

    steering: SteeringWord = "taints"
    """``taints``: the next nodes to go carry the taint ``tightship.dev/candidate:PreferNoSchedule``. ``hints`` does the
    same, and uses the chart's admission policy, on Kubernetes 1.36 and newer: see :mod:`tightship.landing.controller`.
    YAML 1.1 reads ``off`` as ``false``, which is therefore allowed."""
    candidate_taints: int = Field(default=400, ge=0, alias="maximumCandidateTaints")
    """Most nodes that carry the taint, the first of the plan. Pods then rarely land on nodes that they would have to
    leave again. But the more nodes are tainted, the fewer are left to choose from, and they fill up in a way that keeps
    more nodes (``bench/steering.py``; the table is in bench/notes.md)."""

    deletion_cost: bool = Field(default=False, alias="deletionCost")
    """Whether the pods of ReplicaSets on the nodes that go next get a low pod deletion cost, so that scale-ins and
    rollouts empty those nodes without an eviction: see :mod:`tightship.deletion_costs.costs`. Needs the right to patch
    pods."""
    scale_in_timeout: Seconds = Field(default=1800.0, alias="scaleInTimeout")
    """With ``deletionCost``, how long a node that goes next waits after a pod has left it, before its pods are evicted:
    see :mod:`tightship.deletion_costs.costs`."""

    def steering_as(self, controller: str) -> SteeringRules | None:
        """Return how *controller* steers pods by soft taints, ``None`` if it doesn't."""
        if self.steering == "off" or not self.candidate_taints:
            return None
        return SteeringRules(Taint(CANDIDATE, "PreferNoSchedule", controller), self.candidate_taints)

    @property
    def led(self) -> Self:
        """The same settings for pods that are led to where the plan wants them."""
        return self


def not_below_an_hour(day: int, info: ValidationInfo) -> int:
    """Return the rate of a *day*, which is no less than that of an hour."""
    hour = info.data.get(str(info.field_name).replace("day", "hour")) or 0
    if 0 < day < hour:
        raise ValueError(f"is below the rate of an hour; allowed is {hour} or more, or 0 for no limit")
    return day


class RateKeys(Layered):
    """Rates of the whole cluster, for all controllers together: see :mod:`tightship.rules.rates`. 0 is no limit."""

    nodes_per_hour: Annotated[
        int, Flag("--nodes-per-hour N", "drains that may begin in an hour (default: 0, no limit)", rank=-1)
    ] = Field(default=0, ge=0, alias="maximumNodesPerHour")
    """Most nodes whose drains begin within any hour, whichever controller drains them."""
    nodes_per_day: Annotated[int, Flag("--nodes-per-day N", "the same in 24 hours", rank=-1)] = Field(
        default=0, ge=0, alias="maximumNodesPerDay"
    )
    """The same within any 24 hours; not below the rate of an hour."""
    evictions_per_hour: Annotated[
        int, Flag("--evictions-per-hour N", "pods that drains may evict in an hour (default: 0, no limit)", rank=-1)
    ] = Field(default=0, ge=0, alias="maximumEvictionsPerHour")
    """Most pods that drains evict within any hour. A node counts from its claim, with the pods that it has to evict
    then; a node with more pods than the rate never goes."""
    evictions_per_day: Annotated[int, Flag("--evictions-per-day N", "the same in 24 hours", rank=-1)] = Field(
        default=0, ge=0, alias="maximumEvictionsPerDay"
    )
    """The same within any 24 hours; not below the rate of an hour."""
    zone_budget: Annotated[
        BudgetField | None,
        Flag("--zone-budget N|P%", "nodes of a zone that may be out at once (default: no limit)", rank=-1),
    ] = Field(default=None, alias="maximumNodesInDrainPerZone")
    """How many nodes of a zone (label ``topology.kubernetes.io/zone``) may be out at once: a number or a percentage of
    the zone's nodes."""

    workload_pause: Annotated[
        Seconds,
        Flag("--workload-pause DURATION", "time between evictions of one workload's pods (default: 10m)", rank=-1),
    ] = Field(default=600.0, alias="workloadPause")
    """How long a workload (a Deployment, StatefulSet or whatever controls its pods) rests after an eviction of one of
    its pods, whichever controller's drain evicted it. 0 lets workloads not rest."""
    min_stable_time: Annotated[
        Seconds, Flag("--min-stable-time DURATION", "how long a replacement must have been Ready", rank=-1)
    ] = Field(default=0.0, alias="minStableTime")
    """For how long the replacements of an evicted pod must have been Ready before the next eviction of a pod of their
    workload. 0 waits for no replacement."""
    workload_evictions_per_day: Annotated[
        int, Flag("--workload-evictions-per-day N", "evictions of a workload's pods in 24 hours", rank=-1)
    ] = Field(default=0, ge=0, alias="workloadEvictionsPerDay")
    """Most pods of one workload that drains evict within any 24 hours; 0 is no limit."""

    _days = field_validator("nodes_per_day", "evictions_per_day")(not_below_an_hour)

    @property
    def rates(self) -> Rates:
        """The rates of the cluster."""
        return msgspec.convert(self, Rates, from_attributes=True)


class SearchKeys(Layered):
    """The search for plans that remove more nodes than a strategy finds: see :mod:`tightship.search`."""

    search: Annotated[
        Seconds,
        Flag(
            "--search DURATION",
            "search this long for a plan that removes more nodes with few evictions, such as 10s or 2m; sets "
            "--placement possible, since a search chooses the places (default: 0, no search)",
            "plan",
        ),
    ] = 0.0
    """How long to search for a plan that removes more nodes, in processor time of one core: see
    [the search](how-it-decides.md#the-search). Plans are searched only where ``placement`` is ``possible``. 0
    searches nothing."""


HowSure = Annotated[
    Placement,
    Field(default="likely"),
    Flag(
        "--placement WORD",
        "how sure a pod's new place must be: possible (there is one), likely (kube-scheduler's scoring, as modelled, "
        "finds one) (default: likely)",
        "plan",
    ),
]
MostRemovals = Annotated[
    int | None,
    Field(default=None, ge=1, alias="maximumNodesInPlan"),
    Flag("--max-nodes N", "removals after which the plan stops, 1 or more (default: no limit)", "plan"),
]
LeastSaving = Annotated[
    float,
    Field(default=0.0, ge=0, allow_inf_nan=False, alias="minimumSavingPerEviction"),
    Flag(
        "--min-saving-per-eviction AMOUNT",
        "what removing a node must save a month for each pod that it evicts, in the currency of the prices, 0 or more "
        "(default: 0, whatever it saves)",
        "plan",
    ),
]
PoolLabels = Annotated[
    tuple[str, ...],
    Field(default=KNOWN_POOL_LABELS, alias="nodePoolLabels"),
    Flag(
        "--pool-label LABEL",
        "node label that names the pool; repeatable, the first that a node carries counts (default: the labels of the "
        "known clouds)",
        "rules",
    ),
]
DisabledRules = Annotated[
    Rules,
    Field(default=frozenset(), alias="disabledRules"),
    Flag(
        "--disable-rule REASON",
        "switch a rule off; repeatable, and together they replace the file's list: "
        f"{', '.join(sorted(SWITCHABLE_RULES))} (default: all rules are on)",
        "rules",
    ),
]


def _schedulers(value: object) -> object:
    """Return the strategies by scheduler, of a mapping, its JSON (as charts write it), or texts ``NAME=STRATEGY``."""
    if isinstance(value, str) and value.lstrip().startswith("{"):
        return msgspec.json.decode(value)
    texts = value.split(",") if isinstance(value, str) else value
    if isinstance(texts, (list, tuple)):
        pairs = [str(each).rpartition("=") for each in texts if str(each).strip()]
        return {name.strip() or strategy: strategy.strip() for name, _, strategy in pairs}
    return value


Schedulers = Annotated[
    Mapping[str, Scoring],
    BeforeValidator(_schedulers),
    Field(default_factory=dict, alias="schedulers"),
    Flag(
        "--schedulers NAME=STRATEGY,...",
        "schedulers that filter nodes as kube-scheduler does, each with how it scores: LeastAllocated or MostAllocated "
        "(default: default-scheduler and those of GKE)",
        "rules",
    ),
]
SystemPodTimeout = Annotated[
    Seconds,
    Field(default=3600.0, alias="blockingSystemPodTimeout"),
    Flag(
        "--system-pod-timeout DURATION",
        "how long after its creation a kube-system pod without a PodDisruptionBudget keeps its node (default: 1h)",
        "rules",
    ),
]


class NodeSettings(DrainKeys, NodeKeys, ScaleUpKeys, SteeringKeys, RateKeys):
    """The settings of all controllers of nodes. A controller repeats a field to place it in its own list of keys."""

    placement: HowSure
    max_nodes: MostRemovals
    minimum_saving: LeastSaving
    pool_labels: PoolLabels
    disabled_rules: DisabledRules
    schedulers: Schedulers
    system_pod_timeout: SystemPodTimeout
    prices: Annotated[InstanceOf[Prices], Field(default_factory=Prices)]
    windows: WindowsSetting

    def windows_of(self, pool: str) -> Sequence[Windows]:
        """Return the windows in which drains of nodes of *pool* may begin; all of them must be open."""
        del pool
        return (self.windows,)

    @property
    def led(self) -> Self:
        """The same settings for pods that are led to where the plan wants them: any place that is there will do."""
        return self.model_copy(update={"placement": "possible"})

    def without_rule(self, reason: Reason) -> Self:
        """Return the same settings with the rule of *reason* switched off."""
        return self.model_copy(update={"disabled_rules": self.disabled_rules | {reason}})

    def priced(self, nodes: Mapping[str, int]) -> Self:
        """Return the same settings with the prices of *nodes* that a server knows, in millionths for an hour."""
        return self.model_copy(update={"prices": msgspec.structs.replace(self.prices, nodes=nodes)})

    @property
    def eviction_rules(self) -> EvictionRules:
        """The rules for pods, which a drain and the plan before it share."""
        awaited = awaited_for(self.await_timeout)
        schedulers = {**SCHEDULERS, **self.schedulers}
        return EvictionRules(
            self.disabled_rules, self.system_pod_timeout, awaited, self.node_timeout, schedulers, self.restarts
        )

    @property
    def ahead(self) -> ReservedDemand:
        """The demand without pods for which room is kept."""
        hpas = self.scale_up_veto and Reason.SCALE_UP_NEEDS_NODE not in self.disabled_rules
        return ReservedDemand(
            self.scale_up_replicas if hpas else 0,
            Reason.BUFFER_NEEDS_NODE not in self.disabled_rules,
            Reason.REQUESTS_UNKNOWN not in self.disabled_rules,
            self.cordon_room_timeout,
        )
