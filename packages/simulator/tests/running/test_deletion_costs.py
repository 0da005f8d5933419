"""Days of a site under HPAs, with deletion costs on the pods of nodes that go next: most go without an eviction."""

from __future__ import annotations

import pytest

from tightship_testkit.autoscaled import live_for
from tightship_testkit.loads import by_day

pytestmark = [pytest.mark.virtual_time, pytest.mark.slow, pytest.mark.takes(30)]


def test_most_nodes_go_without_an_eviction_when_scale_ins_empty_them() -> None:
    """Cluster Autoscaler removes only what is empty. ``bench/free_ride.py`` has the day without costs."""
    settings = {"node-compactor": {"deletionCost": True}}
    day = by_day(deployments=16, peak=30)
    ours = live_for(24, day, nodes=6, hpas=True, threshold=0, controllers=["node-compactor"], settings=settings)
    assert len(ours.removed) > 30
    assert "ScaleInExpected" in ours.said
    assert ours.undisturbed >= len(ours.removed) / 2
