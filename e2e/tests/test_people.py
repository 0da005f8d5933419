"""A person has their hands on nodes in drain, on a real API server: it alone says whose a cordon is.

All sequences of such acts are tried on virtual time, in ``packages/common/tests/drain/test_people.py``.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Sequence
from pathlib import Path

import pytest
from drains import Site, site

from tightship_e2e import ControlPlane
from tightship_testkit.client import Client, Json, wait_while
from tightship_testkit.drains import SETTINGS, spare
from tightship_testkit.faults import Answer, Call, Fault
from tightship_testkit.invariants import TAINT, drain, taints
from tightship_testkit.manifests import as_list, replicas

ALONE = {"LEADER_ELECT": "false"}
DEADLINE = 60.0
BUDGET = Answer(
    429, "TooManyRequests", "would violate the budget", causes=(("DisruptionBudget", "needs 2 healthy pods"),)
)
STAYS = {"enabled": True, "scaleDownCPURequestRatioLimit": 0}
GOES = {"enabled": True, "scaleDownCPURequestRatioLimit": 0.75, "scaleDownRequiredUnderutilizedNodeCount": 1}
CASES = (
    ("Evicting", "dead", "uncordon untaint cordon"),
    ("Evicting", "stopped", "uncordon untaint cordon"),
    ("Evicting", "dead", "uncordon cordon"),
    ("Evicting", "alive", "uncordon cordon"),
    ("Evicting", "dead", "untaint"),
    ("Evicting", "dead", "unrecord"),
    ("Evicting", "stopped", "unrecord uncordon cordon"),
    ("Claimed", "dead", "uncordon cordon untaint"),
    ("Claimed", "alive", "uncordon cordon"),
    ("Claimed", "stopped", "untaint uncordon"),
    ("Drained", "dead", "uncordon cordon"),
    ("Drained", "stopped", "uncordon untaint cordon"),
    ("Drained", "alive", "untaint"),
)
"""In which phase a node is, how the tool is meanwhile, and what the person does."""


async def act(api: Client, name: str, what: str) -> None:
    node = await api.get("Node", name)
    if what in ("cordon", "uncordon"):
        body: Json = {"spec": {"unschedulable": True if what == "cordon" else None}}
    elif what == "untaint":
        body = {"spec": {"taints": [each for each in taints(node) if each["key"] != TAINT]}}
    else:
        body = {"metadata": {"annotations": {"tightship.dev/drain": None}}}
    await api.patch("Node", name, body)


async def in_phase(on: Site, name: str, phase: str) -> None:
    """Wait until a node is in *phase*."""

    async def other() -> str:
        found = drain(await on.api.get("Node", name))
        return "" if found.get("phase") == phase else f"{name} is {found}\n{on.logs()}"

    await wait_while(other, DEADLINE, f"{name} is {phase}")


def wants_cordon(acts: Sequence[str]) -> bool:
    """Whether a cordon of the person's is on the node after *acts*: of a node that was cordoned by us they see none."""
    cordoned, theirs = True, False
    for each in acts:
        if each == "uncordon":
            cordoned = theirs = False
        elif each == "cordon" and not cordoned:
            cordoned = theirs = True
    return theirs


async def pods_on(api: Client, name: str) -> set[str]:
    pods = await api.list("Pod", "shop", fieldSelector=f"spec.nodeName={name}")
    return {each["metadata"]["uid"] for each in pods if "deletionTimestamp" not in each["metadata"]}


async def wins(on: Site, name: str, phase: str, how: str, acts: Sequence[str]) -> None:
    context = f"{phase}, {how}, {acts}"
    tool = on.start(**ALONE)
    await in_phase(on, name, phase)
    pods = await pods_on(on.api, name)
    if how == "dead":
        await asyncio.to_thread(tool.kill)
    elif how == "stopped":
        on.plane.signal(tool.name, signal.SIGSTOP)
    for each in acts:
        await act(on.api, name, each)
    on.proxy.plan = None
    if how == "dead":
        tool = on.start(**ALONE)
    elif how == "stopped":
        on.plane.signal(tool.name, signal.SIGCONT)

    async def left() -> str:
        node = await on.api.get("Node", name)
        ours = any(each["key"] == TAINT for each in taints(node)) or drain(node).get("phase") != "Backoff"
        well = not ours and bool(node["spec"].get("unschedulable")) is wants_cordon(acts)
        return "" if well else f"{context}: {node['spec']} {drain(node)}"

    await wait_while(left, DEADLINE, f"{name} is the person's")
    await on.free()
    await on.passes(tool)
    assert await left() == "", context
    assert pods <= await pods_on(on.api, name), f"{context}: evicted from {name}"
    await asyncio.to_thread(tool.kill)


@pytest.mark.takes(90)
def test_the_person_wins(empty_plane: ControlPlane, tmp_path: Path) -> None:
    names = [f"s{number:02}" for number in range(len(CASES))]
    rest = [spare(name, pool="rest") for name in ("n2", "n3")]
    cluster = as_list(*(spare(name, pool=name) for name in names), *rest, *replicas("web", names, app="web"))

    async def refuse(call: Call) -> Fault | None:
        return BUDGET if call.path.endswith("/eviction") else None

    async def work(api: Client) -> None:
        async with site(empty_plane, api, tmp_path, cluster) as on:
            for name, (phase, how, acts) in zip(names, CASES, strict=True):
                on.proxy.plan = refuse if phase == "Evicting" else None
                settle = 30 if phase == "Claimed" else 0.5
                pools = {"*": STAYS, name: GOES}
                await on.configured({**SETTINGS, "settleTime": settle, "nodePools": pools})
                await wins(on, name, phase, how, acts.split())

    empty_plane.run(work)
