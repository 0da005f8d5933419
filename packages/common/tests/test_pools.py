"""Which pool a node belongs to, on every cloud and distribution we know."""

from __future__ import annotations

import pytest

from tightship.cluster.pools import KNOWN_POOL_LABELS, NO_POOL, pool_of
from tightship.objects import Node
from tightship_testkit.builders import node, snapshot

MACHINE_SET = {"cluster.x-k8s.io/owner-kind": "MachineSet", "cluster.x-k8s.io/owner-name": "workers-6d8f7"}


def made(labels: dict[str, str] | None = None, notes: dict[str, str] | None = None) -> Node:
    [view] = snapshot(node(labels=labels, notes=notes)).nodes.values()
    return view.node


@pytest.mark.parametrize(
    ("cloud", "label"),
    [
        ("GKE", "cloud.google.com/gke-nodepool"),
        ("EKS", "eks.amazonaws.com/nodegroup"),
        ("eksctl", "alpha.eksctl.io/nodegroup-name"),
        ("AKS", "kubernetes.azure.com/agentpool"),
        ("AKS, older", "agentpool"),
        ("Karpenter", "karpenter.sh/nodepool"),
        ("Cluster API machine pool", "cluster.x-k8s.io/pool-name"),
        ("Cluster API deployment", "cluster.x-k8s.io/deployment-name"),
        ("Gardener", "worker.gardener.cloud/pool"),
        ("Gardener, older", "worker.garden.sapcloud.io/group"),
        ("DigitalOcean", "doks.digitalocean.com/node-pool"),
        ("HyperShift", "hypershift.openshift.io/nodePool"),
        ("IBM", "ibm-cloud.kubernetes.io/worker-pool-name"),
        ("Alibaba", "alibabacloud.com/nodepool-id"),
        ("Scaleway", "k8s.scaleway.com/pool-name"),
        ("Scaleway, by id", "k8s.scaleway.com/pool"),
        ("Hetzner", "hcloud/node-group"),
        ("Yandex", "yandex.cloud/node-group-id"),
        ("Nebius", "nebius.com/node-group-id"),
        ("Huawei", "cce.cloud.com/cce-nodepool"),
        ("Tencent", "tke.cloud.tencent.com/nodepool-id"),
        ("Tencent, by its scaling group", "cloud.tencent.com/auto-scaling-group-id"),
        ("CoreWeave", "compute.coreweave.com/node-pool"),
        ("Magnum", "magnum.openstack.org/nodegroup"),
        ("Rancher", "rke.cattle.io/rke-machine-pool-name"),
        ("Linode", "lke.linode.com/pool-id"),
        ("Exoscale", "node.exoscale.net/nodepool-id"),
        ("Vultr", "vke.vultr.com/node-pool"),
        ("Civo", "kubernetes.civo.com/civo-node-pool"),
        ("kOps", "kops.k8s.io/instancegroup"),
        ("OVH and others", "nodepool"),
    ],
)
def test_the_label_of_a_cloud_names_the_pool(cloud: str, label: str) -> None:
    assert label in KNOWN_POOL_LABELS
    assert pool_of(made({label: "workers"})) == "workers"


def test_every_known_label_is_read() -> None:
    assert {pool_of(made({label: label})) for label in KNOWN_POOL_LABELS} == set(KNOWN_POOL_LABELS)


def test_of_several_labels_the_first_in_order_counts() -> None:
    assert pool_of(made({"nodepool": "late", "cloud.google.com/gke-nodepool": "early"})) == "early"


def test_an_empty_label_says_nothing() -> None:
    assert pool_of(made({"cloud.google.com/gke-nodepool": "", "agentpool": "workers"})) == "workers"


@pytest.mark.parametrize(
    ("notes", "pool"),
    [
        (MACHINE_SET, "workers"),
        ({**MACHINE_SET, "cluster.x-k8s.io/owner-kind": "Machine"}, NO_POOL),
        ({**MACHINE_SET, "cluster.x-k8s.io/owner-kind": "MachinePool"}, "workers-6d8f7"),
        ({"machine.openshift.io/machine": "openshift-machine-api/prod-worker-eu-1a-x7k2q"}, "prod-worker-eu-1a"),
        ({}, NO_POOL),
    ],
    ids=["Cluster API", "a Machine without a set", "a MachinePool", "OpenShift", "nothing"],
)
def test_the_machine_object_names_the_pool_where_no_label_does(notes: dict[str, str], pool: str) -> None:
    assert pool_of(made(notes=notes)) == pool


def test_a_label_outweighs_the_machine_object() -> None:
    assert pool_of(made({"nodepool": "labelled"}, MACHINE_SET)) == "labelled"


def test_configured_labels_replace_the_known_ones() -> None:
    both = made({"team": "blue", "nodepool": "workers"})
    assert pool_of(both, ("team",)) == "blue"
    assert pool_of(made({"nodepool": "workers"}), ("team",)) == NO_POOL


def test_oracle_names_the_pool_in_an_annotation() -> None:
    assert pool_of(made(notes={"oci.oraclecloud.com/node-pool-id": "ocid1.nodepool.a"})) == "ocid1.nodepool.a"
