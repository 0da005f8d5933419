"""The input and the output of the drain's state machine: findings, and steps. Pure."""

from __future__ import annotations

from enum import Enum

from msgspec import Struct

from tightship.objects import Node, Pod
from tightship.objects.drain_record import DrainRecord, Ending
from tightship.objects.reasons import Refusal


class Findings(Struct, frozen=True, kw_only=True):
    """The findings of one look at a node and its pods.

    *evict* are pods to evict that nobody is deleting yet, *awaits* pods that end by themselves, *leaving* pods that
    terminate. *node_refusals* are those of the node as a whole; each would have prevented the claim. *next* are the
    pods of *evict* to evict now; more may be due at *due*. *against* is everything that waiting does not change:
    opt-outs, no place, a budget that never allows an eviction, a fatal answer. *refusing* is the part of it about pods
    that are here and may not be evicted any more: they opted out meanwhile. *opens* is what can still end after
    the cordon, and part of neither; with any of it, nothing is evicted. *late* names pods that have refused to go
    for too long. *pending* are pods without a node that were created since the drain began and could run here. *fresh*
    says that the server just listed the pods, *judged* that *against* includes a new search for places. *stopping* says
    that somebody else continues the drain; *releasing* says that nobody does, so the node is given back. *met* is when
    the present drive first saw the node in its phase. *rolling* are pods that a rollout of their Deployment moves, and
    *restart* the Deployments (``namespace/name``) to restart for it now. *rests_until* is when the
    last pause of a workload with a pod here ends.
    """

    node: Node | None
    evict: tuple[Pod, ...] = ()
    awaits: tuple[Pod, ...] = ()
    leaving: tuple[Pod, ...] = ()
    node_refusals: tuple[Refusal, ...] = ()
    next: tuple[Pod, ...] = ()
    due: float | None = None
    against: tuple[Refusal, ...] = ()
    refusing: tuple[Refusal, ...] = ()
    opens: tuple[Refusal, ...] = ()
    late: tuple[Refusal, ...] = ()
    pending: tuple[Pod, ...] = ()
    fresh: bool = False
    judged: bool = False
    stopping: bool = False
    releasing: bool = False
    met: float = 0.0
    not_ready_since: float | None = None
    rests_until: float = 0.0
    rolling: tuple[Pod, ...] = ()
    restart: tuple[str, ...] = ()

    @property
    def left(self) -> tuple[Pod, ...]:
        """The pods for which the drain still has to wait."""
        return (*self.evict, *self.awaits, *self.rolling, *self.leaving)


class NodeChange(Enum):
    """The change of a node besides its annotation."""

    NOTHING = "nothing"
    RESTORE = "restore"
    """Remove our taint, and restore ``spec.unschedulable``."""
    UNTAINT = "untaint"
    """Remove our taint; the cordon belongs to somebody else."""


class Wait(Struct, frozen=True):
    """Wait until *until*, or until the cluster changes."""

    until: float
    why: str


class Look(Struct, frozen=True):
    """List the node's pods from the server, judge the rest, and ask again."""


class Evict(Struct, frozen=True):
    """Evict these pods, each independently."""

    pods: tuple[Pod, ...]


class Restart(Struct, frozen=True):
    """Restart these Deployments (``namespace/name``), each at most once for the drain."""

    deployments: tuple[str, ...]


class Write(Struct, frozen=True):
    """Write *record* (``None``: remove the annotation) with *change*. *because* is the cause, for people."""

    record: DrainRecord | None
    change: NodeChange = NodeChange.NOTHING
    because: Refusal | None = None


class Over(Struct, frozen=True):
    """The drain is over for this drive."""

    ending: Ending


Step = Wait | Look | Evict | Restart | Write | Over
