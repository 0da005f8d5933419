"""What a soft taint does to the compactor's own plans."""

from __future__ import annotations

from typing import Any

from node_compactor.judge import CompactorJudge
from node_compactor.marking import CONTROLLER
from node_compactor.settings import load_settings
from tightship.nodes.soft_taints import EFFECT
from tightship.planning.evaluate import evaluate
from tightship.planning.plan.model import CANDIDATE
from tightship_testkit.builders import NOW, node, pod, snapshot, workload

Json = dict[str, Any]
OURS = {"key": CANDIDATE, "value": CONTROLLER, "effect": EFFECT}
SIBLINGS = OURS | {"value": "node-refiner"}


def test_our_own_planner_takes_the_taint_for_no_obstacle_and_prefers_other_nodes() -> None:
    """n1 goes; of its possible targets the scheduler, and so the plan, takes the one that stays."""
    settings = load_settings(
        {
            "nodePools": {"*": {"enabled": True, "scaleDownCPURequestRatioLimit": 0.5}},
            "neededMarkedTimeForRemoval": 0,
            "maximumNodesInPlan": 1,
        }
    )

    def target(**taints: list[Json]) -> str:
        nodes = [node(name, taints=taints.get(name, [])) for name in ("n1", "n2", "n3")]
        # n2 has less room than n3, and the scheduler spreads.
        pods = [pod(cpu="100m"), pod("web-2", on="n2", cpu="1500m"), pod("web-3", on="n3", cpu="1")]
        held = snapshot(*nodes, *pods, workload())
        [removal] = evaluate(held, CompactorJudge(settings), NOW).plan.removals
        assert removal.node == "n1"
        return removal.moves[0].target

    assert target() == "n3"
    assert target(n3=[SIBLINGS]) == "n2"
    assert target(n2=[SIBLINGS], n3=[SIBLINGS]) == "n3", "soft: it keeps no pod away"
    assert target(n1=[SIBLINGS], n2=[SIBLINGS]) == "n3"
    assert target(n3=[OURS]) == "n3", "the plan leaves n3, which loses our taint"
