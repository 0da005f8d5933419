"""A running controller on a real cluster of 1,523 nodes, in a real control plane: nodes kept, evictions, what is left.

    python bench/live.py                               all ways, until nothing is left to do: 10 minutes each
    python bench/live.py steered --minutes 5           one of them, cut short
    python bench/live.py hints --in-drain 20           pods are led to the plan's targets, twenty nodes at a time
    python bench/live.py hints --cluster apart.json    another cluster, such as those of bench/clusters.py
    python bench/live.py --removals 50 --profile       a short look, with what one pass costs
    python bench/live.py steered --keep 572 --strategy fewest-evictions
                                                       down to 572 nodes, beside the fewest evictions that are proven

`node-compactor run` is a process of its own, under an account with the rights it needs and no others. API server,
scheduler and controller-manager are Kubernetes' own; kubelets are played. The Cluster Autoscaler is stood in for by
something that deletes only what a drain has emptied, writes the autoscaler's taint first, and **adds nothing**: a pod
that the scheduler called unschedulable for ten seconds (the autoscaler's interval) is counted as a node that would have
been added back.

The anchors were measured elsewhere on the same cluster and are only printed beside: the Cluster Autoscaler 1.31 alone,
at two of its thresholds, and a model of removing one node at a time without steering.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import gzip
import json
import os
import pstats
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from planning import every_node

from node_compactor.controller import Compactor
from node_compactor.judge import CompactorJudge
from node_compactor.settings import CompactorSettings
from tightship.cli.snapshot_file import read_file
from tightship.frontier.program import Program
from tightship.planning.evaluate import evaluate
from tightship.planning.plan import STRATEGIES, Planner
from tightship.rules.disruption import DisruptionLedger
from tightship.search.limits import limits_of
from tightship.search.problem import extract
from tightship_e2e import ControlPlane, binaries, load
from tightship_e2e.charts import built
from tightship_e2e.helm import Helm
from tightship_e2e.landings import Landings
from tightship_testkit import remover as stand_in
from tightship_testkit.audit import AuditEvent
from tightship_testkit.client import Client, Items, Json
from tightship_testkit.remover import Remover
from tightship_testkit.replica import ACCOUNT, COMPACTOR, NAMESPACE, RBAC, USER, Replica, configure, new_team, permit

LIMITS = {"least-utilized": 0.75, "fewest-nodes": 1.01}
"""The Cluster Autoscaler's threshold of the anchor; and one that every node is below, however full."""

CANDIDATES = CompactorSettings().candidate_taints
"""How many nodes the controller steers away from by default."""
LITTLE, ALL = 20, 100_000


class Way(NamedTuple):
    """How a run steers pods: by soft taints on so many *candidates* of the plan, or led by the pilot as well.

    *search* is how long the controller searches for better plans. *bar* is the most nodes and evictions that it
    may cost, `None` without a bar.
    """

    strategy: str
    candidates: int
    steering: str = "taints"
    search: str = "0"
    bar: tuple[int, int] | None = None

    @property
    def led(self) -> bool:
        """Whether the pilot leads pods."""
        return self.steering == "hints"


WAYS: Mapping[str, Way] = {
    "least": Way("least-utilized", CANDIDATES),
    "unsteered": Way("fewest-nodes", 0, "off", bar=(440, 2000)),
    "steered": Way("fewest-nodes", CANDIDATES, bar=(415, 1850)),
    "steered-little": Way("fewest-nodes", LITTLE, bar=(440, 2000)),
    "steered-all": Way("fewest-nodes", ALL, bar=(440, 2000)),
    "hints": Way("fewest-nodes", CANDIDATES, "hints", "30s", bar=(367, 1600)),
}
STEERED = {LITTLE: f"the next {LITTLE}", CANDIDATES: f"the next {CANDIDATES}", ALL: "all that go"}

