"""Makes ``tightship/fit/instance_types.json``: the shapes of the machine types that the list of prices knows.

    python packages/common/tooling/instance_types.py AWS AUTOSCALER GOOGLE

Each argument is a checkout of a repository under the Apache licence that holds what the cloud's API answers:

* aws/karpenter-provider-aws: website/content/en/preview/reference/instance-types.md (``DescribeInstanceTypes``, with
  the pods that a node's network interfaces have addresses for);
* kubernetes/autoscaler: cluster-autoscaler/cloudprovider/azure/azure_instance_types.go (``resourceSkus``);
* Cyclenerd/google-cloud-pricing-cost-calculator: tools/machinetypes.csv (``gcloud compute machine-types list``).

Families of Google that are newer than its file are computed from their names, whose last number is the vCPUs, by
https://cloud.google.com/compute/docs/machine-resource. Types that no source knows are left out.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src/tightship"
OUTPUT = SOURCE / "fit/instance_types.json"
PRICES = SOURCE / "prices/on_demand_prices.json"

Types = dict[str, dict[str, object]]

_GIB_A_VCPU = {
    "highcpu": {"n1": 0.9, "e2": 1.0, "n2": 1.0, "n2d": 1.0, "c4d": 1.875},
    "standard": {"n1": 3.75, "c4": 3.75, "c4d": 3.875, "g4": 3.75, "g2": 4.0, "h3": 4.0},
    "highmem": {"n1": 6.5, "c4": 7.75, "c4d": 7.875},
}
"""GiB for each vCPU by class and family, where they differ from 2, 4 and 8."""

_GPUS = {"a2-highgpu": "nvidia-a100", "a2-ultragpu": "nvidia-a100-80gb", "a2-megagpu": "nvidia-a100"}
_GPUS |= {"a3-highgpu": "nvidia-h100", "a3-megagpu": "nvidia-h100-mega", "g2-standard": "nvidia-l4"}
_L4 = {4: 1, 8: 1, 12: 1, 16: 1, 24: 2, 32: 1, 48: 4, 96: 8}


def _git(checkout: str, *words: str) -> str:
    command = ["git", "-C", checkout, *words]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def _file(checkout: str, name: str) -> tuple[str, str]:
    """Return the text of *name*, and the day of its last change."""
    return _git(checkout, "show", f"HEAD:{name}"), _git(
        checkout, "log", "-1", "--format=%cs", "HEAD", "--", name
    ).strip()


def _aws(checkout: str) -> tuple[str, str, Types]:
    name = "website/content/en/preview/reference/instance-types.md"
    text, date = _file(checkout, name)
    found: Types = {}
    for part in re.split(r"^### `", text, flags=re.MULTILINE)[1:]:
        rows = dict(re.findall(r"^ \|([^|]+)\|([^|]+)\|$", part, flags=re.MULTILINE))
        label = {key.rpartition("/")[2]: value for key, value in rows.items() if key.startswith("karpenter.k8s.aws/")}
        found[part.partition("`")[0]] = {
            "cpu": int(label["instance-cpu"]),
            "memory": int(label["instance-memory"]),
            "pods": int(rows["pods"]),
            "arch": rows["kubernetes.io/arch"],
            "gpus": int(rows.get("nvidia.com/gpu", 0)),
            "gpu": label.get("instance-gpu-name", "") if "nvidia.com/gpu" in rows else "",
            "disk": int(label.get("instance-local-nvme", 0)),
        }
    return f"aws/karpenter-provider-aws {name}", date, found


def _azure(checkout: str) -> tuple[str, str, Types]:
    name = "cluster-autoscaler/cloudprovider/azure/azure_instance_types.go"
    text, date = _file(checkout, name)
    entry = re.compile(
        r'InstanceType: "([^"]+)",\s+SkuFamily:\s+"[^"]*",\s+VCPU:\s+(\d+),\s+MemoryMb:\s+(\d+),\s+GPU:\s+(\d+),'
        r'\s+Architecture: "(\w+)"'
    )
    found: Types = {}
    for kind, cpu, memory, gpus, arch in entry.findall(text):
        found[kind] = {"cpu": int(cpu), "memory": int(memory), "gpus": int(gpus), "arch": arch}
        if int(gpus):
            found[kind]["gpu"] = "nvidia" if "_NV" not in kind or "_v4" not in kind else "amd"
    return f"kubernetes/autoscaler {name}", date, found


def _google(checkout: str) -> tuple[str, str, Types]:
    name = "tools/machinetypes.csv"
    text, date = _file(checkout, name)
    found: Types = {}
    for line in text.splitlines()[1:]:
        kind, cpu, shared, memory, *_ = line.split(";")
        if shared == "False":
            found[kind] = _google_type(kind, int(cpu), round(float(memory) * 1024))
    for kind in _priced("Google Cloud"):
        if kind not in found and (parts := re.fullmatch(r"(\w+)-(standard|highcpu|highmem)-(\d+)(-.*)?", kind)):
            family, sort, cpu = parts[1], parts[2], int(parts[3])
            each = _GIB_A_VCPU[sort].get(family, {"highcpu": 2.0, "standard": 4.0, "highmem": 8.0}[sort])
            found[kind] = _google_type(kind, cpu, round(each * cpu * 1024))
    return f"Cyclenerd/google-cloud-pricing-cost-calculator {name}", date, found


def _google_type(kind: str, cpu: int, memory: int) -> dict[str, object]:
    arm = kind.startswith(("c4a-", "n4a-", "t2a-"))
    made: dict[str, object] = {"cpu": cpu, "memory": memory, "arch": "arm64" if arm else "amd64"}
    if gpu := _GPUS.get("-".join(kind.split("-")[:2])):
        number = kind.split("-")[2]
        made |= {"gpu": gpu, "gpus": _L4[cpu] if kind.startswith("g2-") else int(number.rstrip("g"))}
    return made


def _priced(cloud: str) -> list[str]:
    lists = json.loads(PRICES.read_text())
    return [name for each in lists if each["cloud"] == cloud for name in each["prices"]]


def main(aws: str, autoscaler: str, google: str) -> None:
    """Write the list anew from the three checkouts."""
    clouds = []
    for cloud, (source, date, types) in {
        "AWS": _aws(aws),
        "Azure": _azure(autoscaler),
        "Google Cloud": _google(google),
    }.items():
        priced = _priced(cloud)
        kept = {
            name: {key: value for key, value in types[name].items() if value and (key, value) != ("arch", "amd64")}
            for name in priced
            if name in types and types[name]["memory"]
        }
        print(f"{cloud}, {date}: {len(kept):,} of {len(priced):,} priced types")
        if len(kept) < len(priced) * 0.75:
            raise SystemExit(f"{cloud} has too few types: the source has changed")
        clouds.append({"cloud": cloud, "source": source, "date": date, "types": kept})
    # One type a line.
    lines = []
    for each in clouds:
        rows = ",\n".join(
            f"{json.dumps(name)}:{json.dumps(shape, separators=(',', ':'))}" for name, shape in each["types"].items()
        )  # type: ignore[attr-defined]
        head = json.dumps({key: value for key, value in each.items() if key != "types"})[:-1]
        lines.append(f'{head}, "types": {{\n{rows}\n}}}}')
    OUTPUT.write_text("[\n" + ",\n".join(lines) + "\n]\n")


if __name__ == "__main__":
    if len(sys.argv) != 4:
        raise SystemExit(__doc__)
    main(*sys.argv[1:])
