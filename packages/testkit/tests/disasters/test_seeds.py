"""Disasters in which everything that is drawn occurs: whatever happens, the promises of docs/safety.md hold.

More with ``make soak``, of which ``.ci/run`` runs others with each commit.
"""

from __future__ import annotations

from collections import Counter

import pytest

from tightship_testkit.disasters.covering import TIMES, chosen
from tightship_testkit.disasters.making import make
from tightship_testkit.disasters.registry import FAULTS, STEPS
from tightship_testkit.disasters.run import run

QUICK = 5
"""How many of them ``make test-fast`` runs."""


@pytest.mark.virtual_time
@pytest.mark.takes(2)
@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=[] if at < QUICK else [pytest.mark.slow]) for at, seed in enumerate(chosen())]
)
def test_the_promises_hold(seed: int) -> None:
    reported = [f"seed {seed}: {violation}" for violation in run(make(seed)).new]
    assert not reported, "\n".join([*reported, f"again, with a log: make replay SEED={seed}"])


def test_each_kind_of_step_and_fault_occurs_in_several_of_them() -> None:
    """Whoever adds a kind that is drawn too rarely hears of it: it needs more weight, or more seeds to choose from."""
    scenarios = [make(seed) for seed in chosen()]
    found = Counter(kind for each in scenarios for kind in {what.kind for what in (*each.steps, *each.faults)})
    assert {kind for kind in (*STEPS, *FAULTS) if found[kind] < TIMES} == set()
