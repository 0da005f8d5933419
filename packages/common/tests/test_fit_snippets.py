"""``tightship.fit.snippets``: each form parses and says which nodes, by its own names, and refuses other clouds."""

from __future__ import annotations

import re
import shlex
from itertools import pairwise
from typing import Any

import pytest
import yaml

from tightship.cli.output import text_of
from tightship.fit.model import Alternative, Answer, Chosen, FitError, Fitted, PoolLook, Present
from tightship.fit.snippets import FORMS, best_of, snippets

Json = dict[str, Any]
TYPES = {
    "AWS": ("m7g.xlarge", "c7g.2xlarge", "eu-west-1"),
    "Azure": ("Standard_D4s_v5", "Standard_E8s_v5", "westeurope-"),
    "Google Cloud": ("e2-standard-4", "g2-standard-8", "europe-west4-"),
}
LABELS = {
    "team": "web ${x}",
    "example.com/tier": "true",
    "kubernetes.io/arch": "amd64",
    "eks.amazonaws.com/nodegroup": "web",
    "agentpool": "web",
    "karpenter.sh/nodepool": "web",
    "beta.kubernetes.io/os": "linux",
    "empty": "",
    "node-restriction.kubernetes.io/web": "a",
}


def fitted(cloud: str, pool: str = "Web_pool.1", arch: str = "arm64") -> Fitted:
    small, large, zone = TYPES[cloud]
    zones = {f"{zone}{'1' if cloud == 'Azure' else 'a'}": 2, f"{zone}{'2' if cloud == 'Azure' else 'b'}": 1}
    machines = (
        Chosen(pool, small, False, 3, zones, 1_000, ""),
        Chosen(pool, large, False, 1, {next(iter(zones)): 1}, 2_000, ""),
        Chosen(pool, small, True, 2, {next(iter(zones)): 2}, 300, ""),
    )
    look = PoolLook(pool, cloud, arch, LABELS, TAINTED)
    found = Alternative("any", machines, 6, 5_600, 5_000, True, 0.9, 0.9, {})
    dear = Alternative("same-types", (), 0, 9_999, 5_000, True, 0.9, 0.9, {})
    answer = Answer("now", "what runs now", 9, 9, 9, (dear, found))
    return Fitted(Present(9, 0, 9_000, 0.1, 0.1, {}), "USD", (look,), (answer,), {})


def texts(form: str, cloud: str) -> list[str]:
    given = fitted(cloud)
    return [text_of(each) for each in snippets(form, given, best_of(given))]


def documents(form: str, cloud: str) -> list[Json]:
    return list(yaml.safe_load_all("---\n".join(texts(form, cloud))))


# What clouds put on nodes themselves, of spot capacity, another architecture and a compute class.
TAINTED = (
    "kubernetes.azure.com/scalesetpriority=spot:NoSchedule",
    "kubernetes.io/arch=arm64:NoSchedule",
    "cloud.google.com/compute-class=old:NoSchedule",
    "dedicated=web:NoSchedule",
    "slow:PreferNoSchedule",
    "node-role.kubernetes.io/web:NoSchedule",
)
TAINTS = [
    {"key": "dedicated", "value": "web", "effect": "NoSchedule"},
    {"key": "slow", "effect": "PreferNoSchedule"},
]
OWN = {"team": "web ${x}", "example.com/tier": "true"}


@pytest.mark.parametrize(("cloud", "kind"), [("AWS", "EC2NodeClass"), ("Azure", "AKSNodeClass")])
def test_a_node_pool_requires_types_architecture_capacity_and_zones(cloud: str, kind: str) -> None:
    lasting, spot = documents("nodepool", cloud)
    assert (lasting["apiVersion"], lasting["kind"]) == ("karpenter.sh/v1", "NodePool")
    assert [each["metadata"]["name"] for each in (lasting, spot)] == ["web-pool-1", "web-pool-1-spot"]
    template = lasting["spec"]["template"]
    assert template["metadata"]["labels"] == OWN | {"empty": "", "node-restriction.kubernetes.io/web": "a"}
    assert template["spec"]["taints"] == [*TAINTS, {"key": "node-role.kubernetes.io/web", "effect": "NoSchedule"}]
    assert template["spec"]["nodeClassRef"]["kind"] == kind
    wanted = {each["key"]: (each["operator"], each["values"]) for each in template["spec"]["requirements"]}
    assert wanted["node.kubernetes.io/instance-type"] == ("In", list(TYPES[cloud][:2]))
    assert wanted["kubernetes.io/arch"] == ("In", ["arm64"])
    assert wanted["karpenter.sh/capacity-type"] == ("In", ["on-demand"])
    assert len(wanted["topology.kubernetes.io/zone"][1]) == 2
    assert lasting["spec"]["limits"] == {"cpu": "20", "nodes": "4"}
    assert spot["spec"]["limits"] == {"cpu": "8", "nodes": "2"}


