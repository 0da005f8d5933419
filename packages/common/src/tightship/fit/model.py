"""What is asked of :func:`tightship.fit.fit`, and what it answers. Money is in millionths of a currency an hour."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from tightship.cluster import Snapshot
from tightship.objects.money import NO_PRICES, Prices
from tightship.objects.selectors import LabelSelector
from tightship.objects.vertical import Recommended

MODES = ("same-types", "same-family", "any")
"""Which machine types an alternative may use: those of the pool, all of their families, or all that have a price."""


class FitError(ValueError):
    """A question without an answer; the text names the value and what is allowed."""


class Advised(Struct, frozen=True):
    """What *file* recommends, by container, for each (namespace, kind, name) of a workload; kinds have no group."""

    file: str
    containers: Mapping[tuple[str, str, str], Mapping[str, Recommended]]


class Past(Struct, frozen=True):
    """Replicas of the last *days*, by seconds since 1970, of each (namespace, kind, name) of a workload."""

    days: int
    replicas: Mapping[tuple[str, str, str], Mapping[float, int]]


class Asked(Struct, frozen=True):
    """The question: machines for the pods of *pools* of *snapshot*, or of all pools.

    *modes* are of :data:`MODES`; *types* are machine types and families, which then are the only ones. *at_most* so
    many types are used. Pods that *spot* selects may run on spot machines too. *seconds* of wall time are for each
    linear program.
    """

    snapshot: Snapshot
    prices: Prices = NO_PRICES
    pools: frozenset[str] | None = None
    modes: tuple[str, ...] = MODES
    types: tuple[str, ...] = ()
    at_most: int | None = None
    spot: LabelSelector | None = None
    recommended: Advised | None = None
    past: Past | None = None
    seconds: float = 120.0


class Chosen(Struct, frozen=True, rename="camel"):
    """*count* machines of *type* for *pool*, each at *micros_per_hour*."""

    pool: str
    type: str
    spot: bool
    count: int
    zones: Mapping[str, int]
    micros_per_hour: int
    basis: str


class Alternative(Struct, frozen=True, rename="camel"):
    """Machines that carry the pods. *bound_micros_per_hour* is proven: none of the machines allowed do so for less.

    *cpu* and *memory* are the shares of what the machines offer to pods that is requested, DaemonSets' included.
    *unplaced* are pods that have no place on any of them, each with its reason. The *machines* carry pods that are
    packed tightly; *spread* are those and more of their types, for pods that would wait if kube-scheduler, which
    spreads pods, chose all nodes itself, the largest pods first. *solved* says whether HiGHS has found
    the bound; else the bound counts volume alone.
    """

    mode: str
    machines: tuple[Chosen, ...]
    nodes: int
    micros_per_hour: int
    bound_micros_per_hour: int
    solved: bool
    cpu: float
    memory: float
    unplaced: Mapping[str, str]
    spread: tuple[Chosen, ...] = ()
    spread_nodes: int = 0
    spread_micros_per_hour: int = 0


class Present(Struct, frozen=True, rename="camel"):
    """The nodes there are, and what they cost; *unpriced* of them are in no sum."""

    nodes: int
    unpriced: int
    micros_per_hour: int
    cpu: float
    memory: float
    types: Mapping[str, int]


class Answer(Struct, frozen=True, rename="camel"):
    """Alternatives for one *demand*: ``now``, ``peak`` or ``recommended``; *told* says in words which."""

    demand: str
    told: str
    pods: int
    cpu_milli: int
    memory_bytes: int
    alternatives: tuple[Alternative, ...]
    remarks: tuple[str, ...] = ()


class PoolLook(Struct, frozen=True, rename="camel"):
    """A pool as configuration describes one: *labels* that its nodes share, *taints* as ``key=value:effect``."""

    name: str
    cloud: str
    arch: str
    labels: Mapping[str, str]
    taints: tuple[str, ...]


class Fitted(Struct, frozen=True, rename="camel"):
    """The answer to :class:`Asked`. *left_alone* says which nodes are not part of it, and why."""

    present: Present
    currency: str
    pools: tuple[PoolLook, ...]
    answers: tuple[Answer, ...]
    left_alone: Mapping[str, int]
