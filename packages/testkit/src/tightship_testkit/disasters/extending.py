"""Gives scenarios what newer clusters have: gangs, buffers, VPAs, expendable pods, deletion costs, and steps with them;
pods with claims of devices, controllers that replace a pod late, and objects that can't be read.

All of it comes from a source of chance of its own, so that what else a seed draws stays what it was.
"""

from __future__ import annotations

from random import Random

import msgspec

from tightship_testkit.disasters.cluster import LATE, SHOP
from tightship_testkit.disasters.registry import STEPS, Args
from tightship_testkit.disasters.scenario import Controller, Scenario, Step, Workload

SHARE = 0.4
"""The part of scenarios with any of it."""
COSTS = frozenset(("node-compactor", "node-refiner"))
_STEPS = {"price-pods": 3.0, "maintain": 3.0, "switch-costs": 2.0, "resize-buffer": 1.5}
"""Kinds of steps, and how often each is drawn."""
_BEGIN, _END = 10.0, 0.75
_SCALED = ("Deployment", "StatefulSet", "ReplicaSet")
_LEADER_WORKER_SET = "leaderworkerset.sigs.k8s.io"


def with_extensions(scenario: Scenario) -> Scenario:
    """Return *scenario* with some of all this, or as it is."""
    rng = Random(f"extensions {scenario.seed}")  # noqa: S311 - a simulation
    if rng.random() >= SHARE:
        return scenario
    objects: list[Args] = []
    more = Random(f"late {scenario.seed}")  # noqa: S311 - a simulation
    workloads = [_late(more, _workload(rng, each, objects)) for each in scenario.workloads]
    scaled = [each for each in workloads if each.kind in _SCALED]
    if scaled and rng.random() < 0.4:
        objects += _buffer(rng, rng.choice(scaled))
    if scaled and rng.random() < 0.4:
        objects += _vertical(rng, rng.choice(scaled))
    objects += _broken(more) if more.random() < 0.4 else []
    controllers = [_controller(rng, each) for each in scenario.controllers]
    unique = {(each["kind"], each["metadata"]["name"]): each for each in objects}
    made = msgspec.structs.replace(scenario, workloads=workloads, objects=[*unique.values()], controllers=controllers)
    return msgspec.structs.replace(made, steps=sorted([*made.steps, *_steps(rng, made)], key=lambda each: each.at))


def _workload(rng: Random, workload: Workload, objects: list[Args]) -> Workload:
    """Return *workload* as a gang, with expendable pods, or as it is."""
    if workload.kind not in _SCALED:
        return workload
    if rng.random() < 0.1:
        return msgspec.structs.replace(workload, spec={**workload.spec, "priority": -20})
    if rng.random() >= 0.3:
        return workload
    labels, notes, spec = dict(workload.labels), dict(workload.annotations), dict(workload.spec)
    match rng.choice(("Volcano", "JobSet", "Kueue", "PodGroup", "LeaderWorkerSet")):
        case "Volcano":
            notes |= {"volcano.sh/job-name": workload.name, "scheduling.volcano.sh/group-name": workload.name}
        case "JobSet":
            labels["jobset.sigs.k8s.io/jobset-name"] = workload.name
        case "Kueue":
            labels["kueue.x-k8s.io/pod-group-name"] = workload.name
        case "PodGroup":
            spec["schedulingGroup"] = {"podGroupName": workload.name}
            objects += _served("scheduling.k8s.io", "v1beta1", "PodGroup", workload.name, disruptionMode={"all": {}})
        case _:
            labels |= {f"{_LEADER_WORKER_SET}/name": workload.name, f"{_LEADER_WORKER_SET}/group-index": "0"}
            worker = {"restartPolicy": "RecreateGroupOnPodRestart"}
            group = "leaderworkerset.x-k8s.io"
            objects += _served(group, "v1", "LeaderWorkerSet", workload.name, leaderWorkerTemplate=worker)
    if rng.random() < 0.4:
        notes["tightship.dev/evict-together"] = "true"
    return msgspec.structs.replace(workload, labels=labels, annotations=notes, spec=spec)


def _late(rng: Random, workload: Workload) -> Workload:
    """Return *workload* with pods that claim a device, with replacements that come late, or as it is."""
    if workload.kind not in _SCALED:
        return workload
    drawn = rng.random()
    if drawn < 0.1 and "priority" not in workload.spec:
        claims = [{"name": "gpu", "resourceClaimName": "shared"}]
        return msgspec.structs.replace(workload, spec={**workload.spec, "resourceClaims": claims})
    if drawn < 0.3 and workload.kind != "StatefulSet":
        return msgspec.structs.replace(workload, annotations={**workload.annotations, LATE: "true"})
    return workload


