"""Who manages an object, by its owner references, labels and annotations."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tightship.objects.meta import NOBODY, ManagedBy, Metadata, managed_by

BY = "app.kubernetes.io/managed-by"
CLUSTER = {"apiVersion": "postgresql.cnpg.io/v1", "kind": "Cluster", "name": "db", "uid": "u", "controller": True}
CNPG = "Cluster.postgresql.cnpg.io/db"

ROWS: list[tuple[str, dict[str, Any], ManagedBy]] = [
    ("nobody", {}, NOBODY),
    ("labels of the application", {"labels": {"app.kubernetes.io/instance": "web", "app": "web"}}, NOBODY),
    ("an owner", {"ownerReferences": [CLUSTER]}, ManagedBy(CNPG)),
    ("an owner that is no controller", {"ownerReferences": [{**CLUSTER, "controller": False}]}, ManagedBy(CNPG)),
    ("Strimzi's label", {"labels": {BY: "strimzi-cluster-operator"}}, ManagedBy("strimzi-cluster-operator")),
    ("GKE's add-on manager", {"labels": {"addonmanager.kubernetes.io/mode": "Reconcile"}},
     ManagedBy("the add-on manager of the cluster")),
    ("OLM", {"labels": {"olm.managed": "true"}}, ManagedBy("the Operator Lifecycle Manager")),
    ("Helm", {"labels": {BY: "Helm"}, "annotations": {"meta.helm.sh/release-name": "web"}},
     ManagedBy(tools=("Helm release web",))),
    ("Helm's label alone", {"labels": {BY: "Helm"}}, ManagedBy(tools=("Helm",))),
    ("Helm 2", {"labels": {BY: "Tiller"}}, ManagedBy(tools=("Tiller",))),
    ("Argo CD", {"annotations": {"argocd.argoproj.io/tracking-id": "shop:policy/PodDisruptionBudget:web/web"}},
     ManagedBy(tools=("Argo CD application shop",))),
    ("Argo CD's label", {"labels": {"argocd.argoproj.io/instance": "shop"}},
     ManagedBy(tools=("Argo CD application shop",))),
    ("Flux' kustomizations", {"labels": {"kustomize.toolkit.fluxcd.io/name": "apps"}},
     ManagedBy(tools=("Flux Kustomization apps",))),
    ("Flux' releases", {"labels": {"helm.toolkit.fluxcd.io/name": "web", BY: "Helm"},
     "annotations": {"meta.helm.sh/release-name": "web"}},
     ManagedBy(tools=("Helm release web", "Flux HelmRelease web"))),
    # Config Sync's label (docs: "Labels and annotations used by Config Sync"; kpt-config-sync pkg/metadata).
    ("Config Sync", {"labels": {BY: "configmanagement.gke.io"},
     "annotations": {"configmanagement.gke.io/managed": "enabled", "configsync.gke.io/manager": ":root"}},
     ManagedBy(tools=("Config Sync",))),
    # operator-lifecycle-manager pkg/lib/ownerutil, before it wrote olm.managed; operator-controller internal/labels.
    ("OLM's older label", {"labels": {"olm.owner": "dns.v1", "olm.owner.kind": "ClusterServiceVersion"}},
     ManagedBy("the Operator Lifecycle Manager")),
    ("OLM 1", {"labels": {"olm.operatorframework.io/owner-name": "dns"}}, ManagedBy("the Operator Lifecycle Manager")),
    ("kapp", {"labels": {"kapp.k14s.io/app": "1626"}}, ManagedBy(tools=("kapp app 1626",))),
    ("Kustomize", {"labels": {BY: "kustomize"}}, ManagedBy(tools=("kustomize",))),
    ("an operator's object that a chart's label marks too", {"labels": {BY: "Helm"}, "ownerReferences": [CLUSTER]},
     ManagedBy(CNPG, ("Helm",))),
]  # fmt: skip


@pytest.mark.parametrize(("meta", "right"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_an_object_tells_who_manages_it(meta: dict[str, Any], right: ManagedBy) -> None:
    assert managed_by(msgspec.convert({"name": "web", **meta}, Metadata)) == right


def test_the_owner_of_a_replica_set_is_no_operator() -> None:
    owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "u", "controller": True}
    meta = msgspec.convert({"name": "web-1", "ownerReferences": [owner]}, Metadata)
    assert managed_by(meta, owned=False) == NOBODY


@pytest.mark.parametrize("right", [row[2] for row in ROWS], ids=[row[0] for row in ROWS])
def test_a_note_names_whoever_manages_the_thing(right: ManagedBy) -> None:
    note = right.note("the PDB")
    assert bool(note) is (right != NOBODY)
    assert all(name in note for name in ([right.operator] if right.operator else right.tools))
