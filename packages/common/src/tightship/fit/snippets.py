"""An alternative as configuration: pools as Karpenter, GKE, eksctl, AKS and Terraform describe them.

* NodePool: https://karpenter.sh/docs/concepts/nodepools/
* ComputeClass: https://cloud.google.com/kubernetes-engine/docs/reference/crds/computeclass
* ClusterConfig: https://docs.aws.amazon.com/eks/latest/eksctl/schema.html
* ``az aks nodepool add``: https://learn.microsoft.com/cli/azure/aks/nodepool
* Terraform: ``aws_eks_node_group`` (hashicorp/terraform-provider-aws website/docs/r), ``google_container_node_pool``
  (hashicorp/terraform-provider-google), ``azurerm_kubernetes_cluster_node_pool`` (hashicorp/terraform-provider-azurerm)
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from tightship.cluster.pools import KNOWN_POOL_LABELS, shown
from tightship.fit.machines import ARCH, OS
from tightship.fit.model import Alternative, Chosen, FitError, Fitted, PoolLook
from tightship.fit.shapes import shape_of
from tightship.objects.money import INSTANCE_TYPE_LABELS
from tightship.objects.quoting import quoted
from tightship.objects.volume import ZONE

Json = dict[str, Any]

_OWN = (
    "kubernetes.io", "k8s.io", "k8s.aws", "karpenter.sh", "cloud.google.com", "eksctl.io", "amazonaws.com", "azure.com",
    "tightship.dev",
)  # fmt: skip
"""Domains of labels and taints that clouds, kubelets and controllers set, most of which configuration can't have."""

_NAMES = {"aks": (r"[^a-z0-9]", "", 12), "terraform": (r"[^a-z0-9-]", "-", 40)}
"""What a name can't hold, what stands for it, and how long a name may be."""


class _Part(Struct, frozen=True):
    """Nodes of one pool that are configured together: of *machines*, all spot or none."""

    name: str
    look: PoolLook
    machines: Sequence[Chosen]
    labels: Mapping[str, str]
    taints: Sequence[Mapping[str, str]]

    @property
    def zones(self) -> list[str]:
        return sorted({zone for each in self.machines for zone in each.zones if zone})

    @property
    def count(self) -> int:
        return sum(each.count for each in self.machines)


def best_of(fitted: Fitted) -> Alternative:
    """Return the alternative of the last demand that leaves the fewest pods without a place, for the least money."""
    found = fitted.answers[-1].alternatives
    return min(found, key=lambda each: (len(each.unplaced), each.micros_per_hour))


def snippets(form: str, fitted: Fitted, found: Alternative) -> Iterator[str | Json]:
    """Yield the pools of *found* in the *form*, one of :data:`FORMS`: text, or plain data for YAML.

    Raises :class:`FitError` for a pool of a cloud that the form doesn't describe.
    """
    clouds, by_type, made = FORMS[form]
    looks = {each.name: each for each in fitted.pools}
    for name in dict.fromkeys(each.pool for each in found.spread or found.machines):
        if looks[name].cloud not in clouds:
            fitting = ", ".join(each for each, (others, *_) in FORMS.items() if looks[name].cloud in others)
            where = looks[name].cloud or "no cloud that we know"
            raise FitError(
                f"--as {form} describes pools of {' and '.join(clouds)}, pool {quoted(shown(name))} is of {where}; "
                + (f"allowed for it is {fitting}" if fitting else "--pool names others")
            )
    yield from made(list(_parts(form, found, looks, by_type)))


