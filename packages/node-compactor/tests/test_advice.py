"""Advice about a pod's annotation, followed: the command is applied to the file, and the reason is gone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tightship_testkit.advice import followed

Json = dict[str, Any]

LOCAL = "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes"
SAFE = "cluster-autoscaler.kubernetes.io/safe-to-evict"
APPS = {"Job": "batch/v1", "CronJob": "batch/v1", "ReplicationController": "v1", "Rollout": "argoproj.io/v1alpha1"}


def node(name: str) -> Json:
    amounts = {"cpu": "4", "memory": "16Gi", "pods": "110"}
    ready = [{"type": "Ready", "status": "True"}]
    return thing("Node", name, "v1", namespace=None, status={"allocatable": amounts, "conditions": ready})


def thing(
    kind: str, name: str, version: str, *, owner: Json | None = None, namespace: str | None = "shop", **more: Any
) -> Json:
    meta: Json = {"name": name, "uid": f"{kind}-{name}"}
    if namespace:
        meta["namespace"] = namespace
    if owner is not None:
        above = {"kind": owner["kind"], "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"]}
        meta["ownerReferences"] = [{**above, "apiVersion": owner["apiVersion"], "controller": True}]
    return {"apiVersion": version, "kind": kind, "metadata": meta, **more}


def workload(kind: str, name: str, owner: Json | None = None, notes: Json | None = None) -> Json:
    template: Json = {"metadata": {"annotations": dict(notes or {})}, "spec": {}}
    spec = {"jobTemplate": {"spec": {"template": template}}} if kind == "CronJob" else {"template": template}
    return thing(kind, name, APPS.get(kind, "apps/v1"), owner=owner, spec=spec)


def pod(owner: Json | None, notes: Json, *, local: bool, labels: Json | None = None) -> Json:
    volumes = [{"name": "logs", "emptyDir": {}}, {"name": "scratch", "emptyDir": {}}] if local else []
    spec = {"nodeName": "a", "containers": [{"name": "c"}], "volumes": volumes}
    made = thing("Pod", "cart-7d9f-x", "v1", owner=owner, spec=spec, status={"phase": "Running"})
    made["metadata"] |= {"annotations": dict(notes), "labels": labels or {}}
    return made


def chain(*kinds: str, notes: Json, template: Json | None = None) -> list[Json]:
    """Return workloads of *kinds*, the top first, each the owner of the next."""
    made: list[Json] = []
    for kind in kinds:
        name = "cart" if not made else f"cart-{'7d9f' if kind == 'ReplicaSet' else '29000000'}"
        made.append(workload(kind, name, made[-1] if made else None, notes if template is None else template))
    return made


CHAINS = {
    "a Deployment above a ReplicaSet": ("Deployment", "ReplicaSet"),
    "a ReplicaSet alone": ("ReplicaSet",),
    "an Argo Rollout": ("Rollout", "ReplicaSet"),
    "a StatefulSet": ("StatefulSet",),
    "a CronJob above a Job": ("CronJob", "Job"),
    "a Job alone": ("Job",),
    "a ReplicationController": ("ReplicationController",),
    "a kind that nobody knows": ("Flock",),
    "no controller": (),
}
BLOCKERS = {
    "LocalStorage": ({}, True),
    "LocalStorage beside a safe volume": ({LOCAL: "logs"}, True),
    "NotSafeToEvict": ({SAFE: "false"}, False),
    "PodDoNotDisrupt": ({"karpenter.sh/do-not-disrupt": "true"}, False),
    "PodDoNotDisrupt for all autoscalers": ({"node-autoscaling.kubernetes.io/do-not-disrupt": "true"}, False),
    "PreferNoEviction": ({"descheduler.alpha.kubernetes.io/prefer-no-eviction": ""}, False),
    "PodDoNotDrain": ({"tightship.dev/do-not-drain": "true"}, False),
}


def advice(cli: Any, path: Path, objects: list[Json], reason: str) -> str | None:
    """Return the change that `explain` prints against *reason*, ``None`` if nothing is kept by it."""
    path.write_text(json.dumps({"kind": "List", "items": objects}))
    [reported] = json.loads(cli("explain", "a", "-f", path, "-o", "json").out)["nodes"]
    found = [each for each in reported["pods"][0]["refusals"] if each["reason"] == reason]
    return found[0]["fix"] if found else None


@pytest.mark.parametrize("blocker", BLOCKERS)
@pytest.mark.parametrize("kinds", CHAINS.values(), ids=CHAINS)
def test_the_command_of_an_advice_removes_its_reason(
    cli: Any, tmp_path: Path, kinds: tuple[str, ...], blocker: str
) -> None:
    notes, local = BLOCKERS[blocker]
    reason = blocker.partition(" ")[0]
    owners = chain(*kinds, notes=notes)
    objects = [node("a"), node("b"), *owners, pod(owners[-1] if owners else None, notes, local=local)]
    said = advice(cli, tmp_path / "cluster.json", objects, reason)
    assert said is not None
    assert said.startswith("kubectl -n shop ")
    assert advice(cli, tmp_path / "cluster.json", followed(objects, said), reason) is None


def test_the_owner_at_the_top_is_patched(cli: Any, tmp_path: Path) -> None:
    owners = chain("Deployment", "ReplicaSet", notes={})
    objects = [node("a"), node("b"), *owners, pod(owners[-1], {}, local=True)]
    patch = {"spec": {"template": {"metadata": {"annotations": {LOCAL: "logs,scratch"}}}}}
    reported = json.dumps(patch, separators=(",", ":"))
    assert advice(cli, tmp_path / "cluster.json", objects, "LocalStorage") == (
        f"kubectl -n shop patch deployment cart --type merge -p '{reported}'"
    )


def test_a_deployment_is_known_by_its_pods_where_no_replicaset_was_read(cli: Any, tmp_path: Path) -> None:
    owners = chain("Deployment", "ReplicaSet", notes={SAFE: "false"})
    made = pod(owners[-1], {SAFE: "false"}, local=False, labels={"pod-template-hash": "7d9f"})
    said = advice(cli, tmp_path / "cluster.json", [node("a"), node("b"), made], "NotSafeToEvict")
    assert said is not None
    assert said.startswith("kubectl -n shop patch deployment cart ")


def test_an_annotation_that_the_pod_alone_has_is_removed_from_the_pod(cli: Any, tmp_path: Path) -> None:
    owners = chain("Deployment", "ReplicaSet", notes={}, template={})
    objects = [node("a"), node("b"), *owners, pod(owners[-1], {SAFE: "false"}, local=False)]
    said = advice(cli, tmp_path / "cluster.json", objects, "NotSafeToEvict")
    why = "the pods alone carry it, not the template of deployment/cart"
    assert said == f"kubectl -n shop annotate pod cart-7d9f-x {SAFE}-  # {why}"
    assert advice(cli, tmp_path / "cluster.json", followed(objects, said), "NotSafeToEvict") is None


def test_a_pod_whose_controller_is_gone_is_annotated_itself(cli: Any, tmp_path: Path) -> None:
    owners = chain("Deployment", "ReplicaSet", notes={})
    other = workload("ReplicaSet", "other")
    objects = [node("a"), node("b"), other, pod(owners[-1], {}, local=True)]
    said = advice(cli, tmp_path / "cluster.json", objects, "LocalStorage")
    assert said is not None
    assert said.startswith("kubectl -n shop annotate pod cart-7d9f-x ")


@pytest.mark.parametrize(
    ("owners", "said"),
    [
        (("Flock",), "new pods get what flock/cart says: change it there to last"),
        (("Job",), "what job/cart is made of can't change: later ones need the change where they are written"),
        (("Deployment", "ReplicaSet"), None),
        ((), None),
    ],
)
def test_advice_that_annotates_pods_names_the_object_that_lasts(
    cli: Any, tmp_path: Path, owners: tuple[str, ...], said: str | None
) -> None:
    chained = chain(*owners, notes={SAFE: "false"})
    objects = [node("a"), node("b"), *chained, pod(chained[-1] if chained else None, {SAFE: "false"}, local=False)]
    told = advice(cli, tmp_path / "cluster.json", objects, "NotSafeToEvict")
    assert told is not None
    assert (" annotate pod " in told, "#" in told) == (owners != ("Deployment", "ReplicaSet"), said is not None)
    assert said is None or told.endswith(f"  # {said}")


@pytest.mark.parametrize(
    ("meta", "said"),
    [
        ({"labels": {"app.kubernetes.io/managed-by": "configmanagement.gke.io"},
          "annotations": {"configmanagement.gke.io/managed": "enabled"}}, "belongs to Config Sync"),
        ({"annotations": {"meta.helm.sh/release-name": "web"}}, "belongs to Helm release web"),
        ({"annotations": {"argocd.argoproj.io/tracking-id": "shop:apps/Deployment:shop/cart"}},
         "belongs to Argo CD application shop"),
        ({"labels": {"helm.toolkit.fluxcd.io/name": "web"}}, "belongs to Flux HelmRelease web"),
        ({"labels": {"kapp.k14s.io/app": "1626"}}, "belongs to kapp app 1626"),
        ({"labels": {"olm.owner": "dns.v1"}}, "new pods get what the Operator Lifecycle Manager says"),
    ],
)  # fmt: skip
def test_advice_names_whoever_deploys_the_template(cli: Any, tmp_path: Path, meta: Json, said: str) -> None:
    above = workload("StatefulSet", "cart", notes={SAFE: "false"})
    above["metadata"] |= meta
    objects = [node("a"), node("b"), above, pod(above, {SAFE: "false"}, local=False)]
    told = advice(cli, tmp_path / "cluster.json", objects, "NotSafeToEvict")
    assert told is not None
    assert said in told
    assert (" annotate pod " in told) == ("olm.owner" in str(meta))
