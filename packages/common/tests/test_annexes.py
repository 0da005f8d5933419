"""Each annex can be deleted: the rest still checks its types, and plans, judges, writes and drains as before.

Without all of them at once, types are checked and tests run. Of each by itself it is then enough that no other annex
and no line of the wiring names it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PACKAGES = {
    "tightship": "common",
    "node_compactor": "node-compactor",
    "node_refiner": "node-refiner",
    "hpa_scaler": "hpa-scaler",
}
ENTRIES = {
    "tightship.advice": "advise",
    "tightship.deletion_costs": "pod_costs",
    "tightship.frontier": "frontier",
    "tightship.fit": "fit",
    "tightship.landing": "landing_guide",
    "tightship.prices": "prices",
    "tightship.search": "search",
    "hpa_scaler.backtest": "add_backtest",
    "hpa_scaler.forecast": "forecasts_of_past",
}
"""The annexes, each with the one function that is imported of it."""

STANDS_ON = {"tightship.search": ("tightship.frontier",)}
"""The annexes that go with the one they stand on."""

WIRING = ("tightship/nodes/annexes.py", "hpa_scaler/annexes.py")
CORE = (
    "common/tests/test_plans.py",
    "common/tests/test_lowest_cost.py::test_the_dear_big_node_goes_instead_of_two_cheap_small_ones",
    "common/tests/test_lowest_cost.py::test_pools_of_a_plan_may_go_by_price",
    "common/tests/test_evictability.py",
    "common/tests/drain/test_transitions.py",
    "common/tests/consolidation/test_health.py",
    "node-compactor/tests/test_pacing.py",
    "node-refiner/tests/test_excess.py",
    "hpa-scaler/tests/test_policy.py",
    "hpa-scaler/tests/test_cases.py",
    "hpa-scaler/tests/test_records.py",
    "hpa-scaler/tests/test_cycle.py",
    "hpa-scaler/tests/test_decision_log.py",
    "hpa-scaler/tests/test_fleet.py",
)
"""Tests of the core that need no annex, but for cases of an annex's commands: of properties, plain examples."""


def without(annexes: Collection[str], folder: Path) -> Path:
    """Copy the packages without *annexes* and their lines in the wiring; return the folder to import them from."""
    made, gone = folder / "src", {*annexes, *(below for each in annexes for below in STANDS_ON.get(each, ()))}
    for package, where in PACKAGES.items():
        names = [each.partition(".")[2] for each in gone if each.startswith(f"{package}.")]
        kept = shutil.ignore_patterns("__pycache__", *names)
        shutil.copytree(ROOT / "packages" / where / "src" / package, made / package, ignore=kept)
    for name in WIRING:
        text = (made / name).read_text()
        for each in gone:
            entry = ENTRIES[each]
            text = re.sub(rf"^from {re.escape(each)} import {entry}\n", "", text, flags=re.MULTILINE)
            text = re.sub(rf"\| None = {entry}$", "| None = None", text, flags=re.MULTILINE)
            text = text.replace(f"({entry},)", "()")
        (made / name).write_text(text)
    return made


def run(source: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(source), "MYPYPATH": str(source)}
    return subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return without(ENTRIES, tmp_path_factory.mktemp("core"))


@pytest.mark.parametrize("annex", ENTRIES)
def test_nothing_but_the_wiring_knows_an_annex(annex: str, tmp_path: Path) -> None:
    source = without((annex,), tmp_path)
    package, _, folder = annex.partition(".")
    named = re.compile(
        rf"^\s*(from|import) {re.escape(annex)}\b|^\s*from {package} import .*\b{folder}\b", re.MULTILINE
    )
    assert [str(path) for path in source.rglob("*.py") if named.search(path.read_text())] == []
    undefined = ("-m", "ruff", "check", "--isolated", "--no-cache", "--select", "F821")
    found = run(source, *undefined, *(str(source / each) for each in WIRING))
    assert found.returncode == 0, found.stdout


@pytest.mark.slow
@pytest.mark.takes(20)
@pytest.mark.xdist_group("annexes")
def test_without_annexes_the_rest_does_its_work(core: Path) -> None:
    imported = "import tightship, node_compactor.controller, node_refiner.controller, hpa_scaler.cli"
    where = run(core, "-c", f"{imported}; print(tightship.__file__, hpa_scaler.__file__)")
    assert [each.startswith(str(core)) for each in where.stdout.split()] == [True, True], where.stderr
    tests = [str(ROOT / "packages" / name) for name in CORE]
    plain = ("-q", "-n", "0", "-p", "no:cacheprovider", "-k", "not backtest and not suggest")
    made = run(core, "-m", "pytest", *plain, *tests)
    assert made.returncode == 0, made.stdout[-3000:]


@pytest.mark.slow
@pytest.mark.takes(20)
@pytest.mark.xdist_group("annexes")
def test_without_annexes_the_rest_checks_its_types(core: Path, tmp_path: Path) -> None:
    # What ``make check`` has found of libraries serves here, too.
    cache, known = tmp_path / "types", ROOT / ".mypy_cache"
    if known.exists():
        shutil.copytree(known, cache)
    types = run(core, "-m", "mypy", "--cache-dir", str(cache), *(str(core / package) for package in PACKAGES))
    assert types.returncode == 0, types.stdout
