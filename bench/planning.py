"""What judging and planning cost, and how few nodes the plans keep.

    python bench/planning.py                 1,000/30,000 and 5,000/150,000 nodes/pods, and openb where it is at hand
    python bench/planning.py --sizes 1000    a smaller one
    python bench/planning.py --json

Each row is made in a process of its own. Seconds are CPU seconds of one core (noise of a shared machine left out as far
as may be); *memory* is the process's largest resident set, with the Kubernetes client imported as a running controller
has it, the whole fleet held as the controller holds it and one decision pass made. Fleets come from the project's own
generator, object by object through the decoder, as a list from the API server would.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec

from node_compactor.judge import CompactorJudge
from node_compactor.settings import load_settings
from tightship.core.objects import KINDS, decode
from tightship.core.reasons import Refusal
from tightship.files.snapshot_file import read_file
from tightship.planning.cluster import ClusterState, Snapshot
from tightship.planning.evaluate import evaluate
from tightship.planning.plan import STRATEGIES, Candidate, Judgement, Placement, Planner, forecast, make_plan
from tightship_simulator.generate import NOW, objects

PODS_PER_NODE = 30
OPENB_BOUND = 365
"""Nodes that the openb cluster provably needs (field measurements of packing)."""

EVERY_POOL = {
    "nodePools": {"*": {"enabled": True, "scaleDownCPURequestRatioLimit": 0.75}},
    "minimumNodeAge": 0,
    "neededMarkedTimeForRemoval": 0,
    "disabledRules": ["LocalStorage", "NotReplicated", "JobRunning"],
}


def openb() -> Path | None:
    """The real cluster of the shared data, if it is at hand."""
    folder = os.environ.get("TIGHTSHIP_DATA") or Path(__file__).resolve().parents[2] / "shared" / "data"
    path = Path(folder) / "openb_cluster.json.gz"
    return path if path.exists() else None


def cpu() -> float:
    return time.process_time()


def fleet(nodes: int) -> tuple[ClusterState, float]:
    """A generated fleet in the state, and the CPU seconds decoding and taking it in cost."""
    state, spent = ClusterState(), 0.0
    encode = msgspec.json.Encoder().encode
    for thing in objects(1, nodes, pods=nodes * PODS_PER_NODE):
        raw = encode(thing)
        start = cpu()
        if thing["kind"] in KINDS:
            state.upsert(thing["kind"], decode(thing["kind"], raw))
        spent += cpu() - start
    start = cpu()
    state.snapshot()
    return state, spent + cpu() - start


def measure_fleet(nodes: int) -> dict[str, Any]:
    """Memory, a decision pass, a watch event, and full plans on a generated fleet."""
    importlib.import_module("kubernetes.aio")
    state, taken_in = fleet(nodes)
    now = NOW.timestamp()
    snapshot = state.snapshot()
    start = cpu()
    one_node = {"max_nodes": 1, "placement": "certain"}
    decided = evaluate(snapshot, CompactorJudge(load_settings(EVERY_POOL | one_node)), now).plan
    decision = cpu() - start
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    event = one_event(state, snapshot)
    result: dict[str, Any] = {
        "nodes": nodes,
        "pods": snapshot.pod_count,
        "take in s": round(taken_in, 2),
        "memory MB": round(memory),
        "decision pass s": round(decision, 2),
        "refusals": sum(len(each) for each in decided.refusals.values()),
        "watch event ms": round(event * 1000, 2),
        "plans": [],
    }
    for name in STRATEGIES:
        for placement in ("possible", "likely", "certain"):
            start = cpu()
            chosen = {"strategy": name, "placement": placement}
            plan = evaluate(snapshot, CompactorJudge(load_settings(EVERY_POOL | chosen)), now).plan
            result["plans"].append(
                {"strategy": name, "placement": placement, "s": round(cpu() - start, 2),
                 "kept": nodes - len(plan.removals), "evictions": plan.evictions}
            )  # fmt: skip
    return result


def one_event(state: ClusterState, snapshot: Snapshot) -> float:
    """CPU seconds from one changed pod to the next snapshot, mean of many."""
    pods = [pod for view in snapshot.nodes.values() for pod in view.pods][:: max(1, snapshot.pod_count // 200)]
    start = cpu()
    for pod in pods:
        state.upsert("Pod", msgspec.structs.replace(pod, ready=not pod.ready))
        state.snapshot()
    return (cpu() - start) / len(pods)


class _NoGates:
    def refuses(self, candidate: Candidate, planner: Planner) -> list[Refusal]:  # noqa: ARG002
        return []


def every_node(snapshot: Snapshot) -> Judgement:
    """Every node a candidate, whatever its utilization: what packing alone can reach."""
    candidates = tuple(
        Candidate(
            name,
            "",
            view.usage.requested.get("cpu", 0) / view.node.allocatable["cpu"],
            tuple(pod for pod in view.pods if not pod.daemon),
        )
        for name, view in snapshot.nodes.items()
    )
    return Judgement(candidates, {}, _NoGates())


def measure_openb(path: str) -> dict[str, Any]:
    """Nodes kept on a real cluster, by both strategies, with and without the scheduler's choice modelled."""
    snapshot = read_file(path)
    nodes = len(snapshot.nodes)
    candidates = every_node(snapshot).candidates
    rows: list[dict[str, Any]] = []
    for name, strategy in STRATEGIES.items():
        placement: Placement
        for placement in ("possible", "likely", "certain"):
            start = cpu()
            plan = make_plan(snapshot, every_node, strategy, placement)
            seconds = cpu() - start
            kept = nodes - len(plan.removals)
            row = {"strategy": name, "placement": placement, "kept": kept, "over bound": round(kept / OPENB_BOUND, 3),
                   "evictions": plan.evictions, "s": round(seconds, 2)}  # fmt: skip
            if placement == "possible":
                likely = forecast(snapshot, plan, candidates)
                row["the scheduler would reach"] = nodes - likely.removed
            rows.append(row)
    return {"nodes": nodes, "bound": OPENB_BOUND, "plans": rows}


