"""From a question to its alternatives: machines on offer, pods by kind, the program, places."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set

import msgspec
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from tightship.cluster import NodeView, Snapshot
from tightship.cluster.state import sum_up
from tightship.fit.demands import at_peak, with_recommended
from tightship.fit.filled_machines import FilledMachines, Kind
from tightship.fit.machines import (
    ARCH,
    HOSTNAME,
    Machine,
    Market,
    Pool,
    pools_of,
    requested,
    runs,
    type_of,
    wanted_types,
)
from tightship.fit.model import Alternative, Answer, Asked, Chosen, FitError, Fitted, PoolLook, Present
from tightship.fit.packing import Filled, Packing
from tightship.fit.program import Program, Solved, solve
from tightship.objects import Pod
from tightship.objects.money import price_of
from tightship.objects.volume import ZONE
from tightship.scheduler.space import Space
from tightship.scheduler.volumes import Attachments

LEAST_NODES = 3
"""Nodes over which a pool is spread at least, so that one that fails takes no more than a third of it along."""

MOST_TRIED = 8
"""Sets of types that are solved for each type more, where only so many are allowed."""


def answer(asked: Asked) -> Fitted:
    """See :func:`tightship.fit.fit`."""
    if asked.at_most is not None and asked.at_most < 1:
        raise FitError(f"--at-most {asked.at_most} is no number of machine types; allowed is 1 or more")
    pools, alone = pools_of(asked)
    demands: list[tuple[str, str, Snapshot, tuple[str, ...]]] = [("now", "what runs now", asked.snapshot, ())]
    if asked.past is not None:
        demands.append(("peak", *at_peak(asked.snapshot, asked.past)))
    if asked.recommended is not None:
        demands.append(("recommended", *with_recommended(asked.snapshot, asked.recommended)))
    market = Market(asked)
    answers = [
        Fitting(asked, pools, market, snapshot).answer(word, told, remarks) for word, told, snapshot, remarks in demands
    ]
    looks = [
        PoolLook(pool.name, pool.cloud, pool.arch, pool.labels, tuple(str(each) for each in pool.taints))
        for pool in pools
    ]
    return Fitted(_present(asked, pools), asked.prices.currency, tuple(looks), tuple(answers), dict(alone))


def _present(asked: Asked, pools: Sequence[Pool]) -> Present:
    views = [view for pool in pools for view in pool.views]
    prices = [price_of(view.node, asked.prices) for view in views]
    return Present(
        nodes=len(views),
        unpriced=sum(each is None for each in prices),
        micros_per_hour=sum(each.hourly for each in prices if each is not None),
        cpu=requested(views, "cpu"),
        memory=requested(views, "memory"),
        types=dict(Counter(type_of(view.node) for view in views).most_common()),
    )


ROUNDS = 4
"""Most times that machines are bought for pods that the scheduler's rules have left over."""


UNLIMITED = 1 << 20
"""Volumes of a machine that has no limit."""

SPREADS, MOST_SPREAD = 8, 25_000
"""How often machines are bought for pods that kube-scheduler leaves over, and pods that are placed anew for that."""


class _Offer(Struct, frozen=True):
    """The machines on offer, the *kinds* of pods, and the program of both. *misfits* fit on no machine.

    Pods with rules beyond their node stay in their zone, which keeps the rules.
    """

    machines: Sequence[Machine]
    kinds: Sequence[Kind]
    program: Program
    misfits: Mapping[str, str]


