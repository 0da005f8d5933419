"""The pool of a node."""

from __future__ import annotations

from collections.abc import Iterable

from tightship.objects import Node

KNOWN_POOL_LABELS = (
    "cloud.google.com/gke-nodepool",
    "eks.amazonaws.com/nodegroup",
    "alpha.eksctl.io/nodegroup-name",
    "kubernetes.azure.com/agentpool",
    "karpenter.sh/nodepool",
    "karpenter.sh/provisioner-name",
    "cluster.x-k8s.io/pool-name",
    "cluster.x-k8s.io/deployment-name",
    "worker.gardener.cloud/pool",
    "worker.garden.sapcloud.io/group",
    "doks.digitalocean.com/node-pool",
    "hypershift.openshift.io/nodePool",
    "ibm-cloud.kubernetes.io/worker-pool-name",
    "alibabacloud.com/nodepool-id",
    "hcloud/node-group",
    "yandex.cloud/node-group-id",
    "nebius.com/node-group-id",
    "cce.cloud.com/cce-nodepool",
    "tke.cloud.tencent.com/nodepool-id",
    "cloud.tencent.com/auto-scaling-group-id",
    "compute.coreweave.com/node-pool",
    "magnum.openstack.org/nodegroup",
    "rke.cattle.io/rke-machine-pool-name",
    "k8s.scaleway.com/pool-name",
    "k8s.scaleway.com/pool",
    "lke.linode.com/pool-id",
    "node.exoscale.net/nodepool-id",
    "vke.vultr.com/node-pool",
    "kubernetes.civo.com/civo-node-pool",
    "kops.k8s.io/instancegroup",
    "agentpool",
    "nodepool",
)
"""Labels that name a node's pool on the clouds and distributions we know, in the order in which we try them."""

ORACLE_POOL = "oci.oraclecloud.com/node-pool-id"
"""The annotation with which OKE names a node's pool (autoscaler, cloudprovider/oci/common/oci_ref.go)."""

NO_POOL = ""
"""The pool of a node without a known label."""


def pool_of(node: Node, labels: Iterable[str] = KNOWN_POOL_LABELS) -> str:
    """Return the node's pool: the value of the first of *labels* that it carries, else what its annotations name.

    Oracle annotates a node with the id of its pool, Cluster API with its MachinePool or MachineSet, OpenShift with its
    Machine. The generated last part of the latter two names is cut off, so that the nodes of one MachineDeployment or
    MachineSet share a pool. Else the pool is :data:`NO_POOL`.
    """
    for label in labels:
        value = node.labels.get(label)
        if value:
            return value
    annotations = node.annotations
    if oracle := annotations.get(ORACLE_POOL):
        return oracle
    if annotations.get("cluster.x-k8s.io/owner-kind") == "MachinePool":
        return annotations.get("cluster.x-k8s.io/owner-name", NO_POOL)
    if annotations.get("cluster.x-k8s.io/owner-kind") == "MachineSet":
        return _without_generated_part(annotations.get("cluster.x-k8s.io/owner-name", NO_POOL))
    machine = annotations.get("machine.openshift.io/machine", "")
    return _without_generated_part(machine.rpartition("/")[2])


def _without_generated_part(name: str) -> str:
    return name.rpartition("-")[0] or name


def shown(pool: str) -> str:
    """Return a pool's name for people."""
    return pool if pool != NO_POOL else "(none)"
