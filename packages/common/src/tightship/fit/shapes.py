"""The shapes of the clouds' machine types, and what the kubelet of each cloud keeps of them."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from importlib import resources

import msgspec

from tightship.objects.resources import POD_COUNT

TYPES = "instance_types.json"
"""The facts, beside this module; packages/common/tooling/instance_types.py makes them and names their sources."""

MIB = 2**20
GIB = 2**30

_SHARED = re.compile(
    r"t\d[a-z]{0,2}\.|[a-z0-9]{2,8}-flex\.|e2-(micro|small|medium)$|f1-|g1-|Standard_[AB]\d|"
    r"gr?6f\.|g4-standard-(6|12|24)$|Standard_NV((4|8|16)as_v4|(6|12|18)ads_A10|\d+\w+_V710)|"
    r"(inf\d|trn\d\w*|vt\d|f\d)\.|Standard_NP\d"
)
"""Machines that share their CPUs or hold them back (T and -flex of AWS, A and B of Azure), that have a part of a GPU,
or that have accelerators other than GPUs."""


class Shape(msgspec.Struct, frozen=True):
    """*cpu* in vCPUs, *memory* in MiB; *pods* are what network interfaces allow, 0 if they don't limit."""

    cpu: int
    memory: int
    pods: int = 0
    gpus: int = 0
    gpu: str = ""
    arch: str = "amd64"


class Cloud(msgspec.Struct, frozen=True):
    """The *types* of one *cloud*, as of *date*."""

    cloud: str
    source: str
    date: str
    types: Mapping[str, Shape]


_OLD = re.compile(r"(a1|c[13]|cc2|cr1|g2|hs1|i2|m[123]|r3|t1)\.")
"""AWS's previous generations (aws.amazon.com/ec2/previous-generation) of which there is little left, or no Nitro."""

_LOCAL_DISKS = re.compile(
    r"(i|im|is)\d|(d[23]|h1|x1|x1e|g[456]|gr6|p[45])[a-z]{0,4}\.|[a-z]{1,4}\d[a-z]{0,4}d[a-z]{0,4}\."
)
"""Types of AWS with local disks: by the letter d or the family. On Google Cloud the ending says so."""


def local_disks(kind: str) -> bool:
    """Whether *kind* has local disks, of which pods' ephemeral storage may be made."""
    return kind.endswith("-lssd") or _LOCAL_DISKS.match(kind) is not None


@functools.cache
def clouds() -> tuple[Cloud, ...]:
    """Return the shipped facts."""
    raw = (resources.files(__package__) / TYPES).read_bytes()
    return msgspec.json.decode(raw, type=tuple[Cloud, ...])


def cloud_of(kind: str) -> Cloud | None:
    """Return the cloud that has the machine type *kind*."""
    return next((each for each in clouds() if kind in each.types), None)


def shape_of(kind: str) -> Shape | None:
    """Return the shape of the machine type *kind*, if some cloud has it."""
    return next((each.types[kind] for each in clouds() if kind in each.types), None)


def shared(kind: str) -> bool:
    """Whether *kind* is not a present machine of whole CPUs and whole GPUs."""
    return _SHARED.match(kind) is not None or _OLD.match(kind) is not None


def family(kind: str) -> str:
    """Return the family of *kind*: ``m7i`` of AWS, ``n2`` of Google, ``Standard_Ds_v5`` of Azure."""
    if kind.startswith("Standard_"):
        return re.sub(r"(?<=[A-Z])\d+(-\d+)?", "", kind, count=1)
    return kind.partition("." if "." in kind else "-")[0]


