"""Makes ``tightship/fit/instance_types.json``: the shapes of the machine types that the list of prices knows.

    python packages/common/tooling/instance_types.py AWS AUTOSCALER GOOGLE

Each argument is a checkout of a repository under the Apache licence that holds what the cloud's API answers:

* aws/karpenter-provider-aws: website/content/en/preview/reference/instance-types.md (``DescribeInstanceTypes``, with
  the pods that a node's network interfaces have addresses for);
* kubernetes/autoscaler: cluster-autoscaler/cloudprovider/azure/azure_instance_types.go (``resourceSkus``);
* Cyclenerd/google-cloud-pricing-cost-calculator: tools/machinetypes.csv (``gcloud compute machine-types list``).

Types that no source knows are left out.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

from tightship.fit.shapes import shared

SOURCE = Path(__file__).parents[1] / "src/tightship"
OUTPUT = SOURCE / "fit/instance_types.json"
PRICES = SOURCE / "prices/on_demand_prices.json"

Types = dict[str, dict[str, object]]

_GPUS = {
    "a2-highgpu": "nvidia-tesla-a100",
    "a2-megagpu": "nvidia-tesla-a100",
    "a2-ultragpu": "nvidia-a100-80gb",
    "a3-edgegpu": "nvidia-h100-80gb",
    "a3-highgpu": "nvidia-h100-80gb",
    "a3-megagpu": "nvidia-h100-mega-80gb",
    "a3-ultragpu": "nvidia-h200-141gb",
    "a4-highgpu": "nvidia-b200",
    "g2-standard": "nvidia-l4",
    "g4-standard": "nvidia-rtx-pro-6000",
}
"""GKE's label cloud.google.com/gke-accelerator, by https://cloud.google.com/kubernetes-engine/docs/how-to/gpus."""

_GPUS_BY_CPU = {
    "g2": {4: 1, 8: 1, 12: 1, 16: 1, 24: 2, 32: 1, 48: 4, 96: 8},
    "g4": {48: 1, 96: 2, 192: 4, 384: 8},
}
"""GPUs by vCPUs, by https://cloud.google.com/compute/docs/gpus. Smaller machines of G4 have a part of one."""

_AMD = re.compile(r"_NV\d+as_v4|_MI300X|_V620|_V710")
"""Sizes of Azure with AMD's GPUs."""


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
            "gpus": int(rows.get("nvidia.com/gpu", rows.get("amd.com/gpu", 0))),
            "gpu": "amd" if "amd.com/gpu" in rows else label.get("instance-gpu-name", ""),
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
        found[kind] = {"cpu": int(cpu), "memory": int(memory), "arch": arch}
        if int(gpus):
            found[kind] |= {"gpus": int(gpus), "gpu": "amd" if _AMD.search(kind) else "nvidia"}
    return f"kubernetes/autoscaler {name}", date, found


def _google(checkout: str) -> tuple[str, str, Types]:
    name = "tools/machinetypes.csv"
    text, date = _file(checkout, name)
    found: Types = {}
    for line in text.splitlines()[1:]:
        kind, cpu, shared, memory, *_ = line.split(";")
        if shared == "False":
            found[kind] = _google_type(kind, int(cpu), round(float(memory) * 1024))
    return f"Cyclenerd/google-cloud-pricing-cost-calculator {name}", date, found


def _google_type(kind: str, cpu: int, memory: int) -> dict[str, object]:
    arm = kind.startswith(("c4a-", "n4a-", "t2a-"))
    made: dict[str, object] = {"cpu": cpu, "memory": memory, "arch": "arm64" if arm else "amd64"}
    if gpu := _GPUS.get("-".join(kind.split("-")[:2])):
        series, _, number, *_ = kind.split("-")
        by_cpu = _GPUS_BY_CPU.get(series)
        made |= {"gpu": gpu, "gpus": by_cpu.get(cpu, 0) if by_cpu else int(number.rstrip("g"))}
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
            name: {
                key: value
                for key, value in types[name].items()
                if value and (key, value) != ("arch", "amd64") and not (key in ("gpu", "gpus") and shared(name))
            }
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
