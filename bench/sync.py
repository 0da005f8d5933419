"""First sync of many pods through a real API server, against the official client's typed list in the same run.

    python bench/sync.py                 a table of ratios; needs the control plane (make controlplane)
    python bench/sync.py --json          the same as JSON
    python bench/sync.py --pods 5000     a smaller one

Each reader has a process of its own. *seconds* are from the first request to the last object, imports and configuration
left out, the best of some turns; *peak* is that process's largest resident set, imports included, and *above import*
what reading added to it. Ours reads all fourteen kinds into a running cache, watches begun; the official client reads
pods only, at once (as most programs do) and in pages of 500. Exit code 1 when a bar does not hold.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

TIME_BAR = 10.0
MEMORY_BAR = 10.0
READERS = ("tightship", "official", "official-paged")
REPLICAS = 100


def pod(number: int) -> dict[str, Any]:
    """One of REPLICAS like pods of a workload: with managedFields about as long as pods in production."""
    workload, replica = divmod(number, REPLICAS)
    app = f"service-{workload:03d}"

    server = {
        "name": "server",
        "image": f"example.com/platform/{app}:v1.{workload}.0",
        "args": ["--log-level=info", "--listen=:8080"],
        "ports": [{"name": "http", "containerPort": 8080}],
        "env": [{"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
        "resources": {
            "requests": {"cpu": f"{100 + workload % 9 * 50}m", "memory": f"{128 + workload % 7 * 64}Mi"},
            "limits": {"memory": f"{256 + workload % 7 * 128}Mi"},
        },
        "readinessProbe": {"httpGet": {"path": "/healthz", "port": "http"}, "periodSeconds": 10},
        "volumeMounts": [{"name": "config", "mountPath": f"/etc/{app}", "readOnly": True}],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{app}-7c9d8f6b5d-{replica:05d}",
            "namespace": "default",
            "labels": {
                "app.kubernetes.io/name": app,
                "app.kubernetes.io/part-of": "shop",
                "pod-template-hash": "7c9d8f6b5d",
            },
            "annotations": {"prometheus.io/scrape": "true", "checksum/config": f"{workload:064x}"},
            "ownerReferences": [
                {
                    "apiVersion": "apps/v1",
                    "kind": "ReplicaSet",
                    "name": f"{app}-7c9d8f6b5d",
                    "uid": f"00000000-0000-4000-8000-{workload:012d}",
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "spec": {
            "nodeName": f"node-{number % 300:03d}",
            "serviceAccountName": "default",
            "automountServiceAccountToken": False,
            "containers": [server],
            "volumes": [{"name": "config", "configMap": {"name": f"{app}-config"}}],
            "topologySpreadConstraints": [
                {
                    "maxSkew": 1,
                    "topologyKey": "topology.kubernetes.io/zone",
                    "whenUnsatisfiable": "ScheduleAnyway",
                    "labelSelector": {"matchLabels": {"app.kubernetes.io/name": app}},
                }
            ],
        },
    }


def rss(field: str) -> int:
    """Bytes of this process: VmRSS is the present resident set, VmHWM its peak.

    ``ru_maxrss`` would do but for a trap: it survives exec, so a child starts with its parent's memory as its peak.
    """
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    raise OSError(f"no {field} in /proc/self/status")


def read_ours(kubeconfig: str) -> Iterator[int]:
    from tightship.kube.cache import ClusterCache
    from tightship.kube.connection import connect

    with asyncio.Runner() as runner:
        connection = runner.run(connect(kubeconfig))  # sends nothing; imports the client's configuration
        yield 0

        async def read() -> int:
            async with connection, ClusterCache(connection) as cache:
                while not cache.has_synced:
                    await cache.changed(cache.revision, 600)
                unsynced = sum(1 for each in cache.stats().values() if not each.synced)
                return cache.snapshot().pod_count - unsynced

        yield runner.run(read())


def read_official(kubeconfig: str, limit: int | None) -> Iterator[int]:
    from kubernetes import client, config

    config.load_kube_config(kubeconfig)
    api = client.CoreV1Api()
    yield 0
    pods = []
    token = None
    while True:
        page = (
            api.list_pod_for_all_namespaces(limit=limit, _continue=token)
            if limit
            else (api.list_pod_for_all_namespaces())
        )
        pods += page.items
        token = page.metadata._continue
        if not token:
            break
    yield len(pods)


def child(reader: str, kubeconfig: str) -> None:
    started = time.perf_counter()
    steps = (
        read_ours(kubeconfig)
        if reader == "tightship"
        else (read_official(kubeconfig, 500 if reader == "official-paged" else None))
    )
    next(steps)
    imported, base = time.perf_counter(), rss("VmRSS")
    cpu = time.process_time()
    count = next(steps)
    seconds = time.perf_counter() - imported
    print(
        json.dumps(
            {
                "pods": count,
                "seconds": seconds,
                "cpu_seconds": time.process_time() - cpu,
                "import_seconds": imported - started,
                "peak": rss("VmHWM"),
                "above_import": rss("VmHWM") - base,
            }
        )
    )


def measure(pods: int, repeat: int) -> dict[str, Any]:
    from tightship_e2e import ControlPlane

    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "status": {"allocatable": {"cpu": "64", "memory": "256Gi", "pods": "250"}},
    }

    async def fill(api: Any) -> int:
        await api.each(api.create, ({**node, "metadata": {"name": f"node-{n:03d}"}} for n in range(300)))
        await api.each(api.create, (pod(number) for number in range(pods)))
        sample = await anext(api.pages("Pod", page=500))
        return sum(len(json.dumps(each, separators=(",", ":"))) for each in sample) // len(sample)

    # Neither scheduler, controllers nor kwok: nothing but readers is to take CPU while they are measured. Without the
    # controller manager no namespace has a service account, hence the admission plugin that asks for one is left out.
    flags = {"kube-apiserver": ["--disable-admission-plugins=TaintNodesByCondition,ServiceAccount"]}
    with ControlPlane(components=("etcd", "kube-apiserver"), flags=flags) as plane:
        began = time.perf_counter()
        size = plane.run(fill)
        say(f"{pods} pods of {size} bytes created in {time.perf_counter() - began:.0f} s")
        runs: dict[str, list[dict[str, Any]]] = {reader: [] for reader in READERS}
        for turn in range(repeat):
            for reader in READERS:
                say(f"turn {turn + 1} of {repeat}: {reader}")
                command = [sys.executable, __file__, "--child", reader, "--kubeconfig", str(plane.kubeconfig)]
                done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
                result = json.loads(done.stdout)
                if result["pods"] != pods:
                    raise SystemExit(f"{reader} read {result['pods']} pods of {pods}")
                runs[reader].append(result)
    middle = {
        # The least disturbed turn for times, as timeit does: whatever else runs here only ever adds to them.
        reader: {
            key: (min if "seconds" in key else statistics.median)(each[key] for each in results) for key in results[0]
        }
        for reader, results in runs.items()
    }
    ours, official = middle["tightship"], middle["official"]
    ratios = {
        reader: {key: middle[reader][key] / ours[key] for key in ("seconds", "cpu_seconds", "peak", "above_import")}
        for reader in READERS[1:]
    }
    met = official["seconds"] >= TIME_BAR * ours["seconds"] and official["peak"] >= MEMORY_BAR * ours["peak"]
    return {
        "pods": pods,
        "pod_bytes": size,
        "repeat": repeat,
        "readers": middle,
        "ratios": ratios,
        "bars": {"seconds": TIME_BAR, "peak": MEMORY_BAR},
        "met": met,
    }


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def table(result: dict[str, Any]) -> str:
    mebi = 1 << 20
    lines = [f"{'':16}{'seconds':>9}{'cpu s':>9}{'peak MiB':>10}{'above import MiB':>18}"]
    for reader, each in result["readers"].items():
        lines.append(
            f"{reader:16}{each['seconds']:9.2f}{each['cpu_seconds']:9.2f}"
            f"{each['peak'] / mebi:10.0f}{each['above_import'] / mebi:18.0f}"
        )
    for reader, each in result["ratios"].items():
        lines.append(
            f"{reader + ' /':16}{each['seconds']:8.1f}x{each['cpu_seconds']:8.1f}x"
            f"{each['peak']:9.1f}x{each['above_import']:17.1f}x"
        )
    bars = result["bars"]
    lines.append(
        f"bars against official: {bars['seconds']:.0f}x seconds, {bars['peak']:.0f}x peak: "
        f"{'met' if result['met'] else 'NOT met'}"
    )
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pods", type=int, default=30_000, help="how many pods (default: %(default)s)")
    parser.add_argument("--repeat", type=int, default=3, help="turns (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--child", choices=READERS, help=argparse.SUPPRESS)
    parser.add_argument("--kubeconfig", default=os.environ.get("KUBECONFIG", ""), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        child(args.child, args.kubeconfig)
        return 0
    result = measure(args.pods, args.repeat)
    print(json.dumps(result, indent=2) if args.json else table(result))
    return 0 if result["met"] else 1


if __name__ == "__main__":
    sys.exit(main())
