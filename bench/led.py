"""`steering: hints` on virtual time: nodes kept, evictions, where pods land, and requests by kind, without a live run.

    python bench/clusters.py FOLDER
    python bench/led.py FOLDER/tight.json                 one seed: a minute and less
    python bench/led.py FOLDER/tight.json --seeds 1 2 3   several
    python bench/led.py                                   the cluster of 1,523 nodes: twenty minutes of one core

The controller is the product's own, with the settings of `bench/live.py`; API server, admission policy, scheduler (with
its sampling of nodes, and random choice among equals), kubelets and the stand-in for the autoscaler are embedded. A
pass and a search take the time that they are told to take, not their own.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import gzip
import json
import logging
import random
import sys
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import live
import numpy as np

from tightship.cli.app import COLLECTIONS
from tightship.nodes import background, loop
from tightship.objects.pod import DRAINING
from tightship.planning.evaluate import Evaluator
from tightship.process.loop import in_thread
from tightship.scheduler.scoring import Indices, nodes_to_find, scheduler_scores
from tightship.scheduler.space import PodDemand, Space
from tightship_simulator.life import scheduler
from tightship_simulator.life.kubelet import Pace
from tightship_simulator.life.living import Speeds
from tightship_simulator.life.remover import Remover
from tightship_simulator.virtual.programs import PROGRAMS
from tightship_simulator.virtual.simulation import NAMESPACE, Simulation, simulate
from tightship_testkit.client import Json

ITERATIONS = 2000
"""Iterations of a search in each of its seconds: about as many as on a real clock with 1,523 nodes."""
POLICY = {"tightship.dev/landing-policy": "hints/2"}
QUIET = 60.0
"""Seconds without a removal that end a run."""


class Chance:
    """kube-scheduler's choice with its sampling of nodes, at random among equals."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._start = self._random.randrange(10_000)

    def __call__(self, space: Space, demand: PodDemand, nodes: Indices) -> int:
        enough = nodes_to_find(len(space.nodes))
        if len(nodes) > enough:
            start = int(np.searchsorted(nodes, self._start % len(space.nodes)))
            nodes = np.concatenate((nodes[start : start + enough], nodes[: max(0, start + enough - len(nodes))]))
            self._start = int(nodes[-1]) + 1
        score = scheduler_scores(space, demand, nodes)
        return int(nodes[self._random.choice(np.flatnonzero(score == score.max()).tolist())])


def objects(items: list[Json]) -> Iterator[Json]:
    """Yield nodes, the ReplicaSets of all pods, and the pods."""
    owners: dict[str, Json] = {}
    pods = [each for each in items if each["kind"] == "Pod"]
    for pod in pods:
        [by], meta, spec = pod["metadata"]["ownerReferences"], pod["metadata"], dict(pod["spec"])
        spec.pop("nodeName")
        template = {"metadata": {"labels": meta["labels"]}, "spec": spec}
        wanted = {"replicas": 0, "selector": {"matchLabels": meta["labels"]}, "template": template}
        about = {"name": by["name"], "namespace": meta["namespace"], "uid": by["uid"]}
        owner = owners.setdefault(by["uid"], {"kind": "ReplicaSet", "metadata": about, "spec": wanted})
        owner["spec"]["replicas"] += 1
    yield from (each for each in items if each["kind"] == "Node")
    yield from owners.values()
    yield from pods


def config_map(name: str, data: Json, **annotations: str) -> Json:
    meta = {"name": name, "namespace": NAMESPACE, "annotations": annotations}
    return {"kind": "ConfigMap", "metadata": meta, "data": data}


def hints(pod: Json) -> list[str]:
    """Return the nodes to which the policy has led *pod*."""
    of_nodes = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    terms = of_nodes.get("preferredDuringSchedulingIgnoredDuringExecution") or []
    return [name for term in terms for field in term["preference"].get("matchFields") or [] for name in field["values"]]


