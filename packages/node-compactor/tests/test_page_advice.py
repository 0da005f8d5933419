"""The advice on the page of a running controller."""

from __future__ import annotations

import asyncio
import logging

import pytest

from node_compactor.advice import CompactorChanges
from node_compactor.controller import POSSIBLE
from node_compactor.judge import CompactorJudge
from node_compactor.settings import CompactorSettings
from tightship.nodes.background import FRESH, MeasuredAdvice, PageAdvice
from tightship.planning.evaluate import evaluate
from tightship_testkit.builders import NOW, node, pod, snapshot, workload

SETTINGS = CompactorSettings(pools=POSSIBLE)
SAFE = "cluster-autoscaler.kubernetes.io/safe-to-evict"


class Clock:
    now = NOW

    def __call__(self) -> float:
        return self.now


class Broken(CompactorChanges):
    def change(self, *_: object) -> None:
        raise RuntimeError("broken")


async def measured(advice: PageAdvice) -> MeasuredAdvice | None:
    """Ask once, and once more when what is measured is there."""
    assert advice.asked() is None
    for task in [each for each in asyncio.all_tasks() if each.get_name() == "advice"]:
        await task
    return advice.asked()


def judged(advice: PageAdvice, tunable: CompactorChanges) -> None:
    cluster = snapshot(node("n1"), node("n2"), workload(), pod(notes={SAFE: "false"}), pod("web-2", on="n2"))
    advice.judged(evaluate(cluster, CompactorJudge(SETTINGS), NOW), lambda: tunable)


async def test_who_reads_the_page_gets_what_was_measured_once() -> None:
    clock = Clock()
    advice = PageAdvice(clock, logging.getLogger("x"))
    assert advice.asked() is None
    judged(advice, CompactorChanges(SETTINGS))
    found = await measured(advice)
    assert found is not None
    assert found.advice.tried > 0
    assert "NotSafeToEvict" in found.costs
    clock.now += FRESH - 1
    assert advice.asked() is found
    assert not [each for each in asyncio.all_tasks() if each.get_name() == "advice"]
    clock.now += 1
    assert advice.asked() is found
    [task] = [each for each in asyncio.all_tasks() if each.get_name() == "advice"]
    await task
    assert advice.asked() is not found


async def test_a_failure_leaves_the_page_without_advice(caplog: pytest.LogCaptureFixture) -> None:
    advice = PageAdvice(Clock(), logging.getLogger("x"))
    judged(advice, Broken(SETTINGS))
    assert await measured(advice) is None
    assert "advice failed" in caplog.text


async def test_a_controller_that_stops_measures_nothing_more() -> None:
    advice = PageAdvice(Clock(), logging.getLogger("x"))
    judged(advice, CompactorChanges(SETTINGS))
    advice.stop()
    assert advice.asked() is None
    assert not [each for each in asyncio.all_tasks() if each.get_name() == "advice"]
