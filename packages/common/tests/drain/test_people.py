"""Whoever has their hands on a node in drain wins: one act of a person or two, in every phase, while the tool is alive,
dead, stopped or cut off.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import pytest

from tightship.drain.events import EventKind
from tightship.objects.drain_record import DRAIN_ANNOTATION, Phase
from tightship.objects.pod import DRAINING
from tightship.rules.nodes import TO_BE_DELETED
from tightship_testkit.faults import Call, Fault
from tightship_testkit.simulated import BUDGET, LOST, until
from tightship_testkit.virtual import run_virtually

from .conftest import FAST, Bench, Json, Replica, benched

CA: Json = {"key": TO_BE_DELETED, "value": "1", "effect": "NoSchedule"}
BACK = 60.0
"""Seconds after which whoever was away is back."""


def uncordon(raw: Json) -> None:
    raw["spec"].pop("unschedulable", None)


def cordon(raw: Json) -> None:
    raw["spec"]["unschedulable"] = True


def untaint(raw: Json) -> None:
    raw["spec"]["taints"] = [each for each in raw["spec"].get("taints", []) if each["key"] != DRAINING.key]


def unrecord(raw: Json) -> None:
    (raw["metadata"].get("annotations") or {}).pop(DRAIN_ANNOTATION, None)


Act = Callable[[Json], None]
Acts = Sequence[Act]

ACTS: Acts = (uncordon, cordon, untaint, unrecord)
SEQUENCES = [
    acts
    for length in (1, 2)
    for acts in itertools.product(ACTS, repeat=length)
    # Who cordons a node that is cordoned writes nothing, and who does the same twice does it once.
    if acts[0] is not cordon and all(one is not other for one, other in itertools.pairwise(acts))
]
PHASES = (Phase.CLAIMED, Phase.EVICTING, Phase.DRAINED, Phase.RESTORING, Phase.YIELDED)
TOOLS = ("alive", "alive and slow acts", "dead", "stopped", "cut off")


async def _in(phase: Phase, bench: Bench, replica: Replica) -> None:
    """Bring n1 to where a drain stands in *phase*, and keep it there."""
    bench.api.autoscaler = False
    if phase is Phase.CLAIMED:
        rules = msgspec.structs.replace(FAST.rules, settle=BACK * 10)
        replica.settings = msgspec.structs.replace(FAST, rules=rules)
    elif phase is not Phase.DRAINED:
        bench.api.refuse = BUDGET
    assert await replica.claim() is None
    if phase is Phase.RESTORING:
        await until(lambda: replica.reported(EventKind.EVICTION))

        async def keeps(call: Call) -> Fault | None:
            restoring = bench.phase is Phase.RESTORING
            return LOST if restoring and call.verb == "PATCH" else None

        replica.meets(keeps)
        notes = {"annotations": {"tightship.dev/do-not-drain": "true"}}
        bench.api.edit("Pod", "web-1", lambda raw: raw["metadata"].update(notes), "shop")
    elif phase is Phase.YIELDED:
        await until(lambda: replica.reported(EventKind.EVICTION))
        bench.api.edit_node("n1", lambda raw: raw["spec"]["taints"].append(CA))
    await until(lambda: bench.phase is phase)
    if phase is Phase.EVICTING:
        await until(lambda: len(replica.reported(EventKind.EVICTION)) >= 2)


async def _act(bench: Bench, acts: Acts, pause: float) -> bool | None:
    """Do *acts*, and return whether the person wants the node cordoned, ``None`` where they have left that to us."""
    wants: bool | None = None
    for act in acts:
        found = bench.node
        assert found is not None
        if act in (cordon, uncordon) and found.unschedulable is not (act is cordon):
            wants = act is cordon
        bench.api.edit_node("n1", act)
        await asyncio.sleep(pause)
    return wants


async def _away(how: str, bench: Bench, replica: Replica, acts: Acts) -> tuple[Replica, bool | None]:
    """Do *acts* while the tool is as *how* says; return who then goes on, and what :func:`_act` says."""
    if how == "dead":
        replica.process.kill()
    elif how == "stopped":
        replica.process.freeze()
    elif how == "cut off":

        async def cut(call: Call) -> Fault | None:
            return LOST

        replica.meets(cut)
        bench.api.freeze("Node")
    wants = await _act(bench, acts, {"alive": 0.0, "alive and slow acts": BACK}.get(how, BACK / 10))
    bench.api.refuse = None
    if how in ("stopped", "cut off"):
        await asyncio.sleep(BACK)
    if bench.node is not None and any(each.key == TO_BE_DELETED for each in bench.node.taints):
        bench.api.edit_node("n1", lambda raw: raw["spec"]["taints"].remove(CA))
    replica.meets(None)
    bench.api.thaw()
    if how == "stopped":
        replica.process.thaw()
    return await bench.replica("b", 2) if how == "dead" else replica, wants


async def _wins(folder: Path, phase: Phase, how: str, acts: Acts) -> None:
    async with benched(folder) as bench:
        replica = await bench.replica()
        await _in(phase, bench, replica)
        gone = len(bench.api.evicted)
        after, wants = await _away(how, bench, replica, acts)
        await after.settled()
        found = bench.node
        context = f"{phase} {how}: {[each.__name__ for each in acts]}: {bench.record}"
        assert found is not None, context
        assert not any(each.key == DRAINING.key for each in found.taints), context
        assert bench.record is None or not bench.record.owns_node, context
        assert len(bench.api.evicted) == gone, context
        assert bench.claims() == [], context
        assert [each.key for each in found.taints] == ["dedicated"], context
        if wants is not None:
            assert found.unschedulable is wants, context
        elif not (untaint in acts and unrecord in acts):
            assert not found.unschedulable, context


@pytest.mark.virtual_time
@pytest.mark.slow
@pytest.mark.parametrize("how", TOOLS)
@pytest.mark.parametrize("phase", PHASES)
def test_the_person_wins(tmp_path: Path, phase: Phase, how: str) -> None:
    for acts in SEQUENCES:
        run_virtually(_wins(tmp_path, phase, how, acts))
