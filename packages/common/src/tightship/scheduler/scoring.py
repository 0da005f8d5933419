"""Chooses among feasible nodes: our own choices, and a model of kube-scheduler's choices.

The model scores as the default profile of kube-scheduler 1.37 does with ``NodeResourcesFit`` (LeastAllocated; for pods
of a scheduler that is known to do so MostAllocated, as in noderesources/most_allocated.go),
``NodeResourcesBalancedAllocation``, ``TaintToleration`` and preferred ``NodeAffinity``, at their default weights. It
leaves out image locality and the soft spreading and soft pod-affinity scores. Among equals the scheduler picks at
random; the model takes the first by name.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import numpy as np
from numpy.typing import NDArray

from tightship.scheduler.space import CPU, MEMORY, PodDemand, Space
from tightship.scheduler.topology import NodeMask

Indices = NDArray[np.intp]
Choice = Callable[[Space, PodDemand, Indices], int]
"""Picks one of the given feasible nodes, of which there is at least one, for a pod."""

_MAX = 100
_TAINT_WEIGHT = 3
_MIN_NODES_TO_FIND = 100
_AFFINITY_WEIGHT = 2


def best_fit(space: Space, demand: PodDemand, nodes: Indices) -> int:
    """Pick the node that keeps least of the scarcer of CPU and memory, relative to its size; see :func:`_staying`."""
    nodes = _staying(space, nodes)
    cpu, memory = _amounts(demand)
    left_cpu = (space.free[CPU].take(nodes) - cpu) / space.known[CPU].take(nodes)
    left_memory = (space.free[MEMORY].take(nodes) - memory) / space.known[MEMORY].take(nodes)
    return int(nodes[np.minimum(left_cpu, left_memory).argmin()])


def aligned(space: Space, demand: PodDemand, nodes: Indices) -> int:
    """Pick the node whose free resources have the request's proportions best; the fuller one among equals.

    Extended resources count, so a pod without a GPU prefers a node without free GPUs. See :func:`_staying`.
    """
    nodes = _staying(space, nodes)
    # Computed over all nodes: whole rows of the matrix are faster than selected columns.
    along = np.zeros(len(space.nodes))
    for row, amount in demand.rows:
        along += space.free[row] * (amount * float(space.scale[row]) ** 2)
    length = space.free_lengths()
    score = (
        along / np.maximum(length, 1e-12) / max(float(np.linalg.norm(_scaled(space, demand))), 1e-12) - 1e-3 * length
    )
    return int(nodes[np.argmax(score[nodes])])


def _staying(space: Space, nodes: Indices) -> Indices:
    """Return those of *nodes* that stay, all of them if all are about to go."""
    if space.leaving is None:
        return nodes
    staying = nodes[~space.leaving[nodes]]
    return staying if len(staying) else nodes


def _scaled(space: Space, demand: PodDemand) -> list[float]:
    return [amount * float(space.scale[row]) for row, amount in demand.rows]


def scheduler_choice(space: Space, demand: PodDemand, nodes: Indices) -> int:
    """Pick the node that kube-scheduler's default scoring would pick; this module's text says what the model covers.

    In a cluster of more than 100 nodes the scheduler stops filtering when it has found enough nodes, and continues from
    there with the next pod. The model does the same. The choice may be a stray, where the pod can't run.
    """
    if demand.strays is not None:
        nodes = np.union1d(nodes, space.feasible(msgspec.structs.replace(demand, static=demand.strays)).nonzero()[0])
    enough = nodes_to_find(len(space.nodes))
    if len(nodes) > enough:
        start = int(nodes.searchsorted(space.next_start))
        nodes = np.concatenate((nodes[start : start + enough], nodes[: max(0, start + enough - len(nodes))]))
        space.next_start = int(nodes[-1]) + 1
    spec = demand.template.spec
    if space.filters.soft_taints(spec, space.leaving_taint) is not None or spec.preferred_nodes:
        return int(nodes[scheduler_scores(space, demand, nodes).argmax()])
    if _avoided(space, demand) is not None:
        nodes = _staying(space, nodes)  # one soft taint outweighs all that resources add up to
    return int(nodes[_resources(space, demand, nodes).argmax()])


def in_turn(space: Space, demand: PodDemand, nodes: Indices) -> int:
    """Pick the first node after the last such choice.

    Where kube-scheduler looks at a part of the nodes, its choice depends on where it continues to look. Where a pod
    lands is then anybody's guess, and a guess by the whole model of the choice costs more than all the rest of a plan.
    """
    if demand.strays is not None or nodes_to_find(len(space.nodes)) == len(space.nodes):
        return scheduler_choice(space, demand, nodes)
    at = int(nodes.searchsorted(space.next_start))
    node = int(nodes[at if at < len(nodes) else 0])
    space.next_start = node + 1
    return node


def nodes_to_find(nodes: int) -> int:
    """Return how many feasible nodes are enough (``numFeasibleNodesToFind``, ``percentageOfNodesToScore`` unset)."""
    if nodes < _MIN_NODES_TO_FIND:
        return nodes
    return max(_MIN_NODES_TO_FIND, nodes * max(5, 50 - nodes // 125) // 100)


def scheduler_scores(space: Space, demand: PodDemand, nodes: Indices) -> NDArray[np.int64]:
    """Return the modelled score of each of *nodes*; whole numbers, as the scheduler's are.

    Quotients of floats round down to the scheduler's whole numbers as long as a node has less than 2**46 bytes.
    """
    spec, avoided = demand.template.spec, _avoided(space, demand)
    score = _resources(space, demand, nodes)
    soft = np.zeros(len(nodes), dtype=np.int64)
    if (counts := space.filters.soft_taints(spec, space.leaving_taint)) is not None:
        soft += counts.take(nodes)
    if avoided is not None:
        soft += avoided.take(nodes)
    if counts is not None or soft.any():
        score += _TAINT_WEIGHT * _normalized(soft, reverse=True)
    preferred = space.filters.preferences(spec)
    if preferred is not None:
        score += _AFFINITY_WEIGHT * _normalized(preferred.take(nodes), reverse=False)
    return score


def _avoided(space: Space, demand: PodDemand) -> NodeMask | None:
    """Return the nodes about to go, if their soft taint keeps the pod away.

    The taint counts on the nodes that would carry it, wherever it is now.
    """
    own = space.leaving_taint
    if own is None or space.leaving is None:
        return None
    tolerates = space.tolerating.get((demand, own))
    if tolerates is None:
        tolerations = demand.template.spec.tolerations
        tolerates = space.tolerating[demand, own] = any(each.tolerates(own) for each in tolerations)
    return None if tolerates else space.leaving


def _resources(space: Space, demand: PodDemand, nodes: Indices) -> NDArray[np.int64]:
    """Return the score by ``NodeResourcesFit`` and ``NodeResourcesBalancedAllocation``.

    A plan scores for each of its moves, so it matters how few steps this takes.
    """
    known, amounts = space.known.take(nodes, axis=1), space.scored.take(nodes, axis=1)
    spare, used = amounts[:2], amounts[2:]
    spare -= demand.scoring
    np.maximum(spare, 0.0, out=spare)
    if space.snapshot.schedulers.get(demand.template.spec.scheduler) == "MostAllocated":
        # What will be requested, instead of what will be left.
        np.subtract(space.capacity[:2].take(nodes, axis=1), spare, out=spare)
    spare *= _MAX
    spare /= known
    each = spare.astype(np.int64)
    score: NDArray[np.int64] = each[CPU]
    score += each[MEMORY]
    score //= space.kinds.take(nodes)
    if demand.requested is None:
        return score
    shares = np.empty((2, 2, len(nodes)))  # of CPU and memory, before and after
    before, after = shares
    np.divide(used, known, out=before)
    np.divide(demand.requested, known, out=after)
    after += before
    np.minimum(shares, 1.0, out=shares)
    apart = shares[:, 0]
    apart -= shares[:, 1]
    np.abs(apart, out=apart)
    apart *= _MAX / 2
    even = np.subtract(_MAX, apart, out=apart).astype(np.int64)
    # Go's integer division truncates towards zero; the sum is never negative here.
    balance = even[1]
    balance -= even[0]
    balance += _MAX // 2
    balance >>= 1
    score += balance
    score += _MAX // 2
    return score


def _normalized(raw: NDArray[np.int64], *, reverse: bool) -> NDArray[np.int64]:
    """``DefaultNormalizeScore``: the largest becomes 100 (or, reversed, 0)."""
    highest = int(raw.max())
    if highest == 0:
        return np.full(len(raw), _MAX if reverse else 0, dtype=np.int64)
    scaled: NDArray[np.int64] = raw * _MAX // highest
    return _MAX - scaled if reverse else scaled


def _amounts(demand: PodDemand) -> tuple[int, int]:
    cpu = memory = 0
    for row, amount in demand.rows:
        if row == CPU:
            cpu = amount
        elif row == MEMORY:
            memory = amount
    return cpu, memory
