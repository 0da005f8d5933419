"""Which marks are written on nodes, and which are left as they are."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from node_compactor.judge import CompactorJudge
from node_compactor.marking import STALE_MARK, MarkWrite, mark_writes, marked_since
from node_compactor.settings import load_settings
from tightship.cluster import Snapshot
from tightship.objects.drain_record import DRAIN_ANNOTATION, DrainRecord, Phase, decode_record, encode_record
from tightship.planning.evaluate import evaluate
from tightship_testkit.builders import NOW, node, pod, snapshot, when, workload

Json = dict[str, Any]

SEED = "estafette.io/node-compactor-state"
EARLIER = NOW - 1000
POOLS = {"*": {"enabled": True, "scaleDownCPURequestRatioLimit": 0.5}}


def writes(cluster: Snapshot, pools: Json | None = None, **settings: object) -> tuple[MarkWrite, ...]:
    loaded = load_settings({"nodePools": POOLS if pools is None else pools, **settings})
    found = evaluate(cluster, CompactorJudge(loaded), NOW)
    return mark_writes(found.facts, found.gates.underutilized, loaded, NOW)


def marked(since: float = EARLIER, controller: str = "node-compactor") -> DrainRecord:
    return DrainRecord(phase=Phase.MARKED, controller=controller, since={"Marked": since})


def failed(
    next_try: float | None, *, since: float | None = None, controller: str = "node-compactor", attempts: int = 2
) -> DrainRecord:
    times = {"Backoff": EARLIER} | ({} if since is None else {"Marked": since})
    return DrainRecord(
        phase=Phase.BACKOFF, controller=controller, since=times, next_try=next_try, attempts=attempts, reason="PodStuck"
    )


def with_mark(since: float, record: DrainRecord) -> DrainRecord:
    return msgspec.structs.replace(record, since={**record.since, "Marked": since})


def notes(record: DrainRecord | None = None, seed: Json | None = None) -> Json:
    found = {} if record is None else {DRAIN_ANNOTATION: encode_record(record)}
    return found | ({} if seed is None else {SEED: json.dumps(seed)})


def idle(record: DrainRecord | None = None, seed: Json | None = None, **given: Any) -> Snapshot:
    return snapshot(node(notes=notes(record, seed) | given.pop("notes", {}), **given))


def busy(record: DrainRecord | None = None, seed: Json | None = None, **given: Any) -> Snapshot:
    return snapshot(node(notes=notes(record, seed), **given), pod(cpu="3"), workload())


SEED_MARK = {"lastUpdated": when(EARLIER), "markedForRemoval": True}
AHEAD, OVER = NOW + 100, NOW - 100


@pytest.mark.parametrize(
    ("cluster", "written"),
    [
        (idle(), MarkWrite("n1", marked(NOW))),
        (idle(marked()), None),
        (idle(seed=SEED_MARK), MarkWrite("n1", marked(EARLIER), forget_legacy=True)),
        (idle(marked(), seed=SEED_MARK), None),
        (idle(failed(AHEAD)), MarkWrite("n1", with_mark(NOW, failed(AHEAD)))),
        (idle(failed(OVER)), MarkWrite("n1", with_mark(NOW, failed(OVER)))),
        (idle(failed(OVER, since=EARLIER)), None),
        (
            idle(failed(AHEAD, controller="node-refiner")),
            MarkWrite("n1", with_mark(NOW, failed(AHEAD, controller="node-refiner"))),
        ),
        (idle(marked(controller="node-refiner")), None),
        (idle(marked(NOW - STALE_MARK - 1, "node-refiner")), MarkWrite("n1", marked(NOW))),
    ],
    ids=[
        "unmarked",
        "marked before: the time stays",
        "marked by the older controller: its time is taken over",
        "marked by both",
        "backing off",
        "a back-off that is over keeps its attempts",
        "a back-off that has its mark",
        "backing off from a sibling's drain",
        "marked by a sibling",
        "marked by a sibling that is gone",
    ],
)
def test_an_underutilized_node_gets_its_mark(cluster: Snapshot, written: MarkWrite | None) -> None:
    assert writes(cluster) == (() if written is None else (written,))


@pytest.mark.parametrize(
    ("cluster", "written"),
    [
        (busy(), None),
        (busy(marked()), MarkWrite("n1", None)),
        (busy(marked(), seed=SEED_MARK), MarkWrite("n1", None, forget_legacy=True)),
        (busy(seed=SEED_MARK), MarkWrite("n1", None, forget_legacy=True)),
        (busy(seed={"scaleDownInProgress": False, "lastUpdated": ""}), None),
        (busy(failed(AHEAD, since=EARLIER)), MarkWrite("n1", failed(AHEAD))),
        (busy(failed(AHEAD)), None),
        (busy(failed(OVER, since=EARLIER)), MarkWrite("n1", None)),
        (busy(failed(None)), MarkWrite("n1", None)),
        (busy(failed(OVER, since=EARLIER, controller="r")), MarkWrite("n1", failed(OVER, controller="r"))),
        (busy(failed(OVER, controller="r")), None),
        (busy(marked(controller="node-refiner")), None),
        (busy(marked(NOW - STALE_MARK - 1, "node-refiner")), MarkWrite("n1", None)),
    ],
    ids=[
        "unmarked",
        "marked",
        "marked by both controllers",
        "marked by the older one",
        "known to the older one, not marked",
        "backing off, marked",
        "backing off",
        "back-off over",
        "back-off without a next try",
        "a sibling's back-off, marked",
        "a sibling's back-off",
        "marked by a sibling",
        "marked by a sibling that is gone",
    ],
)
def test_a_mark_goes_when_load_has_returned(cluster: Snapshot, written: MarkWrite | None) -> None:
    assert writes(cluster) == (() if written is None else (written,))


@pytest.mark.parametrize("phase", ["Claimed", "Evicting", "Drained", "Restoring", "Yielded"])
@pytest.mark.parametrize("build", [idle, busy])
def test_a_node_in_drain_is_not_written(phase: str, build: Any) -> None:
    record = DrainRecord(phase=Phase(phase), controller="node-compactor", op="x", since={"Claimed": EARLIER})
    assert writes(build(record)) == ()


@pytest.mark.parametrize(
    "cluster",
    [
        idle(notes={DRAIN_ANNOTATION: "{"}),
        busy(seed={"scaleDownInProgress": True, "lastUpdated": when(EARLIER)}),
        idle(marked(), unschedulable=True),
        idle(unschedulable=True),
        busy(marked(), unschedulable=True),
        busy(marked(), taints=[{"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}]),
        idle(taints=[{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}]),
        idle(meta={"deletionTimestamp": when(NOW)}),
    ],
    ids=[
        "its annotation can't be read",
        "in drain by the older controller",
        "cordoned, marked",
        "cordoned",
        "cordoned, with load",
        "being deleted",
        "being disrupted",
        "terminating",
    ],
)
def test_a_node_that_somebody_has_taken_is_not_written(cluster: Snapshot) -> None:
    assert writes(cluster) == ()


@pytest.mark.parametrize(
    "given",
    [
        {"labels": {"node-role.kubernetes.io/control-plane": ""}},
        {"labels": {"karpenter.sh/nodepool": "p"}},
        {"notes": {"tightship.dev/do-not-drain": "true"}},
        {"notes": {"cluster-autoscaler.kubernetes.io/scale-down-disabled": "true"}},
        {"notes": {"karpenter.sh/do-not-disrupt": "true"}},
    ],
    ids=["control plane", "Karpenter's", "do-not-drain", "scale-down-disabled", "do-not-disrupt"],
)
def test_a_node_that_no_drain_may_take_has_no_mark(given: Json) -> None:
    assert writes(idle(**given)) == ()
    assert writes(idle(marked(), **given)) == (MarkWrite("n1", None),)


def test_a_rule_that_is_switched_off_keeps_no_mark_away() -> None:
    cluster = idle(notes={"tightship.dev/do-not-drain": "true"})
    assert writes(cluster, disabledRules=["NodeDoNotDrain"]) == (MarkWrite("n1", marked(NOW)),)


def test_a_young_node_has_no_mark() -> None:
    assert writes(idle(marked(), age=60.0)) == (MarkWrite("n1", None),)


@pytest.mark.parametrize("pools", [{}, {"*": {"enabled": False}}], ids=["not configured", "disabled"])
def test_in_a_pool_that_is_not_ours_only_our_own_mark_goes(pools: Json) -> None:
    assert writes(idle(seed=SEED_MARK), pools) == ()
    assert writes(idle(marked(), seed=SEED_MARK), pools) == (MarkWrite("n1", None),)


def test_writes_are_ordered_by_node() -> None:
    cluster = snapshot(*(node(name) for name in ("n3", "n1", "n2")))
    assert [each.node for each in writes(cluster)] == ["n1", "n2", "n3"]


def test_after_its_writes_nothing_is_left_to_write_and_the_marks_are_read_back() -> None:
    cluster = idle(seed=SEED_MARK)
    [write] = writes(cluster)
    patch = write.patch
    assert patch.taints is None
    assert patch.unschedulable is None
    assert patch.annotations[SEED] is None
    text = patch.annotations[DRAIN_ANNOTATION]
    assert text is not None
    assert decode_record(text) == marked(EARLIER)
    after = snapshot(node(notes={DRAIN_ANNOTATION: text}))
    assert writes(after) == ()
    assert marked_since(after.nodes["n1"].node) == EARLIER


def test_taking_a_mark_away_removes_the_annotation() -> None:
    assert MarkWrite("n1", None).patch.annotations == {DRAIN_ANNOTATION: None}


# -- marks read


@pytest.mark.parametrize(
    ("cluster", "since"),
    [
        (idle(), None),
        (idle(marked()), EARLIER),
        (idle(failed(AHEAD, since=EARLIER)), EARLIER),
        (idle(failed(AHEAD, since=EARLIER, controller="node-refiner")), EARLIER),
        (idle(failed(AHEAD)), None),
        (idle(seed=SEED_MARK), EARLIER),
        (idle(marked(NOW - 50), seed=SEED_MARK), NOW - 50),
        (idle(failed(AHEAD), seed=SEED_MARK), EARLIER),
        (idle(marked(controller="node-refiner")), None),
    ],
    ids=[
        "none",
        "ours",
        "beside a back-off",
        "beside a sibling's back-off",
        "a back-off alone",
        "the older controller's",
        "ours before the older one's",
        "the older one's beside a back-off",
        "a sibling's",
    ],
)
def test_marks_are_read_from_the_nodes(cluster: Snapshot, since: float | None) -> None:
    assert marked_since(cluster.nodes["n1"].node) == since