def run(items: list[Json], told: Json, seed: int, options: argparse.Namespace) -> str:
    asked: Counter[str] = Counter()
    log: list[str] = []

    class Log(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            log.append(record.getMessage())

    async def play(simulation: Simulation) -> str:
        store, remover = simulation.store, Remover(DRAINING.key, live.UNNEEDED)
        store.load(objects(items))
        store.load([config_map("settings", {"config.yaml": json.dumps(told)}), config_map("landings", {}, **POLICY)])
        simulation.living.others.append(remover)
        await simulation.sleep(5)
        logging.basicConfig(handlers=[Log()], level="INFO", force=True)
        simulation.start(
            PROGRAMS[0], CONFIG_MAP_NAME="settings", LANDINGS_CONFIG_MAP_NAME="landings", LOG_LEVEL="info",
            INTERVAL="1", LEASE_DURATION="15", LEASE_RENEW_DEADLINE="10", LEASE_RETRY_PERIOD="2", REQUEST_TIMEOUT="30",
        )  # fmt: skip
        began = latest = simulation.wall()
        nodes = len(store.list("Node"))
        while simulation.wall() < latest + QUIET or not remover.removed:
            await simulation.sleep(5)
            asked.update(
                f"{each.verb} {each.resource}{'/' * bool(each.subresource)}{each.subresource} {each.code}"
                for each in simulation.cluster.requests
            )
            simulation.cluster.requests.clear()
            if nodes != len(store.list("Node")):
                nodes, latest = len(store.list("Node")), simulation.wall()
        led = [each for each in store.list("Pod") if hints(each)]
        on = sum(each["spec"].get("nodeName") in hints(each) for each in led)
        several = sum(len(hints(each)) > 1 for each in led)
        restored = sum(line.startswith("drain ended") and "restored" in line for line in log)
        removed = len(remover.removed)
        kinds = ", ".join(f"{kind} {many:,}" for kind, many in asked.most_common(options.kinds))
        return (
            f"seed {seed}: {nodes} nodes kept, {asked['create pods/eviction 201']:,} evictions, {restored} nodes given "
            f"back, {on:,} of {len(led):,} led pods on a target, {several:,} had several, {latest - began:.0f} s, "
            f"{asked.total() / max(1, removed):.1f} requests for each removed node: {kinds}"
        )

    async def slow(work: Any, *given: Any, **named: Any) -> Any:
        found = await in_thread(work, *given, **named)
        if isinstance(work, partial) and isinstance(work.func, Evaluator):
            await asyncio.sleep(options.pass_seconds)
        return found

    with (
        patch.object(scheduler, "scheduler_choice", Chance(seed)),
        patch.object(loop, "in_thread", slow),
        patch.object(background, "ITERATIONS", ITERATIONS),
    ):
        return simulate(play, seed=seed, speeds=Speeds(pods=Pace(start=1.0, stop=0.5)))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "cluster", type=Path, nargs="?", default=live.openb(), help="a List as kubectl prints it (openb)"
    )
    parser.add_argument("--seeds", type=int, nargs="*", default=[1])
    parser.add_argument("--search", default="5s", help="how long the controller searches (5s)")
    parser.add_argument("--in-drain", type=int, default=live.NODES_IN_DRAIN)
    parser.add_argument("--pass-seconds", type=float, default=2.0, help="how long a pass takes (2)")
    parser.add_argument("--kinds", type=int, default=12, help="kinds of requests to show (12)")
    options = parser.parse_args()
    if options.cluster is None:
        print("openb_cluster.json.gz is not at hand: name its folder in TIGHTSHIP_DATA", file=sys.stderr)
        return 1
    raw = options.cluster.read_bytes()
    items: list[Json] = json.loads(gzip.decompress(raw) if options.cluster.suffix == ".gz" else raw)["items"]
    way = live.WAYS["hints"]._replace(search=options.search)
    told: dict[str, Any] = live.settings(
        way, argparse.Namespace(limit=0.0, placement="possible", in_drain=options.in_drain)
    )
    gc.freeze()
    gc.set_threshold(*COLLECTIONS)
    for seed in options.seeds:
        print(run(items, told, seed, options), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