def test_a_compute_class_lists_machine_types() -> None:
    lasting, spot = documents("computeclass", "Google Cloud")
    assert (lasting["apiVersion"], lasting["kind"]) == ("cloud.google.com/v1", "ComputeClass")
    assert lasting["spec"]["nodePoolConfig"] == {"nodeLabels": OWN | {"empty": ""}, "taints": TAINTS}
    first, second = lasting["spec"]["priorities"]
    assert (first["machineType"], first["spot"]) == ("e2-standard-4", False)
    assert first["location"] == {"zones": ["europe-west4-a", "europe-west4-b"]}
    assert second["gpu"] == {"type": "nvidia-l4", "count": 1}
    assert [each["spot"] for each in spot["spec"]["priorities"]] == [True]


def test_eksctl_has_a_group_for_each_type() -> None:
    (config,) = documents("eksctl", "AWS")
    assert (config["apiVersion"], config["kind"]) == ("eksctl.io/v1alpha5", "ClusterConfig")
    assert config["metadata"]["region"] == "eu-west-1"
    groups = config["managedNodeGroups"]
    assert [(each["instanceTypes"], each["spot"], each["maxSize"]) for each in groups] == [
        (["m7g.xlarge"], False, 3),
        (["c7g.2xlarge"], False, 1),
        (["m7g.xlarge"], True, 2),
    ]
    assert len({each["name"] for each in groups}) == 3
    assert groups[0]["labels"] == OWN
    assert groups[0]["taints"] == TAINTS
    assert groups[0]["availabilityZones"] == ["eu-west-1a", "eu-west-1b"]


def test_aks_has_a_command_for_each_type() -> None:
    commands = [shlex.split(each, comments=True) for each in texts("aks", "Azure")]
    assert all(each[:4] == ["az", "aks", "nodepool", "add"] for each in commands)
    given = [dict(pairwise(each)) for each in commands]
    assert [(each["--node-vm-size"], each["--max-count"], each.get("--priority")) for each in given] == [
        ("Standard_D4s_v5", "3", None),
        ("Standard_E8s_v5", "1", None),
        ("Standard_D4s_v5", "2", "Spot"),
    ]
    names = [each["--name"] for each in given]
    assert len(set(names)) == 3
    assert all(re.fullmatch(r"[a-z][a-z0-9]{0,11}", name) for name in names)
    # Azure/azure-cli acs/_validators.py, validate_nodepool_taints: the value can't be empty
    assert given[0]["--node-taints"] == "dedicated=web:NoSchedule"
    assert texts("aks", "Azure")[0].startswith("# without slow:PreferNoSchedule: az takes no taint without a value\n")
    assert {"team=web ${x}", "example.com/tier=true"} <= set(commands[0])
    at = commands[0].index("--zones")
    assert commands[0][at + 1 : at + 3] == ["1", "2"]


def blocks(text: str) -> Json:
    """Return the attributes and blocks of HCL: ``name = value`` or ``kind "label" "label" {``."""
    root: Json = {}
    stack = [root]
    for line in filter(None, (each.split("#")[0].strip() for each in text.splitlines())):
        if opened := re.fullmatch(r'(\w+)((?: "[\w-]+")*) \{', line):
            stack[-1].setdefault(opened[1], []).append({})
            stack.append(stack[-1][opened[1]][-1])
            stack[-1][""] = opened[2].split()
        elif line == "}":
            stack.pop()
        else:
            name, value = re.fullmatch(r"(\w+)\s+= (\S.*)", line).groups()  # type: ignore[union-attr]
            stack[-1][name] = value
    assert stack == [root]
    return root


def test_terraform_has_a_resource_for_each_type() -> None:
    found = [blocks(each)["resource"][0] for each in texts("terraform", "AWS")]
    assert {each[""][0] for each in found} == {'"aws_eks_node_group"'}
    assert len({each[""][1] for each in found}) == 3
    assert [(each["instance_types"], each["capacity_type"]) for each in found] == [
        ('["m7g.xlarge"]', '"ON_DEMAND"'),
        ('["c7g.2xlarge"]', '"ON_DEMAND"'),
        ('["m7g.xlarge"]', '"SPOT"'),
    ]
    assert found[0]["scaling_config"] == [{"": [], "min_size": "0", "desired_size": "3", "max_size": "3"}]
    assert found[0]["ami_type"] == '"AL2023_ARM_64_STANDARD"'
    assert found[0]["labels"] == '{ "team" = "web $${x}", "example.com/tier" = "true" }'
    assert found[0]["taint"] == [
        {"": [], "key": '"dedicated"', "value": '"web"', "effect": '"NO_SCHEDULE"'},
        {"": [], "key": '"slow"', "effect": '"PREFER_NO_SCHEDULE"'},
    ]


