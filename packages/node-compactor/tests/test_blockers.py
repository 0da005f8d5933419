"""What each blocker costs: every piece of advice, followed, gains what it says, to the node."""

from __future__ import annotations

import gzip
import json
import os
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from node_compactor.advice import CompactorChanges
from node_compactor.controller import EVERY_POOL
from node_compactor.older import native
from node_compactor.settings import load_settings
from tightship.advice.adviser import Advice, Adviser
from tightship.advice.catalogue import Catalogue
from tightship.objects.reasons import Reason
from tightship.planning.changes import Scenario, TimeLimit
from tightship.planning.evaluate import evaluate
from tightship_simulator import random_cluster
from tightship_simulator.generate import off_peak_cluster
from tightship_testkit.advice import Followed, Plans, followed, planned_by
from tightship_testkit.builders import NOW, budget, controller, node, pod, snapshot, when, workload

Json = dict[str, Any]

DEFAULT: Json = {"nodePools": EVERY_POOL, "utilization": "dominant"}
GOLDEN = Path(__file__).parent / "golden"
OPENB = Path(os.environ.get("TIGHTSHIP_DATA", "/nonexistent")) / "openb_cluster.json.gz"
FLEET_TIME = "2026-11-20T03:00:00Z"
SAFE = "cluster-autoscaler.kubernetes.io/safe-to-evict"


@pytest.fixture
def plan(cli: Any, tmp_path: Path) -> Plans:
    return planned_by(cli, tmp_path, FLEET_TIME)


# -- what is said holds


@pytest.mark.parametrize("seed", range(10))
def test_every_piece_of_advice_gains_what_it_says(plan: Plans, seed: int) -> None:
    report = Followed()
    report.follow(random_cluster(seed)["items"], None, plan, DEFAULT)
    assert report.broken == []


@pytest.mark.parametrize(
    "flags",
    [
        (),
        ("--until-stable",),
        ("--strategy", "fewest-nodes", "--placement", "possible"),
        ("--strategy", "lowest-cost"),
    ],
)
def test_every_piece_of_advice_about_a_fleet_gains_what_it_says(plan: Plans, flags: tuple[str, ...]) -> None:
    report = Followed()
    report.follow(off_peak_cluster(1, nodes=20)["items"], None, plan, DEFAULT, flags)
    assert report.pieces > 1
    assert report.broken == []


@pytest.mark.parametrize("flags", [(), ("--until-stable",)])
def test_every_piece_of_advice_about_the_golden_cluster_gains_what_it_says(
    cli: Any, tmp_path: Path, flags: tuple[str, ...]
) -> None:
    objects, older = (json.loads((GOLDEN / name).read_text()) for name in ("cluster.json", "config.json"))
    # Advice names native keys, which an older configuration must not have beside its own.
    report = Followed()
    report.follow(
        objects["items"], native(older).values, planned_by(cli, tmp_path, "2026-10-01T12:00:00Z"), DEFAULT, flags
    )
    assert report.pieces > 1
    assert report.broken == []


@pytest.mark.slow
@pytest.mark.takes(3)
@pytest.mark.parametrize("seeds", [range(at, at + 5) for at in range(10, 30, 5)], ids=str)
def test_every_piece_of_advice_gains_what_it_says_on_twenty_fleets(plan: Plans, seeds: range) -> None:
    report = Followed()
    for seed in seeds:
        report.follow(random_cluster(seed)["items"], None, plan, DEFAULT)
        report.follow(off_peak_cluster(seed, nodes=12)["items"], None, plan, DEFAULT)
    assert report.pieces > 2
    assert report.broken == []


@pytest.mark.slow
@pytest.mark.takes(60)
@pytest.mark.skipif(not OPENB.exists(), reason="TIGHTSHIP_DATA names no folder with openb_cluster.json.gz")
def test_every_piece_of_advice_about_openb_gains_what_it_says(plan: Plans) -> None:
    report = Followed()
    report.follow(json.loads(gzip.decompress(OPENB.read_bytes()))["items"], None, plan, DEFAULT)
    assert report.pieces > 0
    assert report.broken == []


