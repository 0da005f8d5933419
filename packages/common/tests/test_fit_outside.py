"""Machines for clusters as they are: idle, pinned, too large, half on spot. A wider choice never costs more."""

from __future__ import annotations

from typing import Any

import pytest

from tightship.fit import fit
from tightship.fit.model import MODES, Asked, FitError, Fitted
from tightship.prices import prices
from tightship_testkit.builders import controller, node, pod, snapshot

Json = dict[str, Any]

PLACE = {"topology.kubernetes.io/region": "us-east-1", "topology.kubernetes.io/zone": "us-east-1a"}
HOSTNAME = "kubernetes.io/hostname"


def machine(name: str, kind: str = "m5.xlarge", room: Json | None = None, **more: Any) -> Json:
    labels = {
        "node.kubernetes.io/instance-type": kind,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "eks.amazonaws.com/nodegroup": "web",
        HOSTNAME: name,
        **PLACE,
        **more.pop("labels", {}),
    }
    given = {"cpu": "4", "memory": "16Gi", "pods": "58", **(room or {})}
    return node(name, labels=labels, allocatable=given, **more)


def one(name: str, on: str = "n0", cpu: str = "1", **spec: Any) -> Json:
    return pod(name, on=on, cpu=cpu, memory=spec.pop("memory", "1Gi"), **spec)


def apart(*names: str) -> Json:
    term = {
        "topologyKey": HOSTNAME,
        "labelSelector": {"matchExpressions": [{"key": "app", "operator": "In", "values": list(names)}]},
    }
    return {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


THREE = [machine(f"n{number}") for number in range(3)]
A, B, C = (one(each, f"n{at}", labels={"app": each}, **apart("a", "b", "c")) for at, each in enumerate("abc"))
SPOT = {"eks.amazonaws.com/capacityType": "SPOT"}
TAINT = {"key": "d", "value": "x", "effect": "NoSchedule"}
STARTS = {"key": "node.cilium.io/agent-not-ready", "effect": "NoSchedule"}

# (what, objects, machines of any type, pods without a place)
ROWS: list[tuple[str, list[Json], int, int]] = [
    ("one pod on three nodes", [*THREE, one("a")], 1, 0),
    ("no pod at all", THREE, 0, 0),
    ("only DaemonSets", [*THREE, one("d", owner=controller("DaemonSet", "d"))], 0, 0),
    ("a pod without requests", [*THREE, one("a", cpu="0", memory="0")], 1, 0),
    ("a pod for its own node", [*THREE, one("a", nodeSelector={HOSTNAME: "n0"}), one("b", "n1")], 1, 1),
    ("a pod larger than all", [*THREE, one("a", cpu="2000")], 0, 1),
    ("one that waits and is too large", [*THREE, one("a"), one("b", "", "2000", phase="Pending")], 1, 1),
    ("pods that keep apart", [*THREE, A, B, C], 3, 0),
    ("a cordoned node", [machine("n0", unschedulable=True), *THREE[1:], one("a")], 1, 0),
    ("one node", [machine("n0"), one("a")], 1, 0),
    ("spot machines", [*(machine(f"n{at}", labels=SPOT) for at in range(3)), one("a")], 1, 0),
    (
        "a tainted pool",
        [
            *(machine(f"n{at}", taints=[TAINT]) for at in range(3)),
            one("a", tolerations=[TAINT | {"operator": "Equal"}]),
        ],
        1,
        0,
    ),
    ("a pool that starts", [*(machine(f"n{at}", taints=[STARTS]) for at in range(3)), one("a")], 1, 0),
    ("a pod by itself", [*THREE, one("a", naked=True)], 1, 0),
    ("a pod that ends", [*THREE, one("a", phase="Succeeded")], 0, 0),
    ("two pods that need half a node each", [*THREE, one("a", cpu="1500m"), one("b", "n1", cpu="1500m")], 1, 0),
    (
        "a node of volumes beside others",
        [machine("s0", labels={"openebs.io/engine": "mayastor"}), *THREE, one("a"), one("b", "s0")],
        1,
        0,
    ),
]


def fitted(things: list[Json]) -> Fitted:
    return fit(Asked(snapshot(*things), prices(None, None)))


@pytest.mark.takes(6)
@pytest.mark.parametrize(("things", "nodes", "unplaced"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_what_runs_has_its_machines_and_a_wider_choice_costs_no_more(
    things: list[Json], nodes: int, unplaced: int
) -> None:
    [answer] = fitted(things).answers
    found = {each.mode: each for each in answer.alternatives}
    assert tuple(found) == MODES
    assert (found["any"].nodes, len(found["any"].unplaced)) == (nodes, unplaced)
    complete = [each.micros_per_hour for each in found.values() if len(each.unplaced) == unplaced]
    assert complete == sorted(complete, reverse=True)


@pytest.mark.parametrize(
    ("things", "says"),
    [
        ([machine("n0", labels={"openebs.io/engine": "mayastor"})], "(1 with replicas of volumes on their disks)"),
        ([machine("n0", labels={"node-role.kubernetes.io/etcd": ""})], "(1 of the control plane)"),
        ([machine("n0", labels={"kubernetes.io/os": "windows"})], "(1 without Linux)"),
        ([node("n0"), node("n1")], "(2 without an instance type)"),
        ([machine("n0", labels={"eks.amazonaws.com/compute-type": "fargate"})], "(1 no machine)"),
        ([machine("n0", "k3s")], "no machine type has a price in region us-east-1"),
    ],
)
def test_why_there_is_nothing_to_find_is_told(things: list[Json], says: str) -> None:
    with pytest.raises(FitError) as caught:
        fitted(things)
    assert says in str(caught.value)