ALLOWED = {
    # kubernetes-sigs/karpenter pkg/apis/crds/karpenter.sh_nodepools.yaml
    ("nodepool", "AWS", ("spec",)): {"template", "limits", "disruption", "weight", "replicas"},
    ("nodepool", "AWS", ("spec", "template", "spec")): {
        *("expireAfter", "nodeClassRef", "requirements", "startupTaints", "taints", "terminationGracePeriod"),
    },
    # docs.cloud.google.com/kubernetes-engine/docs/reference/crds/computeclass
    ("computeclass", "Google Cloud", ("spec",)): {
        *("activeMigration", "autoscalingPolicy", "description", "nodePoolAutoCreation", "nodePoolConfig"),
        *("priorities", "priorityDefaults", "whenUnsatisfiable"),
    },
    ("computeclass", "Google Cloud", ("spec", "priorities", 0)): {
        *("gpu", "location", "machineFamily", "machineType", "maxRunDurationSeconds", "minCores", "minMemoryGb"),
        *("nodepools", "reservations", "spot", "storage", "tpu"),
    },
    ("computeclass", "Google Cloud", ("spec", "nodePoolConfig")): {
        *("imageType", "nodeLabels", "serviceAccount", "taints"),
    },
    # eksctl-io/eksctl pkg/apis/eksctl.io/v1alpha5/assets/schema.json, ManagedNodeGroup
    ("eksctl", "AWS", ("managedNodeGroups", 0)): {
        *("amiFamily", "availabilityZones", "desiredCapacity", "instanceType", "instanceTypes", "labels", "maxSize"),
        *("minSize", "name", "spot", "subnets", "taints", "volumeSize"),
    },
}


@pytest.mark.parametrize(("form", "cloud", "path"), ALLOWED)
def test_documents_have_only_fields_of_their_schemas(form: str, cloud: str, path: tuple[Any, ...]) -> None:
    for document in documents(form, cloud):
        found: Any = document
        for step in path:
            found = found[step]
        assert found.keys() <= ALLOWED[form, cloud, path]


def test_commands_have_only_options_of_the_azure_cli() -> None:
    """Azure/azure-cli src/azure-cli/azure/cli/command_modules/acs/_params.py, ``aks nodepool add``."""
    used = {word for text in texts("aks", "Azure") for word in shlex.split(text, comments=True) if word[:2] == "--"}
    assert used == {
        *("--resource-group", "--cluster-name", "--name", "--node-vm-size", "--node-count", "--zones", "--labels"),
        *("--enable-cluster-autoscaler", "--min-count", "--max-count", "--node-taints", "--priority"),
        *("--eviction-policy", "--spot-max-price"),
    }


PROVIDERS = {
    # hashicorp/terraform-provider-aws website/docs/r/eks_node_group.html.markdown
    "AWS": {
        *("cluster_name", "node_group_name", "node_role_arn", "subnet_ids", "scaling_config", "ami_type"),
        *("capacity_type", "disk_size", "instance_types", "labels", "taint"),
    },
    # hashicorp/terraform-provider-google website/docs/r/container_node_pool.html.markdown
    "Google Cloud": {"name", "cluster", "node_locations", "autoscaling", "node_config"},
    # hashicorp/terraform-provider-azurerm website/docs/r/kubernetes_cluster_node_pool.html.markdown
    "Azure": {
        *("name", "kubernetes_cluster_id", "vm_size", "auto_scaling_enabled", "min_count", "max_count", "zones"),
        *("node_labels", "node_taints", "priority", "eviction_policy", "spot_max_price"),
    },
}


@pytest.mark.parametrize("cloud", PROVIDERS)
def test_terraform_has_only_arguments_of_the_provider(cloud: str) -> None:
    found = [blocks(each)["resource"][0] for each in texts("terraform", cloud)]
    assert len(found) == 3
    assert all(each.keys() - {""} <= PROVIDERS[cloud] for each in found)


def test_terraform_describes_pools_of_gke_and_aks() -> None:
    lasting, _, spot = [blocks(each)["resource"][0] for each in texts("terraform", "Google Cloud")]
    assert lasting["name"] == '"web-pool-1-e2-standard-4"'
    assert lasting["autoscaling"][0]["total_max_node_count"] == "3"
    (config,) = spot["node_config"]
    assert (config["machine_type"], config["spot"]) == ('"e2-standard-4"', "true")
    assert [each["value"] for each in config["taint"]] == ['"web"', '""']
    lasting, _, spot = [blocks(each)["resource"][0] for each in texts("terraform", "Azure")]
    assert re.fullmatch(r'"[a-z][a-z0-9]{0,11}"', lasting["name"])
    assert (lasting["max_count"], lasting["zones"]) == ("3", '["1", "2"]')
    assert lasting["node_taints"] == '["dedicated=web:NoSchedule", "slow=:PreferNoSchedule"]'
    assert spot["priority"] == '"Spot"'


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("cloud", TYPES)
def test_a_form_refuses_the_pools_of_other_clouds(form: str, cloud: str) -> None:
    if cloud in FORMS[form][0]:
        assert all(texts(form, cloud))
        return
    with pytest.raises(FitError, match=f"--as {form} describes pools of .*, pool 'Web_pool.1' is of {cloud}; allowed "):
        texts(form, cloud)


def test_the_cheapest_alternative_that_leaves_the_fewest_pods_is_described() -> None:
    assert best_of(fitted("AWS")).mode == "any"
