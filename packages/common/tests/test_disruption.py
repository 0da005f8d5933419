"""PodDisruptionBudgets: what the eviction API would answer, and how a plan spends what they allow."""

from __future__ import annotations

from typing import Any

import pytest

from tightship.cluster import Snapshot
from tightship.objects import ObjectError
from tightship.objects.reasons import Reason
from tightship.rules.disruption import Charge, DisruptionLedger, RenewedLedger
from tightship_testkit.builders import budget, controller, node, pod, pod_of, snapshot, state_of, workload

Json = dict[str, Any]

NONE = {"disruptionsAllowed": 0}
NEVER = {**NONE, "currentHealthy": 2, "desiredHealthy": 2, "expectedPods": 2}
BETA = {"apiVersion": "policy/v1beta1"}
ILL = {**NONE, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 2}


def owning(name: str, replicas: int) -> Json:
    return {**workload(name=name), "spec": {"replicas": replicas}}


def charged(cluster: Snapshot, *names: str) -> tuple[Charge, list[Reason]]:
    charge, refusals = DisruptionLedger(cluster).charge([pod_of(cluster, name) for name in names or ("web-1",)])
    return charge, sorted(refusal.reason for refusal in refusals)


ANSWERS: list[tuple[str, Json, list[Json], list[Reason]]] = [
    ("no budget", {}, [], []),
    ("a budget that allows one", {}, [budget()], []),
    ("a budget that allows nothing now", {}, [budget(status=ILL)], [Reason.PDB_EXHAUSTED]),
    ("a budget that wants all pods", {}, [budget(status=NEVER)], [Reason.PDB_NEVER_ALLOWS]),
    ("maxUnavailable 0", {}, [budget(status=ILL, maxUnavailable=0)], [Reason.PDB_NEVER_ALLOWS]),
    ("maxUnavailable 0%", {}, [budget(status=ILL, maxUnavailable="0%")], [Reason.PDB_NEVER_ALLOWS]),
    (
        "no rule at all, of which no pods are expected",
        {},
        [budget(status={**NONE, "currentHealthy": 2, "desiredHealthy": 0, "expectedPods": 0}, minAvailable=None)],
        [Reason.PDB_NEVER_ALLOWS],
    ),
    (
        "maxUnavailable 1 over pods without controllers",
        {},
        [budget(status={**NONE, "currentHealthy": 2, "desiredHealthy": 0, "expectedPods": 0}, maxUnavailable=1)],
        [Reason.PDB_NEVER_ALLOWS],
    ),
    ("a status older than the spec", {}, [budget(generation=2)], [Reason.PDB_NOT_CURRENT]),
    ("a status never written", {}, [budget(observed=0)], [Reason.PDB_NOT_CURRENT]),
    ("a failed sync", {}, [budget(failed="no scale")], [Reason.PDB_SYNC_FAILED]),
    ("two budgets", {}, [budget("a"), budget("b")], [Reason.MULTIPLE_PDBS]),
    ("two budgets, both exhausted", {}, [budget("a", status=ILL), budget("b", status=ILL)], [Reason.MULTIPLE_PDBS]),
    ("an empty selector matches all", {}, [budget(selector={}, status=ILL)], [Reason.PDB_EXHAUSTED]),
    ("an empty selector of v1beta1 matches none", {}, [BETA | budget(selector={}, status=ILL)], []),
    ("an empty list of labels in v1beta1", {}, [BETA | budget(selector={"matchLabels": {}}, status=ILL)], []),
    ("labels in v1beta1", {}, [BETA | budget(status=ILL)], [Reason.PDB_EXHAUSTED]),
    ("another label", {}, [budget(selector={"matchLabels": {"app": "db"}}, status=ILL)], []),
    ("another namespace", {}, [budget(namespace="lab", status=ILL)], []),
    ("a Pending pod needs no budget", {"phase": "Pending", "ready": False}, [budget(status=NEVER)], []),
    ("a Pending pod may have two", {"phase": "Pending", "ready": False}, [budget("a"), budget("b")], []),
    ("a Pending pod under a stale status", {"phase": "Pending", "ready": False}, [budget(generation=2)], []),
    ("unhealthy, others suffice", {"ready": False}, [budget(status=ILL)], []),
    (
        "unhealthy, others don't suffice",
        {"ready": False},
        [
            budget(status={**ILL, "currentHealthy": 0}),
        ],
        [Reason.PDB_EXHAUSTED],
    ),
    (
        "unhealthy, none wanted",
        {"ready": False},
        [
            budget(status={**NONE, "desiredHealthy": 0, "currentHealthy": 0}),
        ],
        [Reason.PDB_EXHAUSTED],
    ),
    (
        "unhealthy, AlwaysAllow",
        {"ready": False},
        [
            budget(status={**ILL, "currentHealthy": 0}, unhealthyPodEvictionPolicy="AlwaysAllow"),
        ],
        [],
    ),
    (
        "unhealthy, IfHealthyBudget by name",
        {"ready": False},
        [
            budget(status={**ILL, "currentHealthy": 0}, unhealthyPodEvictionPolicy="IfHealthyBudget"),
        ],
        [Reason.PDB_EXHAUSTED],
    ),
    (
        "healthy, AlwaysAllow",
        {},
        [
            budget(status=ILL, unhealthyPodEvictionPolicy="AlwaysAllow"),
        ],
        [Reason.PDB_EXHAUSTED],
    ),
]