ANCHORS = (
    ("Cluster Autoscaler 1.31 alone, at 0.75", 569, 2001),
    ("Cluster Autoscaler 1.31 alone, at 0.5", 707, 1313),
    ("model: one at a time, without steering", 420, None),
)
NODES_IN_DRAIN = 10
LOOK = 1.0
"""Seconds between two looks of the autoscaler's stand-in: its own default is for small clusters."""
QUIET = 45.0
"""Seconds without a plan, a drain, or a pod on its way that end a run: longer than any back-off."""
UNNEEDED = 5.0
"""Seconds a node must have been empty before it is deleted; the autoscaler's own default is ten minutes."""
METRICS = 5.0
"""Seconds between two looks at the controller's metrics: with a series for each node they cost it something."""
AUTOSCALER_LOOKS = 10.0
"""Seconds a pod may be unschedulable before an autoscaler would add a node."""


def openb() -> Path | None:
    """The real cluster of the shared data, if it is at hand."""
    folder = os.environ.get("TIGHTSHIP_DATA") or Path(__file__).resolve().parents[2] / "shared" / "data"
    path = Path(folder) / "openb_cluster.json.gz"
    return path if path.exists() else None


def settings(way: Way, options: argparse.Namespace) -> dict[str, object]:
    """What is live in the ConfigMap: every pause off, so that only the work itself takes time."""
    limit = options.limit or LIMITS.get(way.strategy, 1.01)
    pool = {"enabled": True, "scaleDownCPURequestRatioLimit": limit, "scaleDownRequiredUnderutilizedNodeCount": 1}
    pool |= {"minimumNodeCount": options.keep}
    return {
        "nodePools": {"*": pool},
        "strategy": way.strategy,
        "placement": "possible" if way.led else options.placement,
        "steering": way.steering,
        "search": way.search,
        "maximumCandidateTaints": way.candidates,
        "maximumNodesInDrain": options.in_drain,
        "neededMarkedTimeForRemoval": 0,
        "minimumNodeAge": 0,
        "settleTime": 0,
        "pendingTimeout": "3s",
        "backoff": "10s",
        "backoffLimit": "30s",
        "coolDownAfterNodeAdded": 0,
        "coolDownAfterNodeDeleted": 0,
        "coolDownAfterFailure": 0,
        "clusterCoolDownAfterNodeAdded": 0,
        "clusterCoolDownAfterNodeDeleted": 0,
        "clusterCoolDownAfterFailure": 0,
        "maximumNotReadyNodeCount": 1000,
        "maximumNotReadyNodePercentage": "100%",
        "maximumAPIFailures": 1000,
    }


class Cordoned(Client):
    """Lists cordoned nodes only: all that the autoscaler's stand-in needs to see of a large cluster."""

    async def list(self, kind: str, namespace: str | None = None, **selectors: str) -> Items:
        if kind == "Node":
            selectors = {"fieldSelector": "spec.unschedulable=true", **selectors}
        return await super().list(kind, namespace, **selectors)


@dataclass
class Watched:
    """What was seen of pods without a node."""

    since: dict[str, float] = field(default_factory=dict)
    longest: float = 0.0
    would_add: set[str] = field(default_factory=set)
    pending: int = 0

    def look(self, pods: Items) -> None:
        now = time.monotonic()
        waiting = {pod["metadata"]["uid"]: pod for pod in pods if "deletionTimestamp" not in pod["metadata"]}
        self.pending = len(waiting)
        self.since = {uid: self.since.get(uid, now) for uid in waiting}
        for uid, since in self.since.items():
            self.longest = max(self.longest, now - since)
            if now - since >= AUTOSCALER_LOOKS and stand_in.unschedulable(waiting[uid]):
                self.would_add.add(uid)