def _parts(form: str, found: Alternative, looks: Mapping[str, PoolLook], by_type: bool) -> Iterator[_Part]:
    parts: dict[tuple[str, bool, str], list[Chosen]] = {}
    for each in found.spread or found.machines:
        parts.setdefault((each.pool, each.spot, each.type if by_type else ""), []).append(each)
    seen: set[str] = set()
    for (pool, spot, kind), machines in parts.items():
        look = looks[pool]
        several = kind and sum((pool, spot) == key[:2] for key in parts) > 1
        words = [pool or "pool", *(["spot"] if spot else []), *([kind.removeprefix("Standard_")] if several else [])]
        labels = {key: value for key, value in look.labels.items() if _is_free(form, key, "node-restriction.")}
        if form in ("eksctl", "terraform") and look.cloud == "AWS":  # EKS wants a value (CreateNodegroup)
            labels = {key: value for key, value in labels.items() if value}
        taints = [_taint(each) for each in look.taints if _is_free(form, each, "node-role.")]
        named_as = "aks" if look.cloud == "Azure" and by_type else form
        yield _Part(_name(named_as, words, seen), look, machines, labels, taints)


def _is_free(form: str, key: str, by_karpenter: str) -> bool:
    """Whether *form* can have a label or taint of *key*: Karpenter sets some that no kubelet may set itself."""
    domain, slash, _ = key.partition("/")
    if not slash:
        return key not in ("storageprofile", "storagetier", *KNOWN_POOL_LABELS)
    own = any(domain == each or domain.endswith(f".{each}") for each in _OWN)
    return key not in KNOWN_POOL_LABELS and (not own or (form == "nodepool" and domain.startswith(by_karpenter)))


def _name(form: str, words: Sequence[str], seen: set[str]) -> str:
    """Return a name that no pool in *seen* has."""
    strange, instead, longest = _NAMES.get(form, (r"[^a-z0-9-]", "-", 60))
    name = re.sub(strange, instead, "-".join(words).lower())
    name = (name if name[:1].isalpha() else f"n{name}").strip("-_")
    tried, number = name[:longest], 1
    while tried in seen:
        number += 1
        tried = f"{name[: longest - len(str(number))]}{number}"
    seen.add(tried)
    return tried


def _taint(text: str) -> dict[str, str]:
    head, _, effect = text.rpartition(":")
    key, equals, value = head.partition("=")
    return {"key": key, **({"value": value} if equals else {}), "effect": effect}


def _filled(**fields: object) -> Json:
    """Return the *fields* that hold something: numbers, booleans, and what isn't empty."""
    return {name: each for name, each in fields.items() if each not in ("", [], {})}


def _node_pools(parts: Sequence[_Part]) -> Iterator[Json]:
    for part in parts:
        aws = part.look.cloud == "AWS"
        group, kind = ("karpenter.k8s.aws", "EC2NodeClass") if aws else ("karpenter.azure.com", "AKSNodeClass")
        wanted = {
            INSTANCE_TYPE_LABELS[0]: [each.type for each in part.machines],
            ARCH: [part.look.arch],
            OS: ["linux"],
            "karpenter.sh/capacity-type": ["spot" if part.machines[0].spot else "on-demand"],
            ZONE: part.zones,
        }
        spec = _filled(
            nodeClassRef={"group": group, "kind": kind, "name": "default"},
            taints=part.taints,
            requirements=[
                {"key": key, "operator": "In", "values": list(dict.fromkeys(values))}
                for key, values in wanted.items()
                if values
            ],
        )
        shapes = [(each.count, shape_of(each.type)) for each in part.machines]
        known = [count * shape.cpu for count, shape in shapes if shape is not None]
        cpu = str(sum(known)) if len(known) == len(shapes) else ""
        yield {
            "apiVersion": "karpenter.sh/v1",
            "kind": "NodePool",
            "metadata": {"name": part.name},
            "spec": {
                "template": _filled(metadata=_filled(labels=part.labels), spec=spec),
                "limits": _filled(cpu=cpu, nodes=str(part.count)),
            },
        }