class Fitting:
    """The alternatives for the pods of one snapshot."""

    def __init__(self, asked: Asked, pools: Sequence[Pool], market: Market, snapshot: Snapshot) -> None:
        self._asked = asked
        self._pools = pools
        self._market = market
        inside = {view.name for pool in pools for view in pool.views}
        around = {name: view for name, view in snapshot.nodes.items() if name not in inside}
        self._pods, self._homes = self._to_carry(snapshot, inside)
        self._around = msgspec.structs.replace(
            snapshot,
            nodes=around,
            unscheduled=tuple(msgspec.structs.replace(pod, node="") for pod in self._pods),
            attachments={name: each for name, each in snapshot.attachments.items() if each.node not in inside},
            starting=(),
            headroom=(),
            anew={},
        )

    def _to_carry(self, snapshot: Snapshot, inside: set[str]) -> tuple[list[Pod], list[tuple[str, str]]]:
        """Return the pods to carry, each with the architecture and zone of the node it runs on (empty if it waits)."""
        pods: list[Pod] = []
        homes: list[tuple[str, str]] = []
        for pool in self._pools:
            for view in (snapshot.nodes[each.name] for each in pool.views):
                for pod in view.pods:
                    if not (pod.daemon or pod.mirror or snapshot.replaced(pod)):
                        pods.append(pod)
                        homes.append((view.node.labels.get(ARCH, pool.arch), view.node.labels.get(ZONE, "")))
        waiting = [pod for pod in snapshot.unscheduled if not (pod.daemon or pod.mirror or pod.gated or pod.deletion)]
        if waiting and self._asked.pools is not None:
            space = Space(snapshot)
            own = np.array([name in inside for name in space.names], dtype=np.bool_)
            masks = [space.demand_of(pod).static for pod in waiting]
            waiting = [
                pod for pod, mask in zip(waiting, masks, strict=True) if mask[own].any() and not mask[~own].any()
            ]
        return pods + waiting, homes + [("", "")] * len(waiting)

    def answer(self, word: str, told: str, remarks: Sequence[str]) -> Answer:
        modes = ("types",) if self._asked.types else self._asked.modes
        found: list[Alternative] = []
        for mode in modes:
            try:
                found.append(self._alternative(mode))
            except _UnpricedError as error:
                remarks = (*remarks, f"{mode}: {error}")
        if not found:
            raise FitError(remarks[-1])
        return Answer(
            demand=word,
            told=told,
            pods=len(self._pods),
            cpu_milli=sum(pod.requests.get("cpu", 0) for pod in self._pods),
            memory_bytes=sum(pod.requests.get("memory", 0) for pod in self._pods),
            alternatives=tuple(found),
            remarks=tuple(remarks),
        )

    def _alternative(self, mode: str) -> Alternative:
        filled, solved, offer = self.filled(mode)
        views = [NodeView(view.node, (), sum_up((*view.pods, *pods))) for view, pods in filled.nodes()]
        cost = sum(offer.machines[each].price.hourly for each in filled.machines)
        spread = [*filled.machines, *(each.column for each in self.more(filled, solved, offer))]
        unplaced = dict(offer.misfits)
        unplaced.update({pod.key: "no machine bought has room by the scheduler's rules" for pod in filled.unplaced()})
        return Alternative(
            mode=mode,
            machines=tuple(_chosen(offer.machines, filled.machines)),
            nodes=len(views),
            micros_per_hour=cost,
            bound_micros_per_hour=min(round(solved.bound), cost),
            solved=solved.by_solver,
            cpu=requested(views, "cpu"),
            memory=requested(views, "memory"),
            unplaced=unplaced,
            spread=tuple(_chosen(offer.machines, spread)),
            spread_nodes=len(spread),
            spread_micros_per_hour=sum(offer.machines[each].price.hourly for each in spread),
        )

    def filled(self, mode: str) -> tuple[FilledMachines, Solved, _Offer]:
        """Return the machines of the alternative with the pods on them, what the program says, and the offer."""
        offer = self._offer(wanted_types(self._asked, self._pools, mode))
        solved = solve(offer.program, self._asked.seconds)
        best = self._packed(offer, solved, None)
        types = {offer.machines[each].type for each in best.machines}
        if self._asked.at_most is not None and len(types) > self._asked.at_most:
            best = self._limited(offer, solved, self._asked.at_most)
        return best, solved, offer

    def _packed(self, offer: _Offer, solved: Solved, types: frozenset[str] | None) -> FilledMachines:
        """Return machines of *types* with the pods on them, as far as the scheduler's rules let them."""
        packing = self._packing(offer, solved, types)
        filled = FilledMachines(self._around, offer.machines, offer.kinds)
        filled.add(packing.pack())
        for _ in range(ROUNDS):
            filled.settle()
            bought = packing.bought(Counter(kind for kind, _ in filled.left))
            if not bought:
                break
            filled.add(bought)
        return filled

    def more(self, filled: FilledMachines, solved: Solved, offer: _Offer) -> list[Filled]:
        """Return machines of the same types for pods that wait where kube-scheduler chooses all nodes itself."""
        packing = self._packing(offer, solved, {offer.machines[each].type for each in filled.machines})
        more: list[Filled] = []
        for _ in range(1 + min(SPREADS, MOST_SPREAD // (len(self._pods) + 1))):
            if not (waiting := filled.waiting([each.column for each in more])):
                break
            more += packing.bought(waiting)
        return more

    @staticmethod
    def _packing(offer: _Offer, solved: Solved, types: Set[str] | None) -> Packing:
        on_offer = np.array([types is None or each.type in types for each in offer.machines], dtype=np.bool_)
        return Packing(offer.program, solved, on_offer)

    def _limited(self, offer: _Offer, solved: Solved, most: int) -> FilledMachines:
        """Return the cheapest machines of *most* types: the type is added next whose bound with the others is least.

        Tried are the types that the program spends most on, then the cheapest by volume.
        """
        program, types = offer.program, np.array([each.type for each in offer.machines])
        total = np.maximum(program.count @ program.request, 1e-12)
        volume = (total / np.maximum(program.room, 1e-12)).max(axis=1) * program.cost
        spent = solved.machines * program.cost
        ranked = sorted(set(types), key=lambda kind: (-spent[types == kind].sum(), volume[types == kind].min(), kind))
        chosen: frozenset[str] = frozenset()
        best: FilledMachines | None = None
        while len(chosen) < min(most, len(ranked)):
            tried = []
            for kind in [each for each in ranked if each not in chosen][:MOST_TRIED]:
                allowed = program.allowed & np.isin(types, [*chosen, kind])[:, None]
                missing = float(program.count[~allowed.any(axis=0)].sum())
                found = solve(msgspec.structs.replace(program, allowed=allowed), self._asked.seconds / 4)
                tried.append((missing, found.bound, kind, found))
            *_, kind, plan = min(tried, key=lambda each: each[:2])
            chosen |= {kind}
            made = self._packed(offer, plan, chosen)
            if best is None or _score(offer, made) < _score(offer, best):
                best = made
        assert best is not None
        return best

    def _offer(self, types: Mapping[str, frozenset[str] | None]) -> _Offer:
        with_gpus = {
            pool.name
            for pool in self._pools
            if any("/gpu" in name for view in pool.views for pod in view.pods for name in pod.requests)
        }
        machines = [
            each
            for pool in self._pools
            for each in self._market.machines(pool, types[pool.name], pool.name in with_gpus)
        ]
        machines = _undominated(self._small_enough(machines), self._pods)
        if not machines:
            region = next((each for pool in self._pools for each in _regions(pool)), "")
            where = f" in region {region}" if region else ""
            raise _UnpricedError(
                f"no machine type has a price{where}; --prices FILE with instanceTypes names them, by our list "
                "there are prices of AWS, Azure and Google Cloud"
            )
        views = {}
        limits = dict(self._around.csi_nodes)
        for at, each in enumerate(machines):
            name = f"offer-{at:06d}"
            labels = {**each.node.labels, HOSTNAME: name}
            views[name] = NodeView(msgspec.structs.replace(each.node, name=name, labels=labels), (), sum_up(()))
            if each.limits is not None:
                limits[name] = msgspec.structs.replace(each.limits, name=name)
        space = Space(msgspec.structs.replace(self._around, nodes=views, csi_nodes=limits))
        return self._programmed(machines, space)

    def _programmed(self, machines: Sequence[Machine], space: Space) -> _Offer:
        names = space.resource_names()
        limits = [{} if each.limits is None else each.limits.limits for each in machines]
        drivers = sorted({driver for each in limits for driver, most in each.items() if most is not None})
        uses = Counter(volume for pod in self._pods for volume in space.demand_of(pod).attachments.handles)
        amounts = [[each.free.get(name, 0) for name in names] for each in machines]
        attached = [[UNLIMITED if (most := each.get(name)) is None else most for name in drivers] for each in limits]
        room = np.hstack([np.array(amounts, dtype=np.float64), np.array(attached, dtype=np.float64)])
        spot = np.array([each.spot for each in machines], dtype=np.bool_)
        arch = np.array([each.node.labels.get(ARCH, "") for each in machines])
        groups: dict[object, list[Pod]] = {}
        masks: dict[object, NDArray[np.bool_]] = {}
        misfits: dict[str, str] = {}
        requests: dict[object, NDArray[np.float64]] = {}
        chosen = self._asked.spot
        zones = np.array([each.zone for each in machines])
        for pod, (home, zone) in zip(self._pods, self._homes, strict=True):
            demand = space.demand_of(pod)
            spotty = chosen is not None and chosen.matches(pod.template.labels)
            key = (id(demand), home, spotty, "" if demand.node_local else zone)
            if key not in groups:
                groups[key] = []
                request = np.zeros(room.shape[1])
                for row, amount in demand.rows:
                    request[row] = amount
                for driver, number in _volumes(demand.attachments, uses).items():
                    if driver in drivers:
                        request[len(names) + drivers.index(driver)] = number
                mask: NDArray[np.bool_] = demand.static & np.all(room >= request, axis=1)
                mask = mask & (arch == home) if home else mask
                mask = mask if spotty else mask & ~spot
                near = mask & (zones == key[-1])
                masks[key], requests[key] = near if near.any() else mask, request
            groups[key].append(pod)
        for misfit in [key for key, mask in masks.items() if not mask.any()]:
            why = "its selectors, taints or volumes allow no machine on offer"
            if space.demand_of(groups[misfit][0]).static.any():
                why = "no machine on offer is large enough"
            misfits.update({pod.key: why for pod in groups.pop(misfit)})
        # Plain pods that ask for the same and may run on the same machines are one kind.
        kinds: dict[object, list[object]] = {}
        for group, pods in groups.items():
            plain = space.demand_of(pods[0]).plain
            same: object = (requests[group].tobytes(), masks[group].tobytes(), _filters(pods[0])) if plain else group
            kinds.setdefault(same, []).append(group)
        made = [Kind(tuple(pod for key in keys for pod in groups[key]), masks[keys[0]]) for keys in kinds.values()]
        heads = [keys[0] for keys in kinds.values()]
        unit = np.maximum(room.max(axis=0, initial=0.0), 1.0)
        asks = np.array([requests[key] for key in heads]).reshape(len(heads), room.shape[1])
        used: NDArray[np.bool_] = np.asarray(asks.any(axis=0), dtype=np.bool_)
        used = used if used.any() else np.ones(len(names), dtype=np.bool_)
        alone: dict[object, int] = {None: -1}
        program = Program(
            cost=np.maximum(np.array([each.price.hourly for each in machines], dtype=np.float64), 1.0),
            room=(room / unit)[:, used],
            request=(asks / unit)[:, used],
            count=np.array([len(kind.pods) for kind in made], dtype=np.float64),
            allowed=np.array([masks[key] for key in heads], dtype=np.bool_).reshape(len(heads), len(machines)).T,
            group=np.array([alone.setdefault(_excluding(groups[key][0]), len(alone)) for key in heads], dtype=np.intp),
        )
        return _Offer(machines, made, program, misfits)

    def _small_enough(self, machines: Sequence[Machine]) -> list[Machine]:
        """Leave out machines so large that a pool would have fewer than the least nodes, unless a pod needs one."""
        kept: list[Machine] = []
        for pool in self._pools:
            own = [each for each in machines if each.pool == pool.name]
            here = {view.name for view in pool.views}
            pods = [(pod, arch) for pod, (arch, _) in zip(self._pods, self._homes, strict=True) if pod.node in here]
            least = min(LEAST_NODES, len(pool.views))
            limits = {name: sum(pod.requests.get(name, 0) for pod, _ in pods) / least for name in ("cpu", "memory")}
            small = [each for each in own if least < 2 or not pods or not _holds(each, limits)]
            for pod, arch in {
                (tuple(sorted(pod.requests.items())), id(pod.spec), arch): (pod, arch) for pod, arch in pods
            }.values():
                if not any(_carries(each, pod, arch) for each in small):
                    enough = [each for each in own if _carries(each, pod, arch)]
                    cheapest = min((each.price.hourly for each in enough), default=0)
                    small += [each for each in enough if each.price.hourly <= cheapest * 2]
            kept += small
        return kept


def _holds(machine: Machine, amounts: Mapping[str, float]) -> bool:
    return all(machine.free.get(name, 0) >= amount for name, amount in amounts.items())


def _carries(machine: Machine, pod: Pod, arch: str) -> bool:
    """Whether an empty *machine* of *arch* has room for *pod*, whose selectors and tolerations let it run there."""
    return machine.node.labels.get(ARCH) == arch and _holds(machine, pod.requests) and runs(pod, machine.node)


def _undominated(machines: Sequence[Machine], pods: Sequence[Pod]) -> list[Machine]:
    """Leave out machines beside which another of the pool and zone is as cheap and offers as much of everything.

    Labels that *pods* select, and the architecture, are alike on both.
    """
    selected = {ARCH}
    for spec in {id(pod.spec): pod.spec for pod in pods}.values():
        terms = () if spec.node_affinity is None else spec.node_affinity.node_selector_terms
        selected.update(spec.node_selector, (each.key for term in terms for each in term.match_expressions or ()))
        selected.update(each.topology_key for each in spec.spread)
        selected.update(each.topology_key for each in (*spec.affinity, *spec.anti_affinity))
    kept: dict[object, list[Machine]] = {}
    for each in sorted(machines, key=lambda each: (each.price.hourly, each.type)):
        labels = tuple(each.node.labels.get(label) for label in sorted(selected))
        others = kept.setdefault((each.pool, each.zone, each.spot, labels), [])
        if not any(_holds(other, each.free) for other in others):
            others.append(each)
    return [each for own in kept.values() for each in own]


class _UnpricedError(Exception):
    """No machine that a mode allows has a price."""


def _regions(pool: Pool) -> Iterator[str]:
    for labels in pool.places.values():
        yield from (value for key, value in labels.items() if key.endswith("/region"))


def _filters(pod: Pod) -> object:
    """Return what else than amounts decides which nodes a plain pod may have."""
    spec = pod.spec
    return tuple(sorted(spec.node_selector.items())), spec.node_affinity, spec.tolerations, spec.features, spec.volumes


def _volumes(attachments: Attachments, uses: Mapping[tuple[str, str], int]) -> Counter[str]:
    """Return how many volumes a pod attaches, by driver, but those that others use too: a node attaches these once."""
    own = Counter(driver for driver, volume in attachments.handles if uses[driver, volume] == 1)
    own.update(dict(attachments.own))
    return own


def _excluding(pod: Pod) -> object:
    """Return what pods share of which a node holds one: a port of the node, or anti-affinity against their own kind."""
    labels = pod.template.labels
    own = (
        (pod.namespace, term.label_selector)
        for term in pod.spec.anti_affinity
        if term.topology_key == HOSTNAME
        and not term.namespaces
        and term.namespace_selector is None
        and term.label_selector is not None
        and term.label_selector.matches(labels)
    )
    return pod.spec.host_ports or next(own, None)


def _score(offer: _Offer, filled: FilledMachines) -> tuple[int, int]:
    return len(filled.unplaced()), sum(offer.machines[each].price.hourly for each in filled.machines)


def _chosen(machines: Sequence[Machine], bought_ones: Sequence[int]) -> Iterator[Chosen]:
    groups: dict[tuple[str, str, bool, int], Counter[str]] = {}
    basis: dict[object, str] = {}
    for each in bought_ones:
        machine = machines[each]
        key = (machine.pool, machine.type, machine.spot, machine.price.hourly)
        groups.setdefault(key, Counter())[machine.zone] += 1
        basis[key] = machine.price.basis
    for key, zones in sorted(groups.items(), key=lambda item: (item[0][0], -item[1].total() * item[0][3])):
        yield Chosen(key[0], key[1], key[2], zones.total(), dict(sorted(zones.items())), key[3], basis[key])