@dataclass
class Outcome:
    """One run, as measured. *ended* says what ended it: nothing left to do, or a bound of ours."""

    way: str
    strategy: str
    candidates: int
    limit: float
    in_drain: int
    bar: tuple[int, int] | None = None
    ended: str = ""
    kept: int = 0
    evictions: int = 0
    proven: int = 0
    """The fewest evictions with which any plan of one round keeps as few nodes."""
    removed: int = 0
    twice: int = 0
    pending: int = 0
    longest_pending: float = 0.0
    added_back: int = 0
    seconds: float = 0.0
    passes: int = 0
    pass_seconds: float = 0.0
    cpu_seconds: float = 0.0
    drains: dict[str, int] = field(default_factory=dict)
    answers: dict[str, int] = field(default_factory=dict)
    requests: dict[str, int] = field(default_factory=dict)
    landings: dict[str, int] = field(default_factory=dict)
    why: dict[str, int] = field(default_factory=dict)
    """Of the nodes that are kept, how many by which reason, against fresh plans of the end."""

    @property
    def finished(self) -> bool:
        return self.ended == "nothing left to do"


SAMPLE = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$", re.MULTILINE)


def series(text: str, name: str) -> dict[str, float]:
    """The samples of one metric, by their labels as written."""
    return {labels: float(value) for found, labels, value in SAMPLE.findall(text) if found == name}


def total(text: str, name: str) -> float:
    return sum(series(text, name).values())


async def drive(
    api: Client, plane: ControlPlane, remover: Remover, replica: Replica, outcome: Outcome, options: argparse.Namespace
) -> None:
    """Wait until nothing is left to do, or a bound is reached; fill in *outcome*."""
    watched, began, quiet_since = Watched(), time.monotonic(), None
    shown, asked_at, text = 0.0, 0.0, ""
    while True:
        await asyncio.sleep(1)
        watched.look(await api.list("Pod", fieldSelector="spec.nodeName="))
        now = time.monotonic()
        if now >= asked_at + METRICS:
            asked_at = now
            status, answer = await replica.get("/metrics")
            text = answer if status == 200 else text
        planned, in_drain = total(text, "tightship_nodes_planned"), total(text, "tightship_drains_in_phase")
        passes = total(text, "tightship_loop_duration_seconds_count")
        busy = planned or in_drain or watched.pending or not passes
        quiet_since = None if busy else (quiet_since or now)
        if now >= shown + 15:
            shown = now
            evictions = total(text, "tightship_evictions_total")
            print(
                f"    {outcome.way} {now - began:5.0f} s: {len(remover.removed)} removed, planned {planned:.0f},"
                f" in drain {in_drain:.0f}, pending {watched.pending}, evictions {evictions:.0f}",
                file=sys.stderr, flush=True,
            )  # fmt: skip
        if replica.code is not None:
            outcome.ended = f"the controller ended with {replica.code}"
        elif quiet_since is not None and now >= quiet_since + QUIET:
            outcome.ended = "nothing left to do"
            now = quiet_since
        elif options.removals and len(remover.removed) >= options.removals:
            outcome.ended = f"cut short after {options.removals} removals"
        elif now >= began + options.minutes * 60:
            outcome.ended = f"cut short after {options.minutes:g} minutes"
        if outcome.ended:
            break
    outcome.seconds = now - began
    outcome.cpu_seconds = total(text, "process_cpu_seconds_total")
    outcome.passes = int(total(text, "tightship_loop_duration_seconds_count"))
    outcome.pass_seconds = total(text, "tightship_loop_duration_seconds_sum") / max(1, outcome.passes)
    outcome.drains = {labels: int(value) for labels, value in series(text, "tightship_drains_total").items()}
    outcome.answers = {k: int(v) for k, v in series(text, "tightship_evictions_total").items() if v}
    outcome.landings = {labels: int(value) for labels, value in series(text, "tightship_landings_total").items()}
    if replica.code is None:
        replica.asked_to_end()
        await replica.ended()
    await asyncio.sleep(3)  # what was evicted last finds a place
    watched.look(await api.list("Pod", fieldSelector="spec.nodeName="))
    end = {kind: await api.list(kind) for kind in ("Node", "Pod", "ReplicaSet", "StatefulSet")}
    outcome.kept = len(end["Node"])
    saved = options.out / f"live-{outcome.way}-end.json.gz"
    _save(saved, end)
    outcome.why = why_kept(saved, outcome, options)
    outcome.pending, outcome.longest_pending = watched.pending, watched.longest
    events = plane.audit_events()
    evicted = accepted(events)
    outcome.proven = fewest_evictions(options.cluster, outcome.kept)
    outcome.evictions, outcome.twice = sum(evicted.values()), sum(count > 1 for count in evicted.values())
    # A replacement has a name of its own, so of pods that move twice each move is another name.
    outcome.removed = len(remover.removed)
    added = sum(
        event.verb == "create" and event.object_ref.resource == "nodes" and event.code == 201 for event in events
    )
    outcome.added_back = added + len(watched.would_add)
    outcome.requests = dict(asked(events).most_common(12))


