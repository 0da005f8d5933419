"""Clusters from public reports, and the right answer to each: one file in ``nodes/`` and one row of ``CASES``.

Both controllers of nodes share every rule that the rows name, so each row is asked of both.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from tightship_testkit.commands import Outcome

NODES = Path(__file__).parent / "nodes"
AT = "2026-11-01T00:00:00Z"


class Case(Struct, frozen=True):
    """A file of ``nodes/``, and what the answer has to be; *source* is the report that it was made from.

    *goes* are the nodes that node-compactor removes, ``None`` if the case doesn't say. *stays* are nodes that neither
    controller removes, each with a reason that it must be given ("" for any). *says* and *never* are texts that the
    printed plan must and must not hold, whatever the line ends. *flags* replace those that make the plan repeatable.
    """

    file: str
    source: str
    goes: frozenset[str] | None = None
    stays: dict[str, str] = {}
    says: tuple[str, ...] = ()
    never: tuple[str, ...] = ()
    flags: tuple[str, ...] = ("--now", AT, "--advice-time", "0s")


def _nodes(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _stay(text: str, reason: str = "") -> dict[str, str]:
    return dict.fromkeys(text.split(), reason)


# One section for each kind of report; a row is one line where it fits.
CASES: tuple[Case, ...] = (
    # What holds a cluster up.
    Case(
        "02a-rke2-etcd-only.json",
        "rancher PR 36411",
        goes=_nodes(""),
        stays=_stay("etcd-1 etcd-2 etcd-3", "ControlPlane"),
    ),
    Case("02d-microk8s.json", "microk8s#3735", stays=_stay("mk8s-1 mk8s-2 mk8s-3", "ControlPlane")),
    Case(
        "02f-static-pods-without-labels.json",
        "kubeadm, OpenShift and HyperShift, unlabelled",
        goes=_nodes("node-4 node-5"),
        stays=_stay("node-1 node-2 node-3", "ControlPlane"),
    ),
    # What is no machine.
    Case(
        "03a-virtual-kubelet-busy.json",
        "autoscaler#3151",
        goes=_nodes("aks-pool1-1-vmss000001"),
        stays=_stay("virtual-node-aci-linux", "VirtualNode"),
        says=("Nodes 2 → 1", "3 of 8 cores requested"),
    ),
    Case(
        "03b-virtual-kubelet-empty.json",
        "autoscaler#3151",
        goes=_nodes("aks-pool1-1-vmss000001"),
        stays=_stay("virtual-node-aci-linux", "VirtualNode"),
        says=("Nodes 2 → 1", "3 of 8 cores requested"),
    ),
    Case(
        "03c-virtual-kubelet-asked-for.json",
        "virtual-kubelet, examples/nginx-pod.yaml",
        goes=_nodes("node-1"),
        stays=_stay("virtual-node-aci-linux", "VirtualNode"),
        says=("4.8 of 8 cores requested (60%) → 3.8 of 4",),
    ),
    Case(
        "40-gke-autopilot.json",
        "GKE, Autopilot's pricing",
        goes=_nodes(""),
        stays=_stay(" ".join(f"gk3-c-pool-1-1a2b3c4d-{each}" for each in ("aaaa", "bbbb", "cccc")), "VirtualNode"),
        says=("there is no machine on which money could be saved",),
        never=("$", "Advice", "OtherScheduler"),
        flags=("--now", AT),
    ),
    # What somebody else takes or brings.
    Case(
        "07a-others-have-the-node.json",
        "what each of these tools writes",
        goes=_nodes("free-1"),
        stays=_stay("nth kured mco gke cilium", "NodeLifecycle"),
    ),
    # Room for the pods of nodes that others empty.
    Case(
        "74-kured-rebooting.json",
        "AKS#1773",
        goes=_nodes(""),
        stays=_stay("n2 n3", "OtherDrainNeedsNode"),
    ),
    Case(
        "90-blue-green.json",
        "upgrades of GKE, AKS, Cluster API; a person",
        goes=_nodes(""),
        stays=_stay("green0 green1 green2 green3 green4", "OtherDrainNeedsNode"),
    ),
    # What a drain would give up for.
    Case("14a-stuck-terminating-finalizer.json", "autoscaler#3407", stays=_stay("n2", "StuckFinalizer")),
    Case("14c-stuck-and-a-movable-pod.json", "autoscaler#3407", stays=_stay("n2", "GracePeriodTooLong")),
    Case(
        "14c-stuck-and-a-movable-pod.json",
        "autoscaler#3407",
        stays=_stay("n2", "StuckFinalizer"),
        flags=("--now", "2026-11-27T16:00:00Z", "--advice-time", "0s"),
    ),
    # Owners and their controllers.
    Case(
        "10a-kruise-statefulset.json", "autoscaler#8011", goes=_nodes("n1"), never=("ControllerNotFound", "delete pod")
    ),
    Case("11a-daemonset-pod-annotation.json", "autoscaler#2453", goes=_nodes("n1"), never=("CustomController",)),
    # Karpenter.
    Case(
        "80c-karpenter-daemonset-do-not-disrupt.json",
        "Karpenter, statenode.go",
        goes=_nodes(""),
        stays=_stay("n1", "KarpenterConsolidationOff"),
    ),
    # Volumes.
    Case(
        "04a-csi-limit-ephemeral-at-destination.json",
        "karpenter-provider-aws#1888",
        goes=_nodes(""),
        stays=_stay("n1", "NoPlace"),
    ),
    Case("04b-csi-limit-ephemeral-moves.json", "karpenter#260", goes=_nodes(""), stays=_stay("n1", "NoPlace")),
    Case("04d-csi-limit-pending-unbound.json", "karpenter#260", goes=_nodes(""), stays=_stay("n1", "NoPlace")),
    Case("12a-rwo-shared-no-common-place.json", "longhorn#2185", goes=_nodes(""), stays=_stay("n1")),
    Case("16a-intree-aws-ebs.json", "aws-ebs-csi-driver#597", goes=_nodes("n1"), never=("UnknownVolume",)),
    Case("16c-intree-azure-disk.json", "aws-ebs-csi-driver#597", goes=_nodes("n1"), never=("UnknownVolume",)),
    # Operating systems and schedulers.
    Case(
        "17-gke-optimize-utilization.json",
        "agones#484",
        goes=_nodes("gke-c-default-pool-1a2b3c4d-aaaa gke-c-default-pool-1a2b3c4d-bbbb"),
        never=("OtherScheduler",),
    ),
    Case("18-windows-os-field.json", "website#38843", goes=_nodes(""), stays=_stay("win-1", "NoPlace")),
    # Advice.
    Case(
        "05b-aks4201-ignore.json",
        "AKS#4201",
        goes=_nodes(""),
        says=("+1 node NoPlace: topology spread of", '"nodeTaintsPolicy":"Honor"'),
        never=("no known change frees a node",),
        flags=("--now", AT),
    ),
    Case(
        "06b-ca6984-coredns-five.json",
        "autoscaler#6984",
        goes=_nodes(""),
        says=("NoPlace: topology spread of", '"nodeTaintsPolicy":"Honor"'),
        flags=("--now", AT),
    ),
    Case(
        "70a-rook-osd-pdb.json",
        "rook's budgets of OSDs",
        goes=_nodes(""),
        stays=_stay("n1", "PdbNeverAllows"),
        says=("CephCluster.ceph.rook.io/rook-ceph",),
        never=("patch pdb",),
        flags=("--now", AT),
    ),
    Case(
        "70c-pdb-of-helm.json",
        "a Helm release under Argo CD",
        goes=_nodes(""),
        says=("patch pdb web", "the PDB belongs to Helm release web and Argo CD application web: change it there"),
        flags=("--now", AT),
    ),
    # Time, files and words.
    Case(
        "31-cluster-info-dump.txt",
        "kubernetes#87868",
        goes=_nodes("ip-10-0-20-143.ec2.internal"),
        says=("all pods are in kube-system: if there are more namespaces", "PodDisruptionBudgets are not in the file"),
    ),
    Case(
        "30b-one-kubelet-a-year-ahead.json",
        "kubernetes#7866",
        stays={"n1": "KubeSystemPod", "n2": "PodDoNotDisrupt"},
        says=("of node n3 (365d ahead): most of the file is of 2026-10-31T23:59:00Z",),
        flags=("--advice-time", "0s"),
    ),
)


def wrong(case: Case, run: Callable[..., Outcome], *settings: str, whole: bool = True) -> list[str]:
    """Return what is wrong with the answers to *case* of a command that is *run* with flags for its *settings*.

    *whole* is false for a controller that is asked only which nodes may not go.
    """
    found: list[str] = []
    at = ("plan", "-f", NODES / case.file, *case.flags, *settings)
    outcome = run(*at, "-o", "json")
    if outcome.code:
        return [f"exit code {outcome.code}: {outcome.err}"]
    document = json.loads(outcome.out)
    decisions = {each["name"]: each for each in document["nodes"]}
    gone = {name for name, each in decisions.items() if each["decision"] == "remove"}
    if whole and case.goes is not None and gone != case.goes:
        found.append(f"removes {sorted(gone)}, not {sorted(case.goes)}")
    for name, reason in case.stays.items():
        reasons = decisions[name]["reasons"]
        if name in gone:
            found.append(f"removes {name}")
        elif reason and reason not in reasons:
            found.append(f"{name} stays for {reasons}, not {reason}")
    if whole and (case.says or case.never):
        printed = " ".join(run(*at).out.split())
        found += [f"does not say {each!r}" for each in case.says if each not in printed]
        found += [f"says {each!r}" for each in case.never if each in printed]
    return found