@pytest.mark.parametrize(("given", "budgets", "found"), [row[1:] for row in ANSWERS], ids=[row[0] for row in ANSWERS])
def test_what_an_eviction_would_meet(given: Json, budgets: list[Json], found: list[Reason]) -> None:
    assert charged(snapshot(node(), pod(**given), *budgets))[1] == found


@pytest.mark.parametrize(
    ("rule", "replicas", "found"),
    [
        ({"minAvailable": 2}, 3, Reason.PDB_EXHAUSTED),
        ({"minAvailable": 2}, 2, Reason.PDB_NEVER_ALLOWS),
        ({"minAvailable": "100%"}, 3, Reason.PDB_NEVER_ALLOWS),
        ({"maxUnavailable": 0}, 3, Reason.PDB_NEVER_ALLOWS),
    ],
)
def test_a_number_is_held_against_the_pods_that_exist_of_which_a_replacement_is_none_yet(
    rule: Json, replicas: int, found: Reason
) -> None:
    pods = [pod(f"web-{number}", owner=controller("ReplicaSet", "web")) for number in (1, 2)]
    assert charged(snapshot(node(), owning("web", replicas), *pods, budget(status=NEVER, **rule)))[1] == [found]


@pytest.mark.parametrize(("old", "new", "found"), [(1, 2, Reason.PDB_EXHAUSTED), (1, 1, Reason.PDB_NEVER_ALLOWS)])
def test_the_pods_of_a_budget_may_be_of_several_workloads_as_in_a_rollout(old: int, new: int, found: Reason) -> None:
    rollout = [owning("old", old), owning("new", new)]
    pods = [pod(name, owner=controller("ReplicaSet", of)) for name, of in (("web-1", "old"), ("web-2", "new"))]
    assert charged(snapshot(node(), *rollout, *pods, budget(status=NEVER, minAvailable=2)))[1] == [found]


def test_pods_of_a_stateful_set_differ_and_those_of_nobody_count_one_by_one() -> None:
    web, never = {**owning("web", 2), "kind": "StatefulSet"}, budget(status=NEVER, minAvailable=2)
    named = controller("StatefulSet", "web")
    pods = [pod(f"web-{number}", labels={"app": "web", "number": f"{number}"}, owner=named) for number in (0, 1)]
    assert charged(snapshot(node(), web, *pods, never))[1] == [Reason.PDB_NEVER_ALLOWS]
    assert charged(snapshot(node(), web, *pods, pod("bare"), never))[1] == [Reason.PDB_EXHAUSTED]
    assert charged(snapshot(node(), pod("web-1"), pod("bare"), never))[1] == [Reason.PDB_NEVER_ALLOWS]


@pytest.mark.parametrize("policy", ["AlwaysAllow", "IfHealthyBudget"])
@pytest.mark.parametrize("fault", [{"generation": 9}, {"failed": "no scale"}], ids=["stale", "sync failed"])
def test_always_allow_frees_an_unhealthy_pod_before_the_budgets_status_is_asked(fault: Json, policy: str) -> None:
    faulty = budget(**fault, unhealthyPodEvictionPolicy=policy)
    found = charged(snapshot(node(), pod(ready=False), faulty))[1]
    assert (found == []) is (policy == "AlwaysAllow")
    assert charged(snapshot(node(), pod(), faulty))[1] != []


def test_an_absent_selector_matches_nothing() -> None:
    nobody = budget(status=ILL)
    del nobody["spec"]["selector"]
    assert charged(snapshot(node(), pod(), nobody)) == (Charge(), [])


def test_a_pod_that_needs_no_allowance_spends_none() -> None:
    assert charged(snapshot(node(), pod(ready=False), budget()))[0] == Charge()
    assert charged(snapshot(node(), pod(), budget()))[0] == Charge({"shop/web": 1})


