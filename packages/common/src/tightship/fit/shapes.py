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

_SHARED = re.compile(r"t\d[a-z]{0,2}\.|[a-z0-9]{2,8}-flex\.|Standard_(A|B)\d|e2-(micro|small|medium)$|f1-|g1-")
"""Machines that share their CPUs or that hold them back (T and -flex of AWS, B of Azure), and bare metal: nobody gets
these unless they have them or name them."""


class Shape(msgspec.Struct, frozen=True):
    """*cpu* in vCPUs, *memory* in MiB, local *disk* in GB; *pods* are what network interfaces allow, 0 if they don't
    limit.
    """

    cpu: int
    memory: int
    pods: int = 0
    gpus: int = 0
    gpu: str = ""
    disk: int = 0
    arch: str = "amd64"


class Cloud(msgspec.Struct, frozen=True):
    """The *types* of one *cloud*, as of *date*."""

    cloud: str
    source: str
    date: str
    types: Mapping[str, Shape]


@functools.cache
def clouds() -> tuple[Cloud, ...]:
    """Return the shipped facts."""
    raw = (resources.files(__package__) / TYPES).read_bytes()
    return msgspec.json.decode(raw, type=tuple[Cloud, ...])


def cloud_of(kind: str) -> Cloud | None:
    """Return the cloud that has the machine type *kind*."""
    return next((each for each in clouds() if kind in each.types), None)


def shared(kind: str) -> bool:
    """Whether *kind* is a type that is for nobody who doesn't ask for it."""
    return _SHARED.match(kind) is not None or ".metal" in kind or "-metal" in kind


def family(kind: str) -> str:
    """Return the family of *kind*: ``m7i`` of AWS, ``n2`` of Google, ``Standard_Ds_v5`` of Azure."""
    if kind.startswith("Standard_"):
        return re.sub(r"(?<=[A-Z])\d+(-\d+)?", "", kind, count=1)
    return kind.partition("." if "." in kind else "-")[0]


def allocatable(cloud: str, shape: Shape) -> dict[str, int]:
    """Return what a machine offers to pods: milli-CPU, bytes, pods (0 where the cloud sets no limit), GPUs.

    * GKE: https://cloud.google.com/kubernetes-engine/docs/concepts/plan-node-sizes; the kernel's part as Cluster
      Autoscaler estimates it (cloudprovider/gce/gce_reserved.go, ``CalculateKernelReserved`` on COS).
    * AKS: https://learn.microsoft.com/azure/aks/node-resource-reservations, the formula before 1.29, which keeps more
      than the later one on large machines; eviction below 750 MiB (karpenter-provider-azure, ``EvictionThreshold``).
    * EKS: https://github.com/awslabs/amazon-eks-ami, nodeadm's kubelet defaults: 11 MiB for each pod and 255 MiB;
      7.5 % of memory that the hypervisor takes (karpenter-provider-aws, ``VM_MEMORY_OVERHEAD_PERCENT``).
    """
    memory, milli = shape.memory * MIB, shape.cpu * 1000
    cpu = milli - _bracketed(milli, ((1000, 0.06), (2000, 0.01), (4000, 0.005), (None, 0.0025)))
    if cloud == "AWS":
        memory -= -(-memory * 75 // 1000) + (64 * MIB if shape.arch == "arm64" else 0)
        memory -= (11 * (shape.pods or 110) + 255 + 100) * MIB
    elif cloud == "Azure":
        cpu = milli - _bracketed(milli, ((1000, 0.06), (2000, 0.04), (4000, 0.02), (None, 0.01)))
        memory -= _kept(memory) + 750 * MIB
        memory -= shape.memory * MIB // 64
    else:
        physical = memory
        memory -= physical // 64 + 16 * MIB + (64 * MIB if physical > 3 * GIB else 0)
        memory -= (8 * MIB if physical <= 8 * GIB else 0) + min(physical * 175 // 100_000, 248 * MIB)
        memory -= _kept(memory) + 100 * MIB
    found = {"cpu": cpu, "memory": max(0, memory), POD_COUNT: shape.pods}
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
