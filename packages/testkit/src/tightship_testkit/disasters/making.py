"""Makes a scenario from a seed."""

from __future__ import annotations

from random import Random

import msgspec

from tightship_testkit.disasters import faults, steps
from tightship_testkit.disasters.registry import FAULTS, STEPS, Args
from tightship_testkit.disasters.scenario import (
    Budget,
    Controller,
    Fault,
    Node,
    Pool,
    Scenario,
    Step,
    Workload,
)
from tightship_testkit.disasters.world import INTERVALS

assert faults
assert steps


def make(seed: int) -> Scenario:
    """Return the scenario of *seed*: the same for the same seed."""
    rng = Random(seed)  # noqa: S311 - a simulation
    pools = [Pool(name=f"p{number}", cpu=rng.choice(("2", "4", "4"))) for number in range(rng.choice((2, 2, 3)))]
    nodes = [Node(name=f"n{number}", pool=rng.choice(pools).name) for number in range(rng.randint(4, 7))]
    workloads = [_workload(rng, number) for number in range(rng.randint(3, 6))]
    budgets = [_budget(rng, each) for each in workloads if each.kind != "Pod" and rng.random() < 0.4]
    scenario = Scenario(
        seed=seed,
        pools=pools,
        nodes=nodes,
        workloads=workloads,
        budgets=budgets,
        controllers=_controllers(rng),
        latency=rng.choice((0.0, 0.01, 0.05)),
    )
    scenario = msgspec.structs.replace(scenario, steps=_steps(rng, scenario))
    return msgspec.structs.replace(scenario, faults=_faults(rng, scenario))


def _workload(rng: Random, number: int) -> Workload:
    return Workload(
        name=f"w{number}",
        kind="Deployment",
        replicas=rng.choice((1, 2, 2, 3, 4, 5)),
        cpu=rng.choice(("100m", "200m", "300m", "500m")),
    )


def _budget(rng: Random, workload: Workload) -> Budget:
    spec: Args = rng.choice(({"minAvailable": 1}, {"maxUnavailable": 1}, {"minAvailable": "50%"}))
    return Budget(name=f"{workload.name}-budget", workload=workload.name, spec=spec)


def _controllers(rng: Random) -> list[Controller]:
    chosen = rng.choice((["node-compactor"], ["node-refiner"], ["node-compactor", "node-refiner"]))
    return [_controller(rng, program) for program in chosen]


def _controller(rng: Random, program: str) -> Controller:
    variables = {
        INTERVALS[program]: "10",
        "LEASE_DURATION_SECONDS": "15",
        "LEASE_RENEW_DEADLINE_SECONDS": "10",
        "LEASE_RETRY_PERIOD_SECONDS": "4",
        "REQUEST_TIMEOUT_SECONDS": "5",
        "HTTP_PORTS": "9101",
    }
    skews = [round(rng.uniform(-5, 5), 1) for _ in range(rng.choice((1, 2)))]
    return Controller(program=program, skews=skews, settings=_settings(rng, program), variables=variables)


def _settings(rng: Random, program: str) -> Args:
    if program == "node-refiner":
        return {
            "excess_nodes_threshold": 1, "minimum_nodes": 1, "minimum_non_tainted_nodes": 1, "time_gap": "10s",
            "time_since_last_addition": "20s", "settle_time": "2s", "pod_eviction_timeout": "40s",
            "node_drain_timeout": "60s", "hand_over_timeout": "40s", "backoff": "15s", "backoff_limit": "60s",
            "hold_off": "200s", "not_ready_timeout": "30s", "pending_timeout": "20s",
        }  # fmt: skip
    return {
        "nodePools": {
            "*": {
                "enabled": True,
                "scaleDownCPURequestRatioLimit": rng.choice((0.5, 0.8)),
                "scaleDownRequiredUnderutilizedNodeCount": 1,
            }
        },
        "neededMarkedTimeForRemoval": 5, "minimumNodeAge": 0, "settleTime": 2, "podEvictionTimeout": 40,
        "nodeDrainTimeout": 60, "handOverTimeout": 40, "backoff": 15, "backoffLimit": 60, "holdOff": 200,
        "notReadyTimeout": 30, "pendingTimeout": 20, "coolDownAfterNodeAdded": 20, "coolDownAfterFailure": 15,
        "clusterCoolDownAfterFailure": 5,
    }  # fmt: skip


def _steps(rng: Random, scenario: Scenario) -> list[Step]:
    found: list[Step] = []
    kinds = sorted(STEPS)
    for _ in range(rng.randint(4, 10)):
        kind = rng.choices(kinds, [STEPS[each].weight for each in kinds])[0]
        args = STEPS[kind].draw(rng, scenario)
        if args is not None:
            found.append(Step(at=round(rng.uniform(10, scenario.story - 20), 1), kind=kind, args=args))
    return sorted(found, key=lambda each: each.at)


def _faults(rng: Random, scenario: Scenario) -> list[Fault]:
    found: list[Fault] = []
    kinds = sorted(FAULTS)
    for _ in range(rng.choice((0, 1, 1, 2, 3))):
        kind = rng.choices(kinds, [FAULTS[each].weight for each in kinds])[0]
        args = FAULTS[kind].draw(rng, scenario)
        if args is None:
            continue
        at = round(rng.uniform(0, scenario.story - 20), 1)
        found.append(
            Fault(
                at=at,
                until=round(min(scenario.story, at + rng.choice((5, 20, 60, 150))), 1),
                kind=kind,
                share=rng.choice((0.05, 0.2, 0.5, 1.0)),
                dice=rng.getrandbits(30),
                args=args,
            )
        )
    return found


__all__ = ["make"]