# -- what is said, and what is not


def fleet(*more: Json) -> list[Json]:
    """Two nodes of 4 CPUs: *roomy* has room for 2 and is opted out, *kept* has what is among *more*."""
    base = pod("base", on="roomy", cpu="2", labels={"app": "base"}, notes={"tightship.dev/do-not-drain": "true"})
    return [
        node("roomy"),
        base,
        node("kept"),
        workload(),
        budget("none", selector={"matchLabels": {"app": "none"}}),
        *more,
    ]


def advice_about(plan: Plans, *more: Json, flags: tuple[str, ...] = ()) -> list[Json]:
    """Return the advice that names something else than the node *roomy*."""
    found: list[Json] = plan(fleet(*more), None, ("--now", when(NOW), *flags))["advice"]["changes"]
    return [each for each in found if "kept" in each["freed"]]


def test_things_that_help_only_together_come_in_one_bundle(plan: Plans) -> None:
    held = pod("held", on="kept", notes={SAFE: "false"}, naked=True)
    [found] = advice_about(plan, held)
    assert [each["reason"] for each in found["changes"]] == ["NotSafeToEvict", "NotReplicated"]
    assert found["commands"] == [
        f"kubectl -n shop annotate pod held {SAFE}-",
        f"kubectl -n shop annotate pod held {SAFE}=true --overwrite",
    ]


def test_a_change_that_frees_nothing_is_not_printed(plan: Plans) -> None:
    assert advice_about(plan, pod("held", on="kept", notes={SAFE: "false"}))
    assert not advice_about(plan, pod("held", on="kept", cpu="3", notes={SAFE: "false"}))


def test_without_time_there_is_no_advice(cli: Any, data: Path) -> None:
    reported = cli("plan", "-f", data / "cluster.yaml", "--advice-time", "0").out
    assert "Advice" not in reported
    assert "without it" not in reported
    document = json.loads(cli("plan", "-f", data / "cluster.yaml", "--advice-time", "0", "-o", "json").out)
    assert "advice" not in document


def test_a_searched_plan_has_no_advice_and_says_so(cli: Any, data: Path) -> None:
    reported = cli("plan", "-f", data / "cluster.yaml", "--search", "1ms").out
    assert "Advice     none about a searched plan: plan without --search" in reported


def test_a_bad_time_is_refused(cli: Any, data: Path) -> None:
    outcome = cli("plan", "-f", data / "cluster.yaml", "--advice-time", "soon")
    assert outcome.code == 64
    assert "'soon' is not a duration" in outcome.err


def measured(seconds: float, step: float) -> Advice:
    """Advice about four nodes, each with an annotation against its drain, while each look at the clock takes *step*."""
    stays = {"tightship.dev/do-not-drain": "true"}
    cluster = snapshot(*(node(name, notes=stays) for name in "abcd"))
    tunable = CompactorChanges(load_settings({**DEFAULT, "minimumNodeAge": 0, "neededMarkedTimeForRemoval": 0}))
    base = evaluate(cluster, tunable.judge(tunable.settings), NOW)
    ticks = count()
    limits = TimeLimit(seconds, lambda: step * next(ticks))
    scenario = Scenario(cluster, tunable.settings)
    return Adviser(
        base,
        scenario,
        Catalogue(cluster, base, tunable),
        lambda each: evaluate(each.snapshot, tunable.judge(each.settings), NOW).plan,
        limits,
    ).advise()


