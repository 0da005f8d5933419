"""One cluster on which every reason is the answer for some node; ``golden_cluster.py`` says which and why."""

from __future__ import annotations

from pathlib import Path

import pytest

from node_compactor.judge import CompactorJudge
from node_compactor.settings import load_settings
from tightship.cli.object_file import FileError
from tightship.cli.snapshot_file import read_file
from tightship.cluster import Snapshot
from tightship.documents.build import Inputs, plan_document
from tightship.documents.document import Generator, SettingsView, Source
from tightship.objects.reasons import Reason
from tightship.planning.evaluate import Evaluation, Horizon, evaluate
from tightship.planning.facts import candidates_of
from tightship.planning.plan import Planner
from tightship.rules.disruption import DisruptionLedger
from tightship_testkit.golden import REFINERS, Folder
from tightship_testkit.golden_suite import GoldenSuite

HERE = Path(__file__).parent


class TestGoldenCluster(GoldenSuite):
    here = HERE
    others = REFINERS

    def evaluated(self, snapshot: Snapshot, horizon: Horizon = Horizon()) -> Evaluation:
        return evaluated(snapshot, horizon)


GOLDEN = Folder(HERE / "golden")


def evaluated(snapshot: Snapshot, horizon: Horizon = Horizon()) -> Evaluation:
    return evaluate(snapshot, CompactorJudge(load_settings(GOLDEN.read("config.json"))), GOLDEN.now, horizon)


def test_every_node_has_either_a_removal_or_refusals() -> None:
    snapshot = GOLDEN.with_malformed_objects()
    plan = evaluated(snapshot).plan
    removed = {each.node for each in plan.removals}
    kept = {name for name, found in plan.refusals.items() if found}
    assert removed.isdisjoint(kept)
    assert removed | kept == {*snapshot.nodes, "unreadable"}


def test_a_file_with_malformed_objects_is_refused_with_every_one_named() -> None:
    with pytest.raises(FileError) as refused:
        read_file(GOLDEN.path / "malformed.json")
    named = "\n".join(refused.value.problems)
    assert len(refused.value.problems) == 3
    for text in ("Node unreadable: status.allocatable.cpu", "Pod shop/broken", "PodDisruptionBudget unreadable/broken"):
        assert text in named


def test_the_gates_that_explain_shows_are_those_the_plan_obeys() -> None:
    """Before anything is planned, the closed gates of each node are just the gates that refuse it."""
    snapshot = read_file(GOLDEN.path / "cluster.json")
    found = evaluated(snapshot)
    facts, gates = found.facts, found.gates
    planner = Planner(found.snapshot, DisruptionLedger(found.snapshot), candidates_of(facts), "likely")
    every_gate = {check.reason for name in facts for check in gates.checks(name)} - {Reason.BUDGET_EXHAUSTED}
    assert len(every_gate) > 6
    for name, fact in facts.items():
        refusing = {refusal.reason for refusal in fact.refusals} & every_gate
        closed = {check.reason for check in gates.checks(name) if not check.open} & every_gate
        candidate = planner.candidates.get(name)
        if candidate is None:
            assert refusing <= closed, name
        else:
            assert closed == {refusal.reason for refusal in gates.refuses(candidate, planner)}, name


def test_a_node_that_cant_be_read_has_its_row_in_the_document() -> None:
    snapshot = GOLDEN.with_malformed_objects()
    found = evaluated(snapshot)
    document = plan_document(
        Inputs(
            generator=Generator("node-compactor", "0"),
            source=Source("cluster", "here"),
            settings=SettingsView("", {}),
            snapshot=snapshot,
            facts=found.facts,
            plan=found.plan,
            now=GOLDEN.now,
        )
    )
    rows = {node.name: node.reasons for node in document.nodes}
    assert rows["unreadable"] == (Reason.UNREADABLE,)
    assert len(rows) == len(snapshot.nodes) + 1