def type_labels(cloud: str, kind: str, shape: Shape) -> dict[str, str]:
    """Return the labels that nodes of the type *kind* have by GKE, and by Karpenter elsewhere.

    Karpenter's are of karpenter-provider-aws, pkg/providers/instancetype/types.go (``instanceTypeScheme``), and
    karpenter-provider-azure, pkg/apis/v1beta1/labels.go. Those of networks, disks and processors are left out.
    """
    size = {"cpu": str(shape.cpu), "memory": str(shape.memory)}
    if cloud == "AWS":
        if found := re.match(r"(([a-z]+)(?:-\d+tb)?(\d+).*)\.(.+)", kind):
            size |= zip(("family", "category", "generation", "size"), found.groups(), strict=True)
        return {f"karpenter.k8s.aws/instance-{key}": value for key, value in size.items()}
    if cloud == "Azure":
        return {f"karpenter.azure.com/sku-{key}": value for key, value in (size | {"name": kind}).items()}
    gpu = {"cloud.google.com/gke-accelerator": shape.gpu} if shape.gpus else {}
    return {"cloud.google.com/machine-family": family(kind), **gpu}


def allocatable(cloud: str, shape: Shape, pods: int, *, karpenter: bool = False) -> dict[str, int]:
    """Return what a machine for so many *pods*, by Karpenter or not, offers to them: milli-CPU, bytes, pods, GPUs.

    * GKE: https://cloud.google.com/kubernetes-engine/docs/concepts/plan-node-sizes; the kernel's part as Cluster
      Autoscaler estimates it (cloudprovider/gce/gce_reserved.go, ``CalculateKernelReserved`` on COS).
    * AKS: https://learn.microsoft.com/azure/aks/node-resource-reservations, the formula from 1.29 on: 20 MiB for each
      pod and 50 MiB, or a quarter of the memory if that is less. Karpenter still keeps what AKS kept before
      (karpenter-provider-azure, ``KubeReservedResources`` and ``DefaultMemoryAvailable``). The kernel's part is what
      nodes of 4 and 16 GiB lack (Azure/AKS issues 3525 and 1216).
    * EKS: https://github.com/awslabs/amazon-eks-ami, nodeadm's kubelet defaults: 255 MiB, and 11 MiB for each pod that
      network interfaces allow, whatever the kubelet allows; 7.5 % of memory that the hypervisor takes
      (karpenter-provider-aws, ``VM_MEMORY_OVERHEAD_PERCENT`` and ``kubeReservedResources``).
    """
    whole, milli = shape.memory * MIB, shape.cpu * 1000
    rates = ((1000, 0.06), (2000, 0.01), (4000, 0.005), (None, 0.0025))
    if cloud == "AWS":
        kept = -(-whole * 75 // 1000) + (64 * MIB if shape.arch == "arm64" else 0)
        kept += (11 * (shape.pods or 110) + 255) * MIB
    elif cloud == "Azure":
        rates = ((1000, 0.06), (2000, 0.04), (4000, 0.02), (None, 0.01))
        kept = whole // 64 + 112 * MIB
        kept += _kept(whole) + 650 * MIB if karpenter else min((20 * pods + 50) * MIB, whole // 4)
    else:
        kept = whole // 64 + 16 * MIB + (64 * MIB if whole > 3 * GIB else 0)
        kept += (8 * MIB if whole <= 8 * GIB else 0) + min(whole * 175 // 100_000, 248 * MIB)
        kept += _kept(whole - kept)
    memory = max(0, whole - kept - 100 * MIB)  # the kubelets of all three evict pods below 100 MiB
    found = {"cpu": milli - _bracketed(milli, rates), "memory": memory, POD_COUNT: pods}
    if shape.gpus:
        found["amd.com/gpu" if shape.gpu == "amd" else "nvidia.com/gpu"] = shape.gpus
    return found


def _kept(memory: int) -> int:
    """Return 25 % of the first 4 GiB, 20 % of the next 4, 10 % of the next 8, 6 % up to 128 GiB, 2 % of the rest."""
    brackets = ((4 * GIB, 0.25), (8 * GIB, 0.2), (16 * GIB, 0.1), (128 * GIB, 0.06), (None, 0.02))
    return 255 * MIB if memory < GIB else _bracketed(memory, brackets)


def _bracketed(amount: int, brackets: Sequence[tuple[int | None, float]]) -> int:
    kept, lower = 0.0, 0
    for upper, rate in brackets:
        top = amount if upper is None else min(amount, upper)
        kept += max(0, top - lower) * rate
        lower = top
    return int(kept)