def test_each_thing_behind_a_reason_is_measured_and_so_is_the_reason() -> None:
    advice = measured(10, 0)
    [cost] = advice.reasons
    assert (cost.reason, cost.gain.nodes) == (Reason.NODE_DO_NOT_DRAIN, 4)
    assert [(each.gain.nodes, each.freed) for each in advice.bundles] == [(1, (name,)) for name in "abcd"]
    assert advice.together is not None
    assert (advice.together.gain.nodes, advice.numbers) == (4, (1, 2, 3, 4))
    assert advice.untried == 0


def test_when_the_time_is_over_the_rest_is_counted_as_not_tried() -> None:
    advice = measured(5, 1)
    assert advice.tried < 5
    assert len(advice.bundles) + advice.untried == 4


def test_without_time_for_a_single_plan_nothing_is_tried() -> None:
    advice = measured(0.5, 1)
    assert (advice.tried, advice.bundles) == (0, ())
    assert advice.untried > 0


# -- budgets


FULL = {"disruptionsAllowed": 0, "currentHealthy": 2, "desiredHealthy": 2, "expectedPods": 2}
TWO = (pod("web-1", on="kept"), pod("web-2", on="roomy"))


@pytest.mark.parametrize(
    ("rule", "patch"),
    [
        ({"minAvailable": 2}, '{"spec":{"minAvailable":1}}'),
        ({"minAvailable": "100%"}, '{"spec":{"maxUnavailable":1,"minAvailable":null}}'),
        ({"maxUnavailable": 0}, '{"spec":{"maxUnavailable":1}}'),
    ],
)
def test_a_budget_that_never_allows_an_eviction_is_patched_to_allow_one(plan: Plans, rule: Json, patch: str) -> None:
    [found] = advice_about(plan, *TWO, budget(status=FULL, **rule))
    assert found["commands"] == [f"kubectl -n shop patch pdb web --type merge -p '{patch}'"]


ROOK = {"apiVersion": "ceph.rook.io/v1", "kind": "CephCluster", "name": "rook", "uid": "u", "controller": True}


def of_operator(name: str = "web", **spec: Any) -> Json:
    """A budget that an operator owns."""
    made = budget(name, **spec)
    made["metadata"]["ownerReferences"] = [ROOK]
    return made


@pytest.mark.parametrize(
    "budgets",
    [
        [of_operator(status=FULL, maxUnavailable=0)],
        [of_operator("one", maxUnavailable=1), of_operator("two", maxUnavailable=1)],
    ],
    ids=["never allows", "two over one pod"],
)
def test_a_budget_that_an_operator_owns_is_left_to_the_operator(plan: Plans, budgets: list[Json]) -> None:
    objects = fleet(*TWO, *budgets)
    advice = plan(objects, DEFAULT, ("--now", when(NOW)))["advice"]
    assert not any("pdb" in command for each in advice["changes"] for command in each["commands"])
    assert advice["others"]
    assert all("leave the PDB to CephCluster.ceph.rook.io/rook" in each for each in advice["others"])


def test_of_two_budgets_the_one_that_no_operator_owns_is_deleted(plan: Plans) -> None:
    [found] = advice_about(plan, *TWO, budget("one", maxUnavailable=1), of_operator("two", maxUnavailable=1))
    assert found["commands"] == ["kubectl -n shop delete pdb one"]


def test_the_command_for_a_budget_of_a_helm_release_says_where_the_change_belongs(plan: Plans) -> None:
    of_helm = budget(status=FULL, maxUnavailable=0)
    of_helm["metadata"]["annotations"] = {"meta.helm.sh/release-name": "shop"}
    [found] = advice_about(plan, *TWO, of_helm)
    assert found["commands"]
    assert found["changes"][0]["note"] == "the PDB belongs to Helm release shop: change it there to last"


def test_the_command_for_an_annotation_says_who_deploys_the_workload(plan: Plans) -> None:
    cart = workload(name="cart")
    cart["metadata"]["annotations"] = {"argocd.argoproj.io/tracking-id": "shop:apps/Deployment:shop/cart"}
    held = pod("a", on="kept", owner=controller("ReplicaSet", "cart"), notes={SAFE: "false"})
    [found] = advice_about(plan, held, cart)
    note = "replicaset/cart belongs to Argo CD application shop: change it there to last"
    assert found["changes"][0]["note"] == note


