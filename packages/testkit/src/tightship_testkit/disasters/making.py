"""Makes a scenario from a seed."""

from __future__ import annotations

from random import Random

import msgspec

from tightship_testkit.disasters import faults, steps
from tightship_testkit.disasters.autoscaled import with_autoscalers
from tightship_testkit.disasters.extending import with_extensions
from tightship_testkit.disasters.floors.making import drawn_faults, floors_only, with_floors
from tightship_testkit.disasters.neighbours import with_neighbours
from tightship_testkit.disasters.piloting import with_pilot
from tightship_testkit.disasters.registry import STEPS, Args
from tightship_testkit.disasters.restarting import with_restarts
from tightship_testkit.disasters.resting import with_rests
from tightship_testkit.disasters.scenario import (
    Autoscaler,
    Budget,
    Controller,
    Fault,
    Node,
    Pool,
    Scenario,
    Step,
    Workload,
)
from tightship_testkit.disasters.sleeping import with_sleepers
from tightship_testkit.disasters.steps.people import NODE_OPT_OUTS, POD_OPT_OUTS
from tightship_testkit.disasters.steps.replicas import any_skew
from tightship_testkit.disasters.steps.workloads import any_budget
from tightship_testkit.disasters.team import INTERVALS
from tightship_testkit.disasters.windowed import with_settling, with_windows

assert faults
assert steps

STORY = 280.0
QUIET = 230.0
LEAD = 10.0
"""Seconds before the first step, in which the cluster gets its pods."""


def make(seed: int) -> Scenario:
    """Return the scenario of *seed*: the same for the same seed. Most are of nodes, some of floors, a few of both."""
    match seed % 10:
        case 3 | 6:
            return floors_only(seed)
        case 9:
            return _newer(with_floors(_nodes(seed), Random(f"both {seed}")))  # noqa: S311
        case _:
            return _newer(_nodes(seed))


def _newer(scenario: Scenario) -> Scenario:
    everything = with_neighbours(with_sleepers(with_autoscalers(with_extensions(with_pilot(scenario)))))
    return with_settling(with_rests(with_restarts(with_windows(everything))))


def _nodes(seed: int) -> Scenario:
    rng = Random(seed)  # noqa: S311 - a simulation
    pools = [Pool(name=f"p{number}", cpu=rng.choice(("2", "4", "4"))) for number in range(rng.choice((2, 2, 3)))]
    nodes = [_node(rng, number, pools) for number in range(rng.randint(4, 7))]
    workloads = [_workload(rng, number, nodes) for number in range(rng.randint(3, 6))]
    urgent = Random(f"urgent {seed}")  # noqa: S311
    workloads = [_urgent(each) if urgent.random() < _URGENT else each for each in workloads]
    budgeted = [each for each in workloads if each.kind not in ("Pod", "DaemonSet") and rng.random() < 0.4]
    scenario = Scenario(
        seed=seed,
        story=STORY,
        quiet=QUIET,
        pools=pools,
        nodes=nodes,
        workloads=workloads,
        budgets=[Budget(name=f"{each.name}-budget", workload=each.name, spec=any_budget(rng)) for each in budgeted],
        controllers=_controllers(rng, pools),
        autoscaler=Autoscaler(unneeded=rng.choice((10.0, 20.0, 60.0, 1000.0)), threshold=rng.choice((0.0, 0.0, 0.5))),
        latency=rng.choice((0.0, 0.01, 0.05)),
    )
    scenario = msgspec.structs.replace(scenario, steps=_steps(rng, scenario))
    return msgspec.structs.replace(scenario, faults=_faults(rng, scenario))


def _node(rng: Random, number: int, pools: list[Pool]) -> Node:
    annotations = {}
    if rng.random() < 0.05:
        key = rng.choice(sorted(NODE_OPT_OUTS))
        annotations[key] = NODE_OPT_OUTS[key]
    taints = [{"key": "example.com/kept", "value": "x", "effect": "PreferNoSchedule"}] if rng.random() < 0.2 else []
    return Node(
        name=f"n{number}",
        pool=rng.choice(pools).name,
        annotations=annotations,
        taints=taints,
        cordoned=rng.random() < 0.05,
    )


_KINDS = (*["Deployment"] * 4, *["StatefulSet"] * 2, "ReplicaSet", "DaemonSet", "Pod")


