"""Gives scenarios node groups with minimum sizes, NodePools of Karpenter, and savings of what drains have saved.

All of it comes from a source of chance of its own, so that what else a seed draws stays what it was.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from random import Random

import msgspec

from tightship_testkit.disasters.drawing import Args
from tightship_testkit.disasters.groups import DISRUPTIONS, MINIMUM, NODE_POOL, STATUS, SYSTEM, status_text
from tightship_testkit.disasters.promises.savings import CLAIMS, SAVINGS
from tightship_testkit.disasters.registry import STEPS
from tightship_testkit.disasters.scenario import Node, Pool, Scenario, Step

SHARE = 0.35
"""The part of scenarios with any of it."""
_STEPS = {"resize-group": 2.0, "set-disruption": 2.0, "add-node": 1.0}
"""Kinds of steps, and how often each is drawn."""
_BEGIN, _END = 10.0, 0.75
_NEVER = 1000
"""The least size of a pool that Cluster Autoscaler leaves to Karpenter."""


def with_autoscalers(scenario: Scenario) -> Scenario:
    """Return *scenario* with some of all this, or as it is."""
    rng = Random(f"autoscalers {scenario.seed}")  # noqa: S311 - a simulation
    if rng.random() >= SHARE or not scenario.pools:
        return scenario
    pools, nodes, objects = [*scenario.pools], [*scenario.nodes], [*scenario.objects]
    if rng.random() < 0.4:
        number = rng.randrange(len(pools))
        pools[number] = _karpenters(pools[number])
        objects += _node_pool(rng, pools[number].name)
    if rng.random() < 0.6:
        minimums = {each.name: rng.choice((0, 1, 1, 2, 3)) for each in pools if rng.random() < 0.7}
        if rng.random() < 0.3:
            nodes = [_annotated(each, minimums) for each in nodes]
        else:
            objects.append(_status(minimums, old=rng.random() < 0.4))
    if rng.random() < 0.6:
        nodes = [_priced(rng, each) for each in nodes]
        objects += _savings(rng, scenario, pools)
    made = msgspec.structs.replace(scenario, pools=pools, nodes=nodes, objects=objects)
    return msgspec.structs.replace(made, steps=sorted([*made.steps, *_steps(rng, made)], key=lambda each: each.at))


def _karpenters(pool: Pool) -> Pool:
    return msgspec.structs.replace(pool, least=_NEVER, labels={**pool.labels, NODE_POOL: pool.name})


def _node_pool(rng: Random, name: str) -> list[Args]:
    spec = {"disruption": DISRUPTIONS[rng.choice(("WhenEmpty", *DISRUPTIONS))]}
    return [
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": "nodepools.karpenter.sh"},
            "spec": {"group": "karpenter.sh", "versions": [{"name": "v1", "served": True}]},
        },
        {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": name}, "spec": spec},
    ]


def _status(minimums: dict[str, int], *, old: bool) -> Args:
    meta = {"name": STATUS, "namespace": SYSTEM}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"status": status_text(minimums, old)}}


def _annotated(node: Node, minimums: dict[str, int]) -> Node:
    if node.pool not in minimums:
        return node
    return msgspec.structs.replace(node, annotations={**node.annotations, MINIMUM: str(minimums[node.pool])})


def _priced(rng: Random, node: Node) -> Node:
    if rng.random() < 0.3:
        return node
    return msgspec.structs.replace(node, annotations={**node.annotations, "tightship.dev/hourly-price": "0.25"})


def _savings(rng: Random, scenario: Scenario, pools: Sequence[Pool]) -> list[Args]:
    """Return the list of claims with savings that were kept before: of nodes that went hours ago, and minutes ago."""
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
    old = {"at": "2026-01-05T03:20:00.000Z", "nodes": 2, "hourly": {"USD": 400_000}}
    young = {"at": "2026-01-05T07:45:00.000Z", "nodes": 1, "hourly": {"USD": 150_000}}
    savings = {
        each.name: {
            "seen": "2026-01-05T06:30:00.000Z",
            "standing": rng.choice(([], [old], [young], [old, young])),
            "seconds": rng.choice((0.0, 7200.5)),
            "micros": rng.choice(({}, {"USD": 1_000_000})),
        }
        for each in pools
        if rng.random() < 0.7
    }
    where = {each.variables.get("CLAIMS_LEASE_NAMESPACE", SYSTEM) for each in scenario.controllers}
    notes = {SAVINGS: json.dumps(savings)}
    meta = [{"name": CLAIMS, "namespace": each, "annotations": notes} for each in sorted(where)]
    return [{**lease, "metadata": each, "spec": {}} for each in meta]


def _steps(rng: Random, scenario: Scenario) -> list[Step]:
    found: list[Step] = []
    for _ in range(rng.randint(0, 3)):
        kind = rng.choices(list(_STEPS), list(_STEPS.values()))[0]
        args = STEPS[kind].draw(rng, scenario)
        if args is not None:
            found.append(Step(at=round(rng.uniform(_BEGIN, scenario.story * _END), 1), kind=kind, args=args))
    return found


__all__ = ["SHARE", "with_autoscalers"]