def test_an_unreadable_budget_blocks_every_pod_of_its_namespace() -> None:
    state = state_of(node(), pod(), pod("other", labels={}), pod("lab", namespace="lab"), budget(namespace="lab"))
    state.mark_unreadable(ObjectError("PodDisruptionBudget", "shop", "broken", "spec: not an object"))
    cluster = state.snapshot()
    assert charged(cluster, "web-1", "other", "lab")[1] == [Reason.PDB_UNREADABLE, Reason.PDB_UNREADABLE]


def replicas(count: int, allowed: int) -> Snapshot:
    status = {"disruptionsAllowed": allowed, "currentHealthy": 9, "desiredHealthy": 9 - allowed, "expectedPods": 9}
    return snapshot(node(), *(pod(f"web-{number}") for number in range(1, count + 1)), budget(status=status))


@pytest.mark.parametrize(
    ("pods", "allowed", "taken", "waits"),
    [(1, 1, 1, ()), (2, 3, 2, ()), (3, 3, 3, ()), (3, 1, 1, ("shop/web",)), (3, 2, 2, ("shop/web",))],
)
def test_a_node_takes_what_it_needs_or_all_that_is_left(
    pods: int, allowed: int, taken: int, waits: tuple[str, ...]
) -> None:
    names = [f"web-{number}" for number in range(1, pods + 1)]
    charge, found = charged(replicas(pods, allowed), *names)
    assert (charge, found) == (Charge({"shop/web": taken}, waits), [])


def test_what_a_plan_takes_is_missing_for_the_next_node_and_told_apart_from_an_exhausted_budget() -> None:
    cluster = replicas(3, 2)
    ledger = DisruptionLedger(cluster)
    pods = [pod_of(cluster, f"web-{number}") for number in (1, 2, 3)]
    for each in pods[:2]:
        charge, found = ledger.charge([each])
        assert found == []
        ledger.take(charge)
    _, [refusal] = ledger.charge([pods[2]])
    assert refusal.reason is Reason.PDB_SPENT_BY_PLAN
    assert ledger.left(next(iter(cluster.budgets))) == 0


def test_judging_spends_nothing() -> None:
    cluster = replicas(2, 1)
    ledger = DisruptionLedger(cluster)
    for name in ("web-1", "web-2"):
        assert ledger.charge([pod_of(cluster, name)])[1] == []
    assert ledger.left(next(iter(cluster.budgets))) == 1


def test_from_a_renewed_ledger_nothing_is_spent() -> None:
    cluster = replicas(2, 1)
    ledger = RenewedLedger(cluster)
    for name in ("web-1", "web-2"):
        charge, refusals = ledger.charge([pod_of(cluster, name)])
        assert refusals == []
        ledger.take(charge)
    assert ledger.left(next(iter(cluster.budgets))) == 1
    assert RenewedLedger(replicas(2, 0)).charge([pod_of(cluster, "web-1")])[1] != []


def test_all_refusals_of_a_node_are_given() -> None:
    db = {"matchLabels": {"app": "db"}}
    cluster = snapshot(
        node(),
        pod("web-1"),
        pod("web-2"),
        pod("db-1", labels={"app": "db"}),
        budget(status=ILL),
        budget("db", selector=db, failed="no scale"),
    )
    assert charged(cluster, "web-1", "web-2", "db-1")[1] == [
        Reason.PDB_EXHAUSTED,
        Reason.PDB_EXHAUSTED,
        Reason.PDB_SYNC_FAILED,
    ]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            budget(status=NEVER, minAvailable=2),
            "PDB web (minAvailable 2) can never allow an eviction: 2 healthy of 2, 2 wanted",
        ),
        (
            budget(status=ILL, maxUnavailable="50%"),
            "PDB web (maxUnavailable 50%) allows no eviction now: 1 healthy of 2, 1 wanted",
        ),
        (budget(generation=4, observed=3), "the status of PDB web is from generation 3, the spec is generation 4"),
        (
            budget(failed="no scale subresource"),
            "the disruption controller can't compute PDB web: no scale subresource",
        ),
    ],
)
def test_the_detail_holds_the_numbers(given: Json, words: str) -> None:
    cluster = snapshot(node(), pod(), given)
    _, [refusal] = DisruptionLedger(cluster).charge([pod_of(cluster)])
    assert refusal.detail == words
    assert refusal.subject == "shop/web-1"
    assert refusal.fix


@pytest.mark.parametrize(("budgets", "covered"), [([], False), ([budget()], True), ([budget("a"), budget("b")], True)])
def test_whether_any_budget_speaks_of_a_pod(budgets: list[Json], covered: bool) -> None:
    cluster = snapshot(node(), pod(), *budgets)
    assert DisruptionLedger(cluster).covers(pod_of(cluster)) is covered


# What opens after a cordon: the budgets as each source writes them, and which of them open by it.

