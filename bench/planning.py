"""What judging and planning cost, and how few nodes the plans keep.

    python bench/planning.py                 1,000/30,000 and 5,000/150,000 nodes/pods, rivals, and openb if at hand
    python bench/planning.py --sizes 1000    a smaller one
    python bench/planning.py --passes        only the passes
    python bench/planning.py --advice        only advice
    python bench/planning.py --json

Each row is made in a process of its own. Seconds are CPU seconds of one core (noise of a shared machine left out as far
as may be); *memory* is the process's largest resident set, with the connection imported as a running controller
has it, the whole fleet held as the controller holds it and one decision pass made. Fleets come from the project's own
generator, object by object through the decoder, as a list from the API server would.

*passes* are those of a controller that runs: one after 100 pods have changed (their readiness, their node, or they are
gone or new), and one a minute later without any change; medians of several. *rivals* are fleets whose applications
exclude each other (the generator's ``--conflicts``).

*advice* is about generated clusters of 2,000 nodes: how many sets of changes it plans with in its time, and how many of
them gain something.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import math
import os
import random
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec

from node_compactor.advice import CompactorChanges
from node_compactor.controller import Compactor
from node_compactor.judge import CompactorJudge
from node_compactor.settings import load_settings
from node_refiner.judge import RefinerJudge
from node_refiner.settings import RefinerSettings
from tightship.advice.adviser import Advising
from tightship.cli.app import COLLECTIONS
from tightship.cli.commands import ADVICE_TIME
from tightship.cli.snapshot_file import read_file
from tightship.cluster import ClusterState, Snapshot
from tightship.objects import KINDS, decode
from tightship.objects.reasons import Refusal
from tightship.planning.changes import TimeLimit
from tightship.planning.evaluate import Evaluator, Horizon, evaluate
from tightship.planning.plan import (
    STRATEGIES,
    Candidate,
    Gates,
    Judgement,
    Placement,
    Planner,
    SearchRules,
    forecast,
    make_plan,
)
from tightship.search.strategy import Searching
from tightship_simulator.generate import NOW, objects

PODS_PER_NODE = 30
OPENB_BOUND = 365
"""Nodes that the openb cluster provably needs (field measurements of packing)."""

SEARCHES = {10.0: 375, 30.0: 369}
"""CPU seconds of the searches on the openb cluster, and the nodes that each may keep."""

EVERY_POOL = {
    "nodePools": {"*": {"enabled": True, "scaleDownCPURequestRatioLimit": 0.75}},
    "minimumNodeAge": 0,
    "neededMarkedTimeForRemoval": 0,
    "disabledRules": ["LocalStorage", "NotReplicated", "JobRunning"],
}


RIVALS = ((400, 6000, 13000), (300, 4000, 8000))
"""Nodes, pods and conflicts of the fleets of rivals."""

CHANGES = 100
"""Pods that change between two passes."""

REPEATS = 5

ADVISED, SEEDS, TRIES = 2000, (1, 2, 3, 4), 10
"""Nodes and seeds of the clusters for advice, and the sets of changes with which it is to plan at least."""

BARS: dict[tuple[int, int], float] = {(1000, 30000): 0.3, (5000, 150000): 1.4, (400, 6000): 0.5, (300, 4000): 0.5}
"""Most CPU seconds of a pass of node-compactor, by nodes and pods."""

REFINER = 1.5
"""How much longer a pass of node-refiner may take."""


def openb() -> Path | None:
    """The real cluster of the shared data, if it is at hand."""
    folder = os.environ.get("TIGHTSHIP_DATA") or Path(__file__).resolve().parents[2] / "shared" / "data"
    path = Path(folder) / "openb_cluster.json.gz"
    return path if path.exists() else None


def cpu() -> float:
    return time.process_time()


def fleet(nodes: int, pods: int, conflicts: int = 0, seed: int = 1) -> tuple[ClusterState, float]:
    """A generated fleet in the state, and the CPU seconds decoding and taking it in cost."""
    state, spent = ClusterState(), 0.0
    encode = msgspec.json.Encoder().encode
    for thing in objects(seed, nodes, pods=pods, conflicts=conflicts):
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
    importlib.import_module("tightship.kube.connection")
    state, taken_in = fleet(nodes, nodes * PODS_PER_NODE)
    now = NOW.timestamp()
    snapshot = state.snapshot()
    start = cpu()
    decided = evaluate(snapshot, CompactorJudge(load_settings(EVERY_POOL)), now).plan
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
        for placement in ("possible", "likely"):
            start = cpu()
            chosen = {"strategy": name, "placement": placement}
            plan = evaluate(snapshot, CompactorJudge(load_settings(EVERY_POOL | chosen)), now).plan
            result["plans"].append(
                {"strategy": name, "placement": placement, "s": round(cpu() - start, 2),
                 "kept": nodes - len(plan.removals), "evictions": plan.evictions}
            )  # fmt: skip
    return result


def measure_passes(nodes: int, pods: int, conflicts: int) -> dict[str, Any]:
    """CPU seconds of the passes of both controllers of nodes, as they run."""
    state, _ = fleet(nodes, pods, conflicts)
    rng, now = random.Random(1), NOW.timestamp()
    rows: list[dict[str, Any]] = []
    judges = (
        ("node-compactor", CompactorJudge(load_settings(EVERY_POOL))),
        ("node-refiner", RefinerJudge(RefinerSettings())),
    )
    for name, judge in judges:
        changed, same = list[float](), list[float]()
        passes = Evaluator()
        one_pass(passes, state, judge, now)  # imports, and what objects remember of each other
        gc.collect()
        for _ in range(REPEATS):
            change(state, rng)
            changed.append(one_pass(passes, state, judge, now))
            now += 60
            same.append(one_pass(passes, state, judge, now))
        seconds = [statistics.median(each) for each in (changed, same)]
        rows.append({"controller": name, "s": [round(each, 4) for each in seconds]})
    return {"nodes": nodes, "pods": pods, "conflicts": conflicts, "passes": rows}


def measure_advice(seed: int) -> dict[str, Any]:
    """What advice plans with in its time, of one core: 12 pods a node, as ``plan`` judges without a configuration."""
    state, _ = fleet(ADVISED, ADVISED * 12, seed=seed)
    settings = Compactor().planned(None, {})
    changes, horizon = CompactorChanges(settings), Horizon()
    start = cpu()
    base = evaluate(state.snapshot(), changes.judge(settings), NOW.timestamp(), horizon)
    planned = cpu() - start
    limits = TimeLimit(ADVICE_TIME, cpu, planned)
    advice = Advising(changes, state.snapshot(), base, horizon, limits)._adviser(ADVICE_TIME).advise()
    row = {"nodes": ADVISED, "seed": seed, "plan s": round(planned, 2), "s": ADVICE_TIME, "tried": advice.tried}
    return row | {"known": advice.tried + advice.untried, "gains": len(advice.bundles)}


def one_pass(passes: Evaluator, state: ClusterState, judge: Any, now: float) -> float:
    snapshot = state.snapshot()
    start = cpu()
    passes(snapshot, judge, now)
    return cpu() - start


def change(state: ClusterState, rng: random.Random) -> None:
    """Change :data:`CHANGES` pods: a third each turns ready or unready, leaves, and comes again on another node."""
    views = [view for view in state.snapshot().nodes.values() if any(not pod.daemon for pod in view.pods)]
    for number in range(CHANGES):
        pod = rng.choice([pod for pod in rng.choice(views).pods if not pod.daemon])
        if number % 3 == 0:
            state.upsert("Pod", msgspec.structs.replace(pod, ready=not pod.ready))
        elif number % 3 == 1:
            state.delete("Pod", pod.namespace, pod.name)
        else:
            name, node = f"{pod.name}-{rng.randrange(10**6)}", rng.choice(views).name
            state.upsert("Pod", msgspec.structs.replace(pod, name=name, node=node))


def one_event(state: ClusterState, snapshot: Snapshot) -> float:
    """CPU seconds from one changed pod to the next snapshot, mean of many."""
    pods = [pod for view in snapshot.nodes.values() for pod in view.pods][:: max(1, snapshot.pod_count // 200)]
    start = cpu()
    for pod in pods:
        state.upsert("Pod", msgspec.structs.replace(pod, ready=not pod.ready))
        state.snapshot()
    return (cpu() - start) / len(pods)


class _NoGates(Gates):
    def refuses(self, candidate: Candidate, planner: Planner) -> list[Refusal]:  # noqa: ARG002
        return []


def every_node(snapshot: Snapshot) -> Judgement:
    """Every node a candidate, whatever its utilization: what packing alone can reach."""
    candidates = tuple(
        Candidate(
            name,
            "",
            view.usage.requested.get("cpu", 0) / max(1, view.node.allocatable.get("cpu", 0)),
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
        for placement in ("possible", "likely"):
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
    for seconds, bar in SEARCHES.items():
        start = cpu()
        searching = Searching(STRATEGIES["fewest-nodes"], SearchRules(seconds=seconds, clock=cpu))
        plan = make_plan(snapshot, every_node, searching, "possible")
        kept = nodes - len(plan.removals)
        rows.append({"strategy": f"search {seconds:g} s", "placement": "possible", "kept": kept,
                     "over bound": round(kept / OPENB_BOUND, 3), "evictions": plan.evictions,
                     "s": round(cpu() - start, 2), "bar": bar})  # fmt: skip
    return {"nodes": nodes, "bound": OPENB_BOUND, "plans": rows}


def run(sizes: list[int], *, only_passes: bool) -> dict[str, Any]:
    """Everything, each measurement in its own process."""
    fleets = [] if only_passes else [child(f"fleet:{size}") for size in sizes]
    seen = [*((size, size * PODS_PER_NODE, 0) for size in sizes), *RIVALS]
    passes = [child(f"passes:{nodes},{pods},{conflicts}") for nodes, pods, conflicts in seen]
    advice = [] if only_passes else [child(f"advice:{seed}") for seed in SEEDS]
    result: dict[str, Any] = {"fleets": fleets, "passes": passes, "advice": advice, "openb": None}
    data = openb()
    if data is not None and not only_passes:
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


def pass_lines(each: dict[str, Any]) -> list[str]:
    """What the passes over one fleet cost."""
    conflicts = f", {each['conflicts']:,} conflicts" if each["conflicts"] else ""
    lines = [f"passes, {each['nodes']:,} nodes, {each['pods']:,} pods{conflicts}"]
    bar = BARS.get((each["nodes"], each["pods"]), math.inf)
    for row in each["passes"]:
        most = bar * (REFINER if row["controller"] == "node-refiner" else 1)
        changed, same = row["s"]
        lines.append(
            f"  {row['controller']:>14} {f'{CHANGES} changes':>12} {changed * 1000:>8.1f} ms   {mark(changed, most)}"
        )
        lines.append(f"  {row['controller']:>14} {'no change':>12} {same * 1000:>8.1f} ms")
    return lines


def advice_line(each: dict[str, Any]) -> str:
    """What advice about one cluster came to."""
    tried = f"{each['tried']} of {each['known']} sets of changes in {each['s']:g} s, of which {each['gains']} gain"
    bar = f"bar {TRIES}: {'holds' if each['tried'] >= TRIES else 'DOES NOT HOLD'}"
    return f"advice, {each['nodes']:,} nodes, seed {each['seed']}: {tried} (plan {each['plan s']} s)   {bar}"


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
        if "bar" in plan:
            line += "   " + mark(plan["kept"], plan["bar"])
        if "the scheduler would reach" in plan:
            line += f"   by the scheduler's own choice {plan['the scheduler would reach']}"
        lines.append(line)
    return lines


def text(result: dict[str, Any]) -> str:
    """Return the result as lines for people."""
    lines = [line for each in result["fleets"] for line in fleet_lines(each)]
    lines += [line for each in result["passes"] for line in pass_lines(each)]
    lines += [advice_line(each) for each in result["advice"]]
    if result["openb"] is None:
        lines.append("openb: not at hand (set TIGHTSHIP_DATA to the folder of openb_cluster.json.gz)")
    else:
        lines += openb_lines(result["openb"])
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="*", default=[1000, 5000], help="nodes; 30 pods each")
    parser.add_argument("--passes", action="store_true", help="only what passes cost")
    parser.add_argument("--advice", action="store_true", help="only advice")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        gc.set_threshold(*COLLECTIONS)
        what, _, value = options.child.partition(":")
        if what == "passes":
            nodes, pods, conflicts = map(int, value.split(","))
            print(json.dumps(measure_passes(nodes, pods, conflicts)))
        elif what == "advice":
            print(json.dumps(measure_advice(int(value))))
        else:
            print(json.dumps(measure_fleet(int(value)) if what == "fleet" else measure_openb(value)))
        return
    if options.advice:
        advice = [child(f"advice:{seed}") for seed in SEEDS]
        print(json.dumps(advice, indent=1) if options.json else "\n".join(map(advice_line, advice)))
        return
    result = run(options.sizes, only_passes=options.passes)
    print(json.dumps(result, indent=1) if options.json else text(result))


if __name__ == "__main__":
    main()
