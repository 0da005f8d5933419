"""Room for the pods of nodes that others cordoned, and the end of it, in evaluations that follow each other."""

from __future__ import annotations

from node_compactor.judge import CompactorJudge
from node_compactor.settings import load_settings
from tightship.planning.evaluate import Evaluator
from tightship_testkit.builders import NOW, node, pod, snapshot, when, workload

DAY = 86400.0


def test_a_cordon_that_nobody_ends_keeps_nodes_for_a_day_and_not_for_ever() -> None:
    """Nothing in the cluster changes: only the time does."""
    pools = {"*": {"enabled": True, "scaleDownCPURequestRatioLimit": 0.5}}
    settings = {"nodePools": pools, "neededMarkedTimeForRemoval": 0}
    old = node("old")
    taint = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule", "timeAdded": when(NOW)}
    old["spec"] |= {"unschedulable": True, "taints": [taint]}
    pods = [pod(f"p{n}", on="old", cpu="1500m") for n in range(4)]
    held = snapshot(old, node("a"), node("b"), *pods, workload())
    for wanted, lasts in ((dict[str, str](), DAY), ({"cordonRoomTimeout": "1h"}, 3600.0)):
        judge, evaluator = CompactorJudge(load_settings({**settings, **wanted})), Evaluator()

        def removed(now: float) -> int:
            return len(evaluator(held, judge, now).plan.removals)  # noqa: B023 - called before the next turn

        assert [removed(NOW + lasts - 1), removed(NOW + lasts), removed(NOW + lasts + 1)] == [0, 0, 2]
    none = CompactorJudge(load_settings({**settings, "cordonRoomTimeout": 0}))
    assert len(Evaluator()(held, none, NOW).plan.removals) == 2