WHOLE = {**NONE, "currentHealthy": 2, "desiredHealthy": 2, "expectedPods": 2}
ONE = {**NONE, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1}
AKS = {"annotations": {"ownedBy": "EvictionAutoScaler", "target": "web"}}
OURS = {"annotations": {"tightship.dev/opens-after-cordon": "true"}}
CNPG = {"cnpg.io/cluster": "db", "role": "primary"}
SPILO = {"application": "spilo", "cluster-name": "db", "spilo-role": "master"}
OPENS = [Reason.OPENS_AFTER_CORDON]
NEVER_OPENS = [Reason.PDB_NEVER_ALLOWS]
NOT_NOW = [Reason.PDB_EXHAUSTED]


def meta(found: Json, more: Json) -> Json:
    return {**found, "metadata": {**found["metadata"], **more}}


def aks(status: Json = WHOLE, **notes: str) -> Json:
    return meta(budget(status=status, minAvailable=2), {"annotations": {**AKS["annotations"], **notes}})


@pytest.mark.parametrize(
    ("guard", "reasons"),
    [
        pytest.param(aks(), OPENS, id="eviction-autoscaler's, in full health"),
        pytest.param(meta(budget(status=WHOLE), OURS), OPENS, id="our annotation"),
        pytest.param(meta(budget(status=WHOLE, maxUnavailable=0), OURS), OPENS, id="our annotation, maxUnavailable 0"),
        pytest.param(
            aks(**{"tightship.dev/opens-after-cordon": "false"}),
            NEVER_OPENS,
            id="our annotation denies it",
        ),
        pytest.param(aks({**WHOLE, "disruptionsAllowed": 1}), [], id="open already"),
        pytest.param(aks({**WHOLE, "currentHealthy": 1}), [Reason.PDB_EXHAUSTED], id="one pod is ill"),
        pytest.param(aks({**WHOLE, "currentHealthy": 2, "expectedPods": 3}), OPENS, id="the surge isn't Ready yet"),
        pytest.param(
            meta(budget(status=WHOLE), {"annotations": {"ownedBy": "somebody"}}), NEVER_OPENS, id="owned by another"
        ),
    ],
)
def test_a_budget_that_opens_after_a_cordon_says_so_while_its_pods_are_healthy(
    guard: Json, reasons: list[Reason]
) -> None:
    cluster = snapshot(node(), pod(), guard)
    refusals = DisruptionLedger(cluster).charge([pod_of(cluster, "web-1")])[1]
    assert [each.reason for each in refusals] == reasons
    if reasons == OPENS:
        assert refusals[0].subject == "shop/web"


ROLES = [
    ("CloudNativePG", CNPG, {**CNPG, "role": "replica"}),
    ("CloudNativePG's newer label", {"cnpg.io/cluster": "db", "cnpg.io/instanceRole": "primary"}, {
        "cnpg.io/cluster": "db", "cnpg.io/instanceRole": "replica"}),
    ("Zalando's postgres-operator", SPILO, {**SPILO, "spilo-role": "replica"}),
]  # fmt: skip


@pytest.mark.parametrize(("primary", "replica"), [row[1:] for row in ROLES], ids=[row[0] for row in ROLES])
@pytest.mark.parametrize(
    ("other", "reasons"),
    [
        pytest.param({"on": "n2"}, OPENS, id="a Ready replica elsewhere"),
        pytest.param({"on": "n1"}, NOT_NOW, id="a replica on the same node"),
        pytest.param({"on": "n2", "ready": False}, NOT_NOW, id="a replica that is not Ready"),
        pytest.param({"on": "n3"}, NOT_NOW, id="a replica on a cordoned node"),
        pytest.param({"on": "n2", "namespace": "lab"}, NEVER_OPENS, id="a cluster of the same name elsewhere"),
        pytest.param(None, NEVER_OPENS, id="one instance"),
    ],
)
def test_a_primary_moves_only_if_a_replica_can_take_its_place(
    primary: Json, replica: Json, other: Json | None, reasons: list[Reason]
) -> None:
    things = [node(), node("n2"), node("n3", unschedulable=True), pod(labels=primary)]
    things += [] if other is None else [pod("web-2", labels=replica, **other)]
    guard = budget(selector={"matchLabels": primary}, status=ONE, minAvailable=1)
    assert charged(snapshot(*things, guard))[1] == reasons


def test_replicas_have_an_ordinary_budget() -> None:
    selector = {"matchLabels": {"cnpg.io/cluster": "db", "role": "replica"}}
    cluster = snapshot(node(), pod(labels=selector["matchLabels"]), budget(selector=selector, status=ONE))
    assert charged(cluster)[1] == NEVER_OPENS