def _compute_classes(parts: Sequence[_Part]) -> Iterator[str | Json]:
    for part in parts:
        priorities = []
        for each in part.machines:
            shape = shape_of(each.type)
            priorities.append(
                _filled(
                    machineType=each.type,
                    spot=each.spot,
                    gpu={"type": shape.gpu, "count": shape.gpus} if shape is not None and shape.gpus else {},
                    location=_filled(zones=sorted(zone for zone in each.zones if zone)),
                )
            )
        taints = [each for each in part.taints if not each["key"].startswith("nvidia.com/")]  # GKE sets these itself
        yield {
            "apiVersion": "cloud.google.com/v1",
            "kind": "ComputeClass",
            "metadata": {"name": part.name},
            "spec": _filled(
                description="Nodes: " + ", ".join(f"{each.count} x {each.type}" for each in part.machines),
                priorities=priorities,
                nodePoolAutoCreation={"enabled": True},
                nodePoolConfig=_filled(nodeLabels=part.labels, taints=taints),
                whenUnsatisfiable="DoNotScaleUp",
            ),
        }


def _eksctl(parts: Sequence[_Part]) -> Iterator[Json]:
    groups = [
        _filled(
            name=part.name,
            instanceTypes=[each.type for each in part.machines],
            spot=part.machines[0].spot,
            availabilityZones=part.zones,
            minSize=0,
            desiredCapacity=part.count,
            maxSize=part.count,
            labels=part.labels,
            taints=part.taints,
        )
        for part in parts
    ]
    region = next((zone.rstrip("abcdefghijklmnopqrstuvwxyz") for part in parts for zone in part.zones), "REGION")
    head = {"apiVersion": "eksctl.io/v1alpha5", "kind": "ClusterConfig"}
    yield {**head, "metadata": {"name": "CLUSTER", "region": region}, "managedNodeGroups": groups}


def _aks(parts: Sequence[_Part]) -> Iterator[str]:
    for part in parts:
        (machine,) = part.machines
        words = ["az aks nodepool add", '--resource-group "$RESOURCE_GROUP"', '--cluster-name "$CLUSTER"']
        words += [f"--name {part.name}", f"--node-vm-size {shlex.quote(machine.type)}", f"--node-count {part.count}"]
        words += ["--enable-cluster-autoscaler --min-count 0", f"--max-count {part.count}"]
        zones = [zone.rpartition("-")[2] for zone in part.zones if "-" in zone]
        words += [f"--zones {' '.join(zones)}"] if zones else []
        labels = [shlex.quote(f"{key}={value}") for key, value in part.labels.items()]
        words += [f"--labels {' '.join(labels)}"] if labels else []
        taints = [f"{each['key']}={each['value']}:{each['effect']}" for each in part.taints if each.get("value")]
        words += [f"--node-taints {shlex.quote(','.join(taints))}"] if taints else []
        # validate_nodepool_taints of azure-cli wants a value.
        bare = [f"{each['key']}:{each['effect']}" for each in part.taints if not each.get("value")]
        told = f"# without {', '.join(bare)}: az takes no taint without a value\n" if bare else ""
        words += ["--priority Spot --eviction-policy Delete --spot-max-price -1"] if machine.spot else []
        yield told + " \\\n  ".join(words) + f"  # {part.look.arch}\n"


class _Variable(str):
    """An expression of Terraform."""

    __slots__ = ()


def _terraform(parts: Sequence[_Part]) -> Iterator[str]:
    resources = {"AWS": _eks_resource, "Azure": _aks_resource, "Google Cloud": _gke_resource}
    for part in parts:
        (machine,) = part.machines
        kind, fields = resources[part.look.cloud](part, machine)
        yield f'resource "{kind}" "{part.name}" {{\n{_hcl(fields)}}}\n'


def _hcl(fields: Mapping[str, object], margin: str = "  ") -> str:
    """Return HCL: lists of mappings are blocks, what is empty is left out."""
    found, blocks = "", ""
    for name, value in fields.items():
        if value in ([], {}):
            continue
        if isinstance(value, list) and isinstance(value[0], dict):
            blocks += "".join(f"\n{margin}{name} {{\n{_hcl(each, margin + '  ')}{margin}}}\n" for each in value)
        else:
            found += f"{margin}{name} = {_literal(value)}\n"
    return found + blocks


