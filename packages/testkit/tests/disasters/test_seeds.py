"""Three hundred disasters: whatever happens, the promises of docs/safety.md hold. More with ``make soak``."""

from __future__ import annotations

import pytest

from tightship_testkit.disasters.making import make
from tightship_testkit.disasters.run import run

SEEDS = 300
CHUNK = 5
QUICK = 5
"""How many of them ``make test-fast`` runs."""


@pytest.mark.virtual_time
@pytest.mark.takes(6)
@pytest.mark.parametrize(
    "first",
    [pytest.param(first, marks=[] if first < QUICK else [pytest.mark.slow]) for first in range(0, SEEDS, CHUNK)],
)
def test_the_promises_hold(first: int) -> None:
    broken = {seed: new for seed in range(first, first + CHUNK) if (new := run(make(seed)).new)}
    reported = [f"seed {seed}: {violation}" for seed, found in broken.items() for violation in found]
    assert not broken, "\n".join([*reported, f"again, with a log: make replay SEED={min(broken)}"])
