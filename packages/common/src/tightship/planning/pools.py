"""The pool of a node."""

from __future__ import annotations

from collections.abc import Iterable

from tightship.core.objects import Node

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
    "k8s.scaleway.com/pool-name",
    "lke.linode.com/pool-id",
    "node.exoscale.net/nodepool-id",
    "vke.vultr.com/node-pool",
    "kubernetes.civo.com/civo-node-pool",
    "kops.k8s.io/instancegroup",
    "agentpool",
    "nodepool",
)
"""Labels that name a node's pool on the clouds and distributions we know, in the order in which we try them."""

NO_POOL = ""
"""The pool of a node without a known label."""


def pool_of(node: Node, labels: Iterable[str] = KNOWN_POOL_LABELS) -> str:
    """Return the node's pool: the value of the first of *labels* that it carries, else the name of its machine object.

    Cluster API annotates a node with its MachineSet, OpenShift with its Machine. The generated last part of these names
    is cut off, so that the nodes of one MachineDeployment or MachineSet share a pool. Else the pool is :data:`NO_POOL`.
    """
    for label in labels:
        value = node.labels.get(label)
        if value:
            return value
    annotations = node.annotations
    if annotations.get("cluster.x-k8s.io/owner-kind") == "MachineSet":
        return _without_generated_part(annotations.get("cluster.x-k8s.io/owner-name", NO_POOL))
    machine = annotations.get("machine.openshift.io/machine", "")
    return _without_generated_part(machine.rpartition("/")[2])


def _without_generated_part(name: str) -> str:
    return name.rpartition("-")[0] or name


def shown(pool: str) -> str:
    """Return a pool's name for people."""
    return pool if pool != NO_POOL else "(none)"