def _literal(value: object) -> str:
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{_literal(key)} = {_literal(each)}' for key, each in value.items())} }}"
    if isinstance(value, list):
        return f"[{', '.join(map(_literal, value))}]"
    if isinstance(value, _Variable):
        return str(value)
    return re.sub(r"([$%])\{", r"\1\1{", json.dumps(value))  # HCL begins expressions with ${ and %{


def _taint_blocks(part: _Part) -> list[Json]:
    effects = {"NoSchedule": "NO_SCHEDULE", "PreferNoSchedule": "PREFER_NO_SCHEDULE", "NoExecute": "NO_EXECUTE"}
    return [{**each, "effect": effects.get(each["effect"], each["effect"])} for each in part.taints]


def _eks_resource(part: _Part, machine: Chosen) -> tuple[str, Json]:
    shape = shape_of(machine.type)
    gpus = "NVIDIA" if shape is not None and shape.gpu and shape.gpu != "amd" else "STANDARD"
    return "aws_eks_node_group", {
        "cluster_name": _Variable("var.cluster_name"),
        "node_group_name": part.name,
        "node_role_arn": _Variable("var.node_role_arn"),
        "subnet_ids": _Variable(f"var.subnet_ids # in {', '.join(part.zones) or 'any zone'}"),
        "instance_types": [machine.type],
        "ami_type": f"AL2023_{'ARM_64' if part.look.arch == 'arm64' else 'x86_64'}_{gpus}",
        "capacity_type": "SPOT" if machine.spot else "ON_DEMAND",
        "labels": dict(part.labels),
        "scaling_config": [{"min_size": 0, "desired_size": part.count, "max_size": part.count}],
        "taint": _taint_blocks(part),
    }


def _gke_resource(part: _Part, machine: Chosen) -> tuple[str, Json]:
    return "google_container_node_pool", {
        "name": part.name,
        "cluster": _Variable("var.cluster_id"),
        "node_locations": part.zones,
        "autoscaling": [{"total_min_node_count": 0, "total_max_node_count": part.count, "location_policy": "ANY"}],
        "node_config": [
            {
                "machine_type": machine.type,
                "spot": machine.spot,
                "labels": dict(part.labels),
                "taint": [{"value": "", **each} for each in _taint_blocks(part)],
            }
        ],
    }


def _aks_resource(part: _Part, machine: Chosen) -> tuple[str, Json]:
    spot = {"priority": "Spot", "eviction_policy": "Delete", "spot_max_price": -1} if machine.spot else {}
    return "azurerm_kubernetes_cluster_node_pool", {
        "name": part.name,
        "kubernetes_cluster_id": _Variable("var.cluster_id"),
        "vm_size": machine.type,
        "auto_scaling_enabled": True,
        "min_count": 0,
        "max_count": part.count,
        "zones": [zone.rpartition("-")[2] for zone in part.zones if "-" in zone],
        "node_labels": dict(part.labels),
        "node_taints": [f"{each['key']}={each.get('value', '')}:{each['effect']}" for each in part.taints],
        **spot,
    }


FORMS: Mapping[str, tuple[tuple[str, ...], bool, Callable[[Sequence[_Part]], Iterator[str | Json]]]] = {
    "nodepool": (("AWS", "Azure"), False, _node_pools),
    "computeclass": (("Google Cloud",), False, _compute_classes),
    "eksctl": (("AWS",), True, _eksctl),
    "aks": (("Azure",), True, _aks),
    "terraform": (("AWS", "Azure", "Google Cloud"), True, _terraform),
}
"""By the word of a form: the clouds whose pools it describes, whether each type is a pool of its own, and the form."""
