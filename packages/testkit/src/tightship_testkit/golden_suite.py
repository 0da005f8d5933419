"""What holds of a controller's golden cluster: tests that a class of the controller's own inherits."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import ClassVar

import pytest

from tightship.cli.snapshot_file import read_file
from tightship.cluster import Snapshot
from tightship.objects.reasons import NODE_REASONS, Reason
from tightship.planning.evaluate import Evaluation, Horizon
from tightship.planning.plan import Plan
from tightship_testkit.golden import ELSEWHERE, RUNNING_ONLY, Folder, refusals_of, removals_of


class GoldenSuite:
    """One cluster on which every reason but *others* is the answer for some node.

    ``golden_cluster.py`` in the folder *here* says which and why.
    """

    here: ClassVar[Path]
    others: ClassVar[frozenset[Reason]]

    def evaluated(self, snapshot: Snapshot, horizon: Horizon = Horizon()) -> Evaluation:
        """Judge *snapshot* by the golden configuration, at the golden time."""
        raise NotImplementedError

    @property
    def golden(self) -> Folder:
        """The files."""
        return Folder(self.here / "golden")

    @property
    def cluster(self) -> Snapshot:
        """The cluster without its malformed objects."""
        return read_file(self.golden.path / "cluster.json")

    def with_malformed(self) -> Plan:
        """Return the plan of the cluster with its malformed objects."""
        return self.evaluated(self.golden.with_malformed_objects()).plan

    def test_every_node_of_the_golden_cluster_has_the_expected_answer(self) -> None:
        plan, expected = self.evaluated(self.cluster).plan, self.golden.expected
        assert removals_of(plan) == expected["removals"]
        assert refusals_of(plan) == expected["refusals"]

    def test_malformed_objects_block_just_what_depends_on_them(self) -> None:
        plan, expected = self.with_malformed(), self.golden.expected
        assert removals_of(plan) == expected["removals"]
        assert refusals_of(plan) == expected["refusals"] | expected["refusalsWithMalformedObjects"]

    def test_every_reason_is_the_answer_for_some_node(self) -> None:
        assert self.golden.reasons == NODE_REASONS - RUNNING_ONLY - self.others - ELSEWHERE

    def test_a_node_left_out_by_the_command_says_so_beside_all_else(self) -> None:
        snapshot = self.cluster
        removed = {each["node"] for each in self.golden.expected["removals"]}
        refusals = self.evaluated(snapshot, Horizon(only=set(snapshot.nodes) - removed)).plan.refusals
        assert {each for each in removed if Reason.NOT_SELECTED in {one.reason for one in refusals[each]}} == removed

    def test_every_refusal_says_what_it_is_about(self) -> None:
        for found in self.with_malformed().refusals.values():
            for refusal in found:
                assert refusal.detail, refusal
                assert "None" not in refusal.detail + refusal.fix

    @pytest.mark.parametrize("name", ["cluster.json", "config.json", "malformed.json", "expected.json"])
    def test_the_files_are_what_their_builder_writes(self, name: str) -> None:
        built = runpy.run_path(str(self.here / "golden_cluster.py"))["files"]()
        assert (self.golden.path / name).read_text() == built[name], "run golden_cluster.py"


__all__ = ["GoldenSuite"]