# -- topology spread

SPREAD = {
    "maxSkew": 1,
    "topologyKey": "kubernetes.io/hostname",
    "whenUnsatisfiable": "DoNotSchedule",
    "labelSelector": {"matchLabels": {"app": "web"}},
}


def spread_over(*names: str, **more: Any) -> list[Json]:
    nodes = [node(name, labels={"kubernetes.io/hostname": name}) for name in names]
    pods = [pod(f"web-{name}", on=name, topologySpreadConstraints=[SPREAD | more]) for name in names]
    return [*nodes, *pods, workload()]


@pytest.mark.parametrize(
    ("more", "goes"),
    [({}, 2), ({"minDomains": 2}, 1), ({"nodeTaintsPolicy": "Ignore"}, 2)],
    ids=["default", "two domains at least", "Ignore"],
)
def test_topology_spread_that_counts_emptied_nodes_gets_the_policy_that_does_not(
    plan: Plans, more: Json, goes: int
) -> None:
    report = Followed()
    document = report.follow(spread_over("a", "b", "c", **more), None, plan, DEFAULT, ("--now", when(NOW)))
    [found] = document["advice"]["changes"]
    assert report.broken == []
    assert found["gain"]["nodes"] == goes
    [command] = found["commands"]
    assert command.startswith("kubectl -n shop patch replicaset web -p ")
    assert '"nodeTaintsPolicy":"Honor"' in command


@pytest.mark.parametrize("more", [{"nodeTaintsPolicy": "Honor", "minDomains": 3}, {"minDomains": 3}])
def test_no_policy_is_named_where_it_frees_no_node(plan: Plans, more: Json) -> None:
    advice = plan(spread_over("a", "b", "c", **more), DEFAULT, ("--now", when(NOW)))["advice"]
    assert advice["changes"] == []


def test_of_two_budgets_over_the_same_pods_one_is_deleted(plan: Plans) -> None:
    [found] = advice_about(plan, *TWO, budget("one", maxUnavailable=1), budget("two", maxUnavailable=1))
    assert found["commands"] == ["kubectl -n shop delete pdb two"]


def test_a_budget_is_not_deleted_if_only_it_covers_some_pod(plan: Plans) -> None:
    both = pod("web-1", on="kept", labels={"app": "web", "tier": "front"})
    others = (pod("a", on="roomy"), pod("b", on="roomy", labels={"tier": "front"}))
    front = budget("two", selector={"matchLabels": {"tier": "front"}}, maxUnavailable=1)
    assert not advice_about(plan, both, *others, budget("one", maxUnavailable=1), front)


# -- one node


def bundle(cli: Any, tmp_path: Path, objects: list[Json], name: str) -> Json:
    (tmp_path / "one.json").write_text(json.dumps({"kind": "List", "items": objects}))
    [reported] = json.loads(cli("explain", name, "-f", tmp_path / "one.json", "--now", when(NOW), "-o", "json").out)[
        "nodes"
    ]
    found: Json = reported["bundle"]
    return found


def test_explain_names_the_whole_bundle_and_what_moves_then(cli: Any, tmp_path: Path) -> None:
    objects = fleet(pod("held", on="kept", notes={SAFE: "false"}))
    found = bundle(cli, tmp_path, objects, "kept")
    assert found["moves"] == [{"pod": "shop/held", "to": "roomy"}]
    for command in found["advice"]["commands"]:
        objects = followed(objects, command)
    (tmp_path / "after.json").write_text(json.dumps({"kind": "List", "items": objects}))
    document = json.loads(cli("plan", "-f", tmp_path / "after.json", "--now", when(NOW), "-o", "json").out)
    assert [each["name"] for each in document["nodes"] if each["decision"] == "remove"] == ["kept"]