def _workload(rng: Random, number: int, nodes: list[Node]) -> Workload:
    kind = rng.choice(_KINDS) if number else "Deployment"
    annotations: dict[str, str] = {}
    finalizers: list[str] = []
    spec: Args = {}
    if rng.random() < 0.06:
        key = rng.choice(sorted(POD_OPT_OUTS))
        annotations[key] = POD_OPT_OUTS[key]
    elif kind == "Pod" and rng.random() < 0.7:
        annotations["cluster-autoscaler.kubernetes.io/safe-to-evict"] = "true"
    if rng.random() < 0.12:
        annotations["tightship-simulator/stops-after"] = rng.choice(("15", "50", "200"))
        spec["terminationGracePeriodSeconds"] = rng.choice((20, 60, 300))
    if rng.random() < 0.05:
        finalizers.append(HELD)
    if kind in ("Deployment", "StatefulSet") and rng.random() < 0.04:
        spec["nodeName"] = rng.choice(nodes).name
    if kind == "StatefulSet" and rng.random() < 0.3:
        annotations["example.com/parallel"] = "true"
    return Workload(
        name=f"w{number}",
        kind=kind,
        replicas=1 if kind in ("Pod", "DaemonSet") else rng.choice((1, 2, 2, 3, 4, 5)),
        cpu=rng.choice(("50m", "100m", "200m", "300m", "500m", "900m")) if kind != "DaemonSet" else "50m",
        annotations=annotations,
        finalizers=finalizers,
        spec=spec,
    )


def _urgent(workload: Workload) -> Workload:
    """Return *workload* with pods that go last in a drain, once the others have gone."""
    spec = {**workload.spec, "priorityClassName": "system-cluster-critical"}
    return msgspec.structs.replace(workload, spec=spec)


_URGENT = 0.15
"""The part of workloads whose pods are critical to the cluster."""

HELD = "example.com/held"
"""A finalizer that its controller takes off after a while, or when the story is over."""


def _controllers(rng: Random, pools: list[Pool]) -> list[Controller]:
    chosen = rng.choice((["node-compactor"], ["node-refiner"], ["node-compactor", "node-refiner"]))
    made = [_controller(rng, program, pools) for program in chosen]
    if len(made) > 1 and rng.random() < 0.25:
        made[1] = msgspec.structs.replace(made[1], namespace="elsewhere")
        if rng.random() < 0.5:
            # Another place than the default one, the same for both.
            shared = {"CLAIMS_LEASE_NAMESPACE": made[0].namespace}
            made = [msgspec.structs.replace(each, variables={**each.variables, **shared}) for each in made]
    return made


def _controller(rng: Random, program: str, pools: list[Pool]) -> Controller:
    variables = {
        INTERVALS[program]: rng.choice(("5", "10", "10")),
        "LEASE_DURATION": "15s",
        "LEASE_RENEW_DEADLINE": "10s",
        "LEASE_RETRY_PERIOD": "4s",
        "REQUEST_TIMEOUT": "5s",
        "HTTP_PORTS": "9101",
    }
    if rng.random() < 0.04:
        variables["DRY_RUN"] = "true"
    skews = [any_skew(rng) for _ in range(rng.choice((1, 2)))]
    settings = _refiner(rng) if program == "node-refiner" else _compactor(rng, pools)
    return Controller(program=program, skews=skews, settings=settings, variables=variables)


def _refiner(rng: Random) -> Args:
    settings: Args = {
        "excessNodesThreshold": rng.choice((0, 1, 1)), "minimumNodeCount": rng.choice((1, 1, 2, 3)),
        "minimumNonTaintedNodeCount": 1, "clusterCoolDownAfterDrain": rng.choice(("0s", "10s")),
        "clusterCoolDownAfterNodeAdded": rng.choice(("0s", "20s")), "settleTime": rng.choice(("1s", "4s", "6s")),
        "podEvictionTimeout": "30s", "nodeDrainTimeout": "40s", "handOverTimeout": "30s", "backoff": "10s",
        "backoffLimit": "40s", "holdOff": "200s", "notReadyTimeout": "20s", "pendingTimeout": "15s",
        "pendingAfterDrainTimeout": "20s", "workloadPause": "0s",
    }  # fmt: skip
    _vary(rng, settings, "maximumNodesInDrain", ("2", "3", "40%"))
    _vary(rng, settings, "candidateOrder", ("fewest-evictions", "pods-priority"))
    _vary(rng, settings, "placement", ("possible",))
    _vary(rng, settings, "awaitCompletionFor", ("20s",))
    _vary(rng, settings, "whenNotTaken", ("keep",), 0.08)
    _vary(rng, settings, "enabled", (False,), 0.04)
    _vary(rng, settings, "steering", (False,), 0.1)
    _vary(rng, settings, "evictionMethod", ("delete",), 0.03)
    _vary(rng, settings, "workloadPause", ("10s", "20s"))
    _vary(rng, settings, "maximumNodesPerHour", (1, 3), 0.15)
    return settings