def _broken(rng: Random) -> list[Args]:
    """Return an object that can't be read, and is nobody's; what has its kind served stands before it."""
    kinds = {
        "PodGroup": ("scheduling.k8s.io", "v1beta1"),
        "LeaderWorkerSet": ("leaderworkerset.x-k8s.io", "v1"),
        "VerticalPodAutoscaler": ("autoscaling.k8s.io", "v1"),
        "CapacityBuffer": ("autoscaling.x-k8s.io", "v1beta1"),
    }
    kind = rng.choice(sorted(kinds))
    crd, thing = _served(*kinds[kind], kind, "broken")
    wrong: object = rng.choice((7, [], "text"))
    names = "targetRef", "scalableRef", "disruptionMode", "leaderWorkerTemplate", "podTemplateRef", "recommendation"
    thing[rng.choice(("spec", "status"))] = dict.fromkeys(names, wrong)
    return [crd, thing]


def _served(group: str, version: str, kind: str, name: str, **spec: object) -> list[Args]:
    """Return an object and what has its kind served."""
    return [
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"{kind.lower()}s.{group}"},
            "spec": {"group": group, "versions": [{"name": version, "served": True}]},
        },
        {
            "apiVersion": f"{group}/{version}",
            "kind": kind,
            "metadata": {"name": name, "namespace": SHOP},
            "spec": spec,
        },
    ]


def _buffer(rng: Random, workload: Workload) -> list[Args]:
    """Return a buffer as its autoscaler leaves it: of a template, or of a percentage of a workload."""
    container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": workload.cpu, "memory": "64Mi"}}}
    template = {
        "apiVersion": "v1",
        "kind": "PodTemplate",
        "metadata": {"name": "spare", "namespace": SHOP},
        "template": {"spec": {"containers": [container]}},
    }
    replicas = rng.choice((1, 2, 4))
    spec: Args = {"podTemplateRef": {"name": "spare"}, "replicas": replicas}
    if rng.random() < 0.5:
        spec = {"scalableRef": {"apiGroup": "apps", "kind": workload.kind, "name": workload.name}, "percentage": 50}
    spec["provisioningStrategy"] = rng.choice(("buffer.x-k8s.io/active-capacity", "example.com/standby"))
    crd, buffer = _served("autoscaling.x-k8s.io", "v1beta1", "CapacityBuffer", "spare", **spec)
    buffer["status"] = {"replicas": replicas, "podTemplateRef": {"name": "spare"}}
    return [crd, template, buffer]


def _vertical(rng: Random, workload: Workload) -> list[Args]:
    """Return a VPA that recommends more, or less, than the pods request now."""
    crd, autoscaler = _served(
        "autoscaling.k8s.io", "v1", "VerticalPodAutoscaler", workload.name,
        targetRef={"apiVersion": "apps/v1", "kind": workload.kind, "name": workload.name},
        updatePolicy={"updateMode": rng.choice(("Off", "Recreate", "InPlaceOrRecreate"))},
    )  # fmt: skip
    target = {"cpu": rng.choice(("50m", "400m", "3")), "memory": "128Mi"}
    autoscaler["status"] = {
        "recommendation": {"containerRecommendations": [{"containerName": "main", "target": target}]}
    }
    return [crd, autoscaler]


def _controller(rng: Random, controller: Controller) -> Controller:
    if controller.program not in COSTS or rng.random() < 0.4:
        return controller
    more: Args = {"deletionCost": True, "scaleInTimeout": rng.choice(("0s", "10s", "40s"))}
    return msgspec.structs.replace(controller, settings={**controller.settings, **more})


def _steps(rng: Random, scenario: Scenario) -> list[Step]:
    found: list[Step] = []
    for _ in range(rng.randint(0, 4)):
        kind = rng.choices(list(_STEPS), list(_STEPS.values()))[0]
        args = STEPS[kind].draw(rng, scenario)
        if args is not None:
            found.append(Step(at=round(rng.uniform(_BEGIN, scenario.story * _END), 1), kind=kind, args=args))
    return found


__all__ = ["COSTS", "SHARE", "with_extensions"]