def run(sizes: list[int]) -> dict[str, Any]:
    """Everything, each measurement in its own process."""
    result: dict[str, Any] = {"fleets": [child(f"fleet:{size}") for size in sizes], "openb": None}
    data = openb()
    if data is not None:
        result["openb"] = child(f"openb:{data}")
    return result


def child(what: str) -> dict[str, Any]:
    done = subprocess.run([sys.executable, __file__, "--child", what], check=True, stdout=subprocess.PIPE)
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def mark(value: float, bar: float) -> str:
    return f"bar {bar:g}: {'holds' if value <= bar else 'DOES NOT HOLD'}"


def fleet_lines(each: dict[str, Any]) -> list[str]:
    """What one fleet showed; the bars are for 5,000 nodes and more."""

    def bar(value: float, limit: float) -> str:
        return mark(value, limit) if each["nodes"] >= 5000 else ""

    decision, memory = each["decision pass s"], each["memory MB"]
    ratio = each["watch event ms"] / 1000 / max(decision, 1e-9)
    return [
        f"{each['nodes']:,} nodes, {each['pods']:,} pods",
        f"  take in (decode, sum)      {each['take in s']:>8} s",
        f"  memory of the process      {memory:>8} MB   {bar(memory, 400)}",
        f"  decision pass, all reasons {decision:>8} s    {bar(decision, 1)}   ({each['refusals']:,} refusals)",
        f"  one watch event, snapshot  {each['watch event ms']:>8} ms   {ratio:.4f} of a decision pass",
        *(
            f"  full plan {plan['strategy']:>14} {plan['placement']:>8}  {plan['s']:>7} s   keeps {plan['kept']:>5}, "
            f"{plan['evictions']:>7,} evictions   {bar(plan['s'], 10)}"
            for plan in each["plans"]
        ),
    ]


def openb_lines(data: dict[str, Any]) -> list[str]:
    """What the real cluster showed."""
    lines = [f"openb, {data['nodes']:,} nodes, at least {data['bound']} needed"]
    for plan in data["plans"]:
        line = (
            f"  {plan['strategy']:>14} {plan['placement']:>8}  keeps {plan['kept']:>4} ({plan['over bound']:.3f} of"
            f" the bound), {plan['evictions']:>5,} evictions, {plan['s']:>5} s"
        )
        if plan["strategy"] == "fewest-nodes":
            line += "   " + mark(plan["kept"], 400 if plan["placement"] == "possible" else 430)
        if "the scheduler would reach" in plan:
            line += f"   by the scheduler's own choice {plan['the scheduler would reach']}"
        lines.append(line)
    return lines


def text(result: dict[str, Any]) -> str:
    """Return the result as lines for people."""
    lines = [line for each in result["fleets"] for line in fleet_lines(each)]
    if result["openb"] is None:
        lines.append("openb: not at hand (set TIGHTSHIP_DATA to the folder of openb_cluster.json.gz)")
    else:
        lines += openb_lines(result["openb"])
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="*", default=[1000, 5000], help="nodes; 30 pods each")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        what, _, value = options.child.partition(":")
        print(json.dumps(measure_fleet(int(value)) if what == "fleet" else measure_openb(value)))
        return
    result = run(options.sizes)
    print(json.dumps(result, indent=1) if options.json else text(result))


if __name__ == "__main__":
    main()