def _save(path: Path, things: Mapping[str, Items]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    versions = {kind: "v1" if kind in ("Node", "Pod") else "apps/v1" for kind in things}
    items = [{**each, "kind": kind, "apiVersion": versions[kind]} for kind, found in things.items() for each in found]
    whole = {"apiVersion": "v1", "kind": "List", "metadata": {}, "items": items}
    path.write_bytes(gzip.compress(json.dumps(whole).encode()))


def why_kept(path: Path, outcome: Outcome, options: argparse.Namespace) -> dict[str, int]:
    """Count the kept nodes by the first reason of a fresh plan, and what fresh plans would still remove."""
    snapshot = read_file(str(path))
    found: Counter[str] = Counter()
    live = settings(WAYS[outcome.way]._replace(strategy=outcome.strategy), options)
    own = str(live["placement"])
    for placement in dict.fromkeys((own, "possible")):
        now = {**live, "search": "0", "placement": placement}
        judge = CompactorJudge(Compactor().configured({"config.yaml": json.dumps(now)}, {}))
        plan = evaluate(snapshot, judge, time.time()).plan
        if placement == own:
            found.update(str(min(refusals).reason.value) for refusals in plan.refusals.values())
        found[f"could go by {placement}"] = len(plan.removals)
    return dict(found)


def fewest_evictions(path: Path, kept: int) -> int:
    """Return how many pods any plan evicts that keeps *kept* nodes of the cluster at *path*, at least."""
    snapshot = read_file(str(path))
    judgement = every_node(snapshot)
    planner = Planner(snapshot, DisruptionLedger(snapshot), judgement.candidates, "possible")
    problem = extract(planner, limits_of(judgement.gates, planner))
    choice = None if problem is None else Program(problem).fewest(len(snapshot.nodes) - kept)
    return 0 if choice is None else choice.least


def accepted(events: Iterable[AuditEvent]) -> Counter[str]:
    """Evictions that the API server granted the controller, by pod."""
    return Counter(
        f"{event.object_ref.namespace}/{event.object_ref.name}"
        for event in events
        if event.object_ref.subresource == "eviction" and event.code == 201 and event.user.username == USER
    )


def asked(events: Iterable[AuditEvent]) -> Counter[str]:
    """The controller's requests by verb, resource and status."""
    return Counter(
        f"{event.verb} {event.object_ref.resource}{'/' if event.object_ref.subresource else ''}"
        f"{event.object_ref.subresource} {event.code}"
        for event in events
        if event.user.username == USER
    )


def measure(way: str, cluster: Json, options: argparse.Namespace) -> Outcome:
    """One run in a control plane of its own."""
    chosen = WAYS[way]._replace(**({"strategy": options.strategy} if options.strategy else {}))
    strategy, candidates = chosen.strategy, chosen.candidates
    bar = chosen.bar if options.cluster == openb() and not options.keep else None
    outcome = Outcome(way, strategy, candidates, options.limit or LIMITS.get(strategy, 1.01), options.in_drain, bar)
    team = new_team()
    with ControlPlane(audit=True) as plane:

        async def main(api: Client) -> None:
            report = await load(api, cluster)
            print(f"  {way}: {report.nodes} nodes, {report.bound} pods in {report.seconds:.0f} s", file=sys.stderr)
            for problem in report.problems[:5]:
                print(f"    {problem}", file=sys.stderr)
            await permit(api)
            led = await asyncio.to_thread(_install_policies, plane, chosen.steering) if chosen.led else {}
            if led:
                await _permit_to_lead(api)
            await configure(api, team, settings(chosen, options))
            kubeconfig = await asyncio.to_thread(plane.service_account_kubeconfig, NAMESPACE, ACCOUNT, lifetime=7200)
            plane.audit_events()
            replica = Replica(
                plane, team, kubeconfig, COMPACTOR, LOG_LEVEL=options.log_level, LOG_FORMAT="text",
                LEASE_DURATION="15", LEASE_RENEW_DEADLINE="10", LEASE_RETRY_PERIOD="2",
                REQUEST_TIMEOUT="30", **led,
            )  # fmt: skip
            try:
                async with (
                    Cordoned.by_token(plane.server, plane.token, plane.ca_file) as narrow,
                    Remover(narrow, UNNEEDED) as remover,
                ):
                    await drive(api, plane, remover, replica, outcome, options)
            finally:
                options.out.mkdir(parents=True, exist_ok=True)
                (options.out / f"live-{way}.log").write_text(replica.log)
                (options.out / f"live-{way}.json").write_text(json.dumps(asdict(outcome), indent=1) + "\n")

        plane.run(main)
    return outcome


def _install_policies(plane: ControlPlane, steering: str) -> dict[str, str]:
    """Install the chart's policies without its controller, and return what a replica has to know of them."""
    with tempfile.TemporaryDirectory(prefix="tightship-live-") as folder:
        home = Path(folder)
        helm = Helm(binaries.find("helm")["helm"], home, plane.kubeconfig)
        policies = Landings(plane, built(helm, home / "charts"), home, "node-compactor", NAMESPACE)
        policies.install(steering)
    return {"LANDINGS_CONFIG_MAP_NAME": policies.name}


async def _permit_to_lead(api: Client) -> None:
    """Give the controller's account what its chart gives for landings."""
    name = f"{ACCOUNT}-landings"
    rules: list[Json] = [
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "patch"]},
    ]
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    subject = {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": NAMESPACE}
    binding: Json = {"metadata": {"name": name}, "roleRef": role, "subjects": [subject]}
    await api.call("POST", f"{RBAC}/clusterroles", body={"metadata": {"name": name}, "rules": rules})
    await api.call("POST", f"{RBAC}/clusterrolebindings", body=binding)


def profile(path: Path, options: argparse.Namespace) -> None:
    """What dominates one pass over the whole cluster."""
    snapshot = read_file(str(path))
    for strategy in LIMITS:
        text = json.dumps(settings(Way(strategy, CANDIDATES), options))
        parsed = Compactor().configured({"config.yaml": text}, {})
        now, start = time.time(), time.process_time()
        found = evaluate(snapshot, CompactorJudge(parsed), now)
        spent = time.process_time() - start
        print(f"one pass of {strategy}: {spent:.2f} CPU s, {len(found.plan.removals)} removals planned")
        profiler = cProfile.Profile()
        profiler.runcall(evaluate, snapshot, CompactorJudge(parsed), now)
        pstats.Stats(profiler).sort_stats("cumulative").print_stats(25)


def text(outcomes: Iterable[Outcome]) -> str:
    """The table, anchors beneath."""
    columns = ("nodes kept", "evictions", "pending", "added back", "given up", "wall s", "passes", "s each", "CPU s")
    lines = [" " * 44 + "".join(f"{name:>11}" for name in columns)]
    for each in outcomes:
        steered = "without steering" if not each.candidates else f"steering from {STEERED[each.candidates]}"
        if WAYS[each.way].led:
            steered = f"steering: {WAYS[each.way].steering}"
        given_up = sum(count for labels, count in each.drains.items() if 'ending="restored"' in labels)
        values = (
            f"{each.kept:,}", f"{each.evictions:,}", each.pending, each.added_back, given_up, f"{each.seconds:.0f}",
            each.passes, f"{each.pass_seconds:.2f}", f"{each.cpu_seconds:.0f}",
        )  # fmt: skip
        lines.append(f"{f'{each.strategy}, {steered}':44}" + "".join(f"{value:>11}" for value in values))
        lines += [f"    {note}" for note in notes(each)]
    for name, kept, evictions in ANCHORS:
        lines.append(f"{name:44}{kept:>11,}" + (f"{evictions:>11,}" if evictions is not None else ""))
    return "\n".join(lines)


def notes(each: Outcome) -> list[str]:
    """What the figures of one run don't say."""
    found = [f"nodes below {each.limit:g} of CPU may go, {each.in_drain} in drain at once"]
    if not each.finished:
        found.append(f"ended early: {each.ended}")
    if each.removed:
        found.append(f"{each.evictions / each.removed:.2f} evictions for each of {each.removed:,} removed nodes")
    if each.proven:
        over = each.evictions / each.proven - 1
        found.append(f"{each.proven:,} evictions are proven for {each.kept:,} nodes: {over:.1%} above")
    if each.why:
        counts = ", ".join(f"{reason} {count:,}" for reason, count in each.why.items())
        found.append(f"of the nodes kept, by a fresh plan: {counts}")
    if each.landings:
        on_target = sum(count for labels, count in each.landings.items() if 'result="target"' in labels)
        every = sum(each.landings.values())
        found.append(f"{on_target:,} of {every:,} replacements landed on their target")
    if each.longest_pending >= 1:
        found.append(f"a pod waited {each.longest_pending:.0f} s for a node")
    if each.twice:
        found.append(f"{each.twice} pods were evicted more than once")
    bar = each.bar
    if each.finished and bar is not None:
        nothing_lost = not each.pending and not each.added_back
        holds = each.kept <= bar[0] and each.evictions <= bar[1] and nothing_lost
        told = f"at most {bar[0]} nodes and {bar[1]:,} evictions, none pending, none added back"
        found.append(f"bar {told}: {'holds' if holds else 'DOES NOT HOLD'}")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ways", nargs="*", choices=[*WAYS, []], help=f"{', '.join(WAYS)}; all where none is given")
    parser.add_argument("--minutes", type=float, default=60.0, help="the longest that one run may take (60)")
    parser.add_argument("--removals", type=int, default=0, help="end a run after so many")
    parser.add_argument("--in-drain", type=int, default=NODES_IN_DRAIN, help=f"nodes at once ({NODES_IN_DRAIN})")
    parser.add_argument("--limit", type=float, default=0.0, help="CPU ratio below which nodes may go (see the table)")
    parser.add_argument("--keep", type=int, default=0, help="nodes that stay: the plan ends there (0)")
    parser.add_argument("--strategy", choices=sorted(STRATEGIES), help="instead of the way's own")
    parser.add_argument(
        "--placement",
        default="likely",
        choices=["possible", "likely"],
        help="where the pilot leads no pods (likely)",
    )
    parser.add_argument("--cluster", type=Path, default=openb(), help="a List as kubectl prints it (openb)")
    parser.add_argument("--profile", action="store_true", help="first show what one pass costs")
    parser.add_argument("--log-level", default="info", help="of the controller's log in the output folder")
    parser.add_argument("--out", type=Path, default=Path(__file__).resolve().parent / "out")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    path: Path | None = options.cluster
    if path is None:
        print("openb_cluster.json.gz is not at hand: name its folder in TIGHTSHIP_DATA", file=sys.stderr)
        return 1
    if options.profile:
        profile(path, options)
    raw = path.read_bytes()
    cluster: dict[str, Any] = json.loads(gzip.decompress(raw) if path.suffix == ".gz" else raw)
    stand_in.LOOK = LOOK
    outcomes = [measure(way, cluster, options) for way in options.ways or WAYS]
    print(json.dumps([asdict(each) for each in outcomes], indent=1) if options.json else text(outcomes))
    return 0


if __name__ == "__main__":
    sys.exit(main())