def test_a_node_that_no_change_frees_gets_no_command(cli: Any, tmp_path: Path) -> None:
    objects = fleet(pod("held", on="kept", cpu="3", notes={SAFE: "false"}))
    found = bundle(cli, tmp_path, objects, "kept")
    assert found["advice"] is None
    assert [each.partition(":")[0] for each in found["remains"]] == ["NoPlace shop/held"]
    reported = cli("explain", "kept", "-f", tmp_path / "one.json", "--now", when(NOW)).out
    assert "no known change frees this node" in reported
    assert "kubectl" not in reported.partition("Smallest change")[2]


def test_the_limit_is_raised_only_as_far_as_the_node_needs(cli: Any, data: Path) -> None:
    reported = cli("explain", "web-4", "-f", data / "cluster.yaml").out
    assert 'config: {"nodePools":{"*":{"cpuRequestRatioLimit":0.88}}}' in reported
    assert "--limit 0.88" in reported


@pytest.mark.parametrize("known", [True, False], ids=["a NodePool that consolidates", "a NodePool that nobody knows"])
def test_nobody_is_told_to_switch_karpenter_off_but_what_holds_karpenter_too(plan: Plans, *, known: bool) -> None:
    of_pool = {"karpenter.sh/nodepool": "spot"}
    pool = {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "spot"}, "spec": {}}
    held = pod("held", on="n1", notes={"karpenter.sh/do-not-disrupt": "true"})
    objects = [*([pool] if known else []), *(node(name, labels=of_pool) for name in ("n1", "n2")), held, workload()]
    advice = plan(objects, DEFAULT, ("--now", when(NOW)))["advice"]
    assert advice["changes"] == []
    assert advice["others"] == [
        "Karpenter consolidates NodePool spot, but is held on 1 node too: PodDoNotDisrupt shop/held"
    ]