def _compactor(rng: Random, pools: list[Pool]) -> Args:
    named = {"*": _pool(rng)}
    if rng.random() < 0.5:
        named[rng.choice(pools).name] = _pool(rng)
    settings: Args = {
        "nodePools": named, "neededMarkedTimeForRemoval": rng.choice((0, 5)), "minimumNodeAge": 0,
        "settleTime": rng.choice((1, 4, 6)), "podEvictionTimeout": 30, "nodeDrainTimeout": 40, "handOverTimeout": 30,
        "backoff": 10, "backoffLimit": 40, "holdOff": 200, "notReadyTimeout": 20, "pendingTimeout": 15,
        "coolDownAfterNodeAdded": rng.choice((0, 20)), "coolDownAfterFailure": 10, "clusterCoolDownAfterFailure": 5,
        "pendingAfterDrainTimeout": 20, "workloadPause": 0,
    }  # fmt: skip
    _vary(rng, settings, "maximumNodesInDrain", (2, 3, "40%"))
    _vary(rng, settings, "strategy", ("fewest-nodes",))
    _vary(rng, settings, "placement", ("possible",))
    _vary(rng, settings, "awaitCompletionFor", (20,))
    _vary(rng, settings, "whenNotTaken", ("keep",), 0.08)
    _vary(rng, settings, "steering", (False,), 0.1)
    _vary(rng, settings, "evictionMethod", ("delete",), 0.03)
    _vary(rng, settings, "workloadPause", (10, 20))
    _vary(rng, settings, "maximumNodesPerHour", (1, 3), 0.15)
    return settings


def _pool(rng: Random) -> Args:
    found: Args = {
        "enabled": rng.random() < 0.95,
        "scaleDownCPURequestRatioLimit": rng.choice((0.3, 0.6, 0.9)),
        "scaleDownRequiredUnderutilizedNodeCount": rng.choice((0, 1, 1, 2)),
    }
    _vary(rng, found, "minimumNodeCount", (1, 2))
    _vary(rng, found, "maximumNodesInDrain", (1, 2))
    return found


def _vary(rng: Random, settings: Args, key: str, values: tuple[object, ...], share: float = 0.25) -> None:
    """Set *key* to one of *values* in a *share* of all scenarios."""
    if rng.random() < share:
        settings[key] = rng.choice(values)


def _steps(rng: Random, scenario: Scenario) -> list[Step]:
    found: list[Step] = []
    kinds = sorted(STEPS)
    for _ in range(rng.randint(3, 10)):
        kind = rng.choices(kinds, [STEPS[each].weight for each in kinds])[0]
        args = STEPS[kind].draw(rng, scenario)
        if args is not None:
            found.append(Step(at=round(rng.uniform(LEAD, scenario.story * 0.75), 1), kind=kind, args=args))
    return sorted(found, key=lambda each: each.at)


def _faults(rng: Random, scenario: Scenario) -> list[Fault]:
    programs = [each.program for each in scenario.controllers]

    def whose() -> Args:
        chosen = [rng.choice(programs)] if programs and rng.random() < 0.3 else []
        resources = [rng.choice(("nodes", "pods", "leases", "pods/eviction"))] if rng.random() < 0.3 else []
        return {"programs": chosen, "resources": resources}

    counts, shares = (0, 1, 1, 2, 3), (0.05, 0.2, 0.5, 1.0)
    return drawn_faults(rng, scenario, counts=counts, last=scenario.story - 20, shares=shares, whose=whose)


__all__ = ["make"]
