"""node-compactor beside an autoscaler that refills CapacityBuffers: what it takes away is not added again."""

from __future__ import annotations

import pytest

from tightship_testkit.autoscaled import BOTH, live_for
from tightship_testkit.loads import HOUR, constant

pytestmark = [pytest.mark.virtual_time, pytest.mark.slow, pytest.mark.takes(4)]

HOURS = 3
BUFFER = 8, "1"
"""Room for eight pods of one CPU: two nodes of the nine, beside half-CPU pods that fill four."""


def test_no_node_of_ours_comes_back_for_a_buffer() -> None:
    load = constant(8, 4)
    alone = live_for(HOURS, load, nodes=9, buffer=BUFFER)
    assert (len(alone.added), alone.evictions) == (0, 0)
    ours = live_for(HOURS, load, nodes=9, buffer=BUFFER, controllers=["node-compactor"])
    assert ours.added == []
    assert ours.removed, "there was a node to spare"
    assert "BufferNeedsNode" in ours.said
    assert ours.cpus < alone.cpus


@pytest.mark.parametrize("controller", BOTH)
def test_over_hours_with_rollouts_no_node_comes_back_for_a_buffer_of_a_workload(controller: str) -> None:
    """The buffer is twice as large as Deployment w0, says the autoscaler. Each hour a Deployment is rolled over."""
    share = {"percentage": 200}
    day = live_for(6, constant(8, 4), nodes=9, share=share, controllers=[controller], rollouts_every=HOUR)
    assert day.removed, "there was a node to spare"
    assert day.evictions
    assert day.added == []
    assert "BufferNeedsNode" in day.said


def test_where_the_rule_is_switched_off_nodes_come_back() -> None:
    off = {"node-compactor": {"disabledRules": ["BufferNeedsNode"]}}
    ours = live_for(2, constant(8, 4), nodes=9, buffer=BUFFER, controllers=["node-compactor"], settings=off)
    assert ours.back(600) >= 1
    assert "BufferNeedsNode" not in ours.said