def test_a_nodepool_that_never_consolidates_is_patched_so_that_karpenter_only_deletes_empty_nodes(plan: Plans) -> None:
    of_pool = {"karpenter.sh/nodepool": "spot"}
    meta, off = {"name": "spot"}, {"disruption": {"consolidateAfter": "Never"}}
    pool = {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": meta, "spec": off}
    report, objects = Followed(), [pool, *(node(name, labels=of_pool) for name in ("n1", "n2"))]
    document = report.follow(objects, None, plan, DEFAULT, ("--now", when(NOW)))
    [found] = document["advice"]["changes"]
    assert report.broken == []
    patch = """'{"spec":{"disruption":{"consolidationPolicy":"WhenEmpty","consolidateAfter":"30s"}}}'"""
    assert found["commands"] == [f"kubectl patch nodepool spot --type merge -p {patch}"]


def test_a_pod_that_is_not_ready_may_go_by_the_policy_of_its_budget(plan: Plans) -> None:
    sick = pod("web-1", on="kept", ready=False)
    tight = budget(status={**FULL, "currentHealthy": 1}, minAvailable=2)
    [found] = advice_about(plan, sick, pod("web-2", on="roomy"), pod("web-3", on=None), tight)
    assert found["commands"] == [
        """kubectl -n shop patch pdb web --type merge -p '{"spec":{"unhealthyPodEvictionPolicy":"AlwaysAllow"}}'"""
    ]


# -- node groups

MINIMUM = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size"


def machines(minimum: str, **meta: Any) -> Json:
    return {
        "apiVersion": "cluster.x-k8s.io/v1beta1",
        "kind": "MachineDeployment",
        "metadata": {"name": "md", "namespace": "capi", "annotations": {MINIMUM: minimum}, **meta},
    }


def of_machines(name: str) -> Json:
    notes = {"cluster.x-k8s.io/owner-kind": "MachineSet", "cluster.x-k8s.io/owner-name": "md-x7k2p"}
    return node(name, notes=notes)


def test_the_minimum_of_a_machine_deployment_is_kept_and_lowered_by_annotation_as_far_as_the_plan_needs(
    plan: Plans,
) -> None:
    report, objects = Followed(), [machines("3"), *map(of_machines, ("n1", "n2", "n3", "n4"))]
    document = report.follow(objects, None, plan, DEFAULT, ("--now", when(NOW)))
    assert sum(each["decision"] == "remove" for each in document["nodes"]) == 1
    [found] = document["advice"]["changes"]
    assert report.broken == []
    assert found["commands"] == [f"kubectl -n capi annotate --overwrite machinedeployment md {MINIMUM}=0"]


def test_the_minimum_that_nodes_tell_is_lowered_on_all_of_them(plan: Plans) -> None:
    reported = {"tightship.dev/node-group-min-size": "2"}
    report, objects = Followed(), [node(name, notes=reported) for name in ("n1", "n2")]
    [found] = report.follow(objects, None, plan, DEFAULT, ("--now", when(NOW)))["advice"]["changes"]
    assert report.broken == []
    assert found["commands"] == ["kubectl annotate --overwrite node n1 n2 tightship.dev/node-group-min-size=0"]


@pytest.mark.parametrize(
    "other",
    [
        machines("3", ownerReferences=[{"kind": "MachineDeployment", "name": "md"}]) | {"kind": "MachineSet"},
        machines("3") | {"apiVersion": "example.com/v1"},
        machines("3", annotations={}),
    ],
    ids=["a set of a deployment", "another group", "no annotation"],
)
def test_other_machines_tell_no_minimum(plan: Plans, other: Json) -> None:
    document = plan([other, of_machines("n1"), of_machines("n2")], None, ("--now", when(NOW)))
    assert sum(each["decision"] == "remove" for each in document["nodes"]) == 2


# -- later rounds, and flags


def spent() -> list[Json]:
    """Two nodes whose pods share a budget of one eviction, and a third that stays with room for both."""
    more = [node("second"), pod("web-2", on="second"), pod("web-1", on="kept")]
    status = {"disruptionsAllowed": 1, "currentHealthy": 2, "desiredHealthy": 1, "expectedPods": 2}
    return fleet(*more, budget(status=status, maxUnavailable=1))


@pytest.mark.parametrize("held", [False, True])
def test_a_node_whose_budget_the_plan_spends_goes_in_a_later_round(cli: Any, tmp_path: Path, held: bool) -> None:
    objects = spent() + ([pod("held", on="second", notes={SAFE: "false"})] if held else [])
    found = bundle(cli, tmp_path, objects, "second")
    assert found["round"] == 2
    assert (found["advice"] is not None) is held
    for command in found["advice"]["commands"] if held else ():
        objects = followed(objects, command)
    later = {each["name"]: each.get("round") for each in planned(cli, tmp_path, objects, "--until-stable")}
    assert later["second"] == 2
    reported = cli("explain", "second", "-f", tmp_path / "one.json", "--now", when(NOW)).out
    assert "in round 2 of a plan --until-stable" in reported


def planned(cli: Any, tmp_path: Path, objects: list[Json], *flags: str) -> list[Json]:
    (tmp_path / "now.json").write_text(json.dumps({"kind": "List", "items": objects}))
    reported = cli("plan", "-f", tmp_path / "now.json", "--now", when(NOW), "-o", "json", "--advice-time", "0", *flags)
    found: list[Json] = json.loads(reported.out)["nodes"]
    return found


def test_a_line_of_values_says_which_flag_comes_first(cli: Any, data: Path) -> None:
    reported = cli("explain", "web-4", "-f", data / "cluster.yaml", "--limit", "0.7").out
    assert '{"cpuRequestRatioLimit":0.88}}}  # only without --limit: the flag wins' in reported
    assert "#" not in cli("explain", "web-4", "-f", data / "cluster.yaml").out.partition("Smallest")[2]
