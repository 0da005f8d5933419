"""Each annex can be deleted: the rest still checks its types, and plans, judges and drains as before."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
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
    "advice": "advise",
    "deletion_costs": "pod_costs",
    "frontier": "frontier",
    "landing": "landing_guide",
    "prices": "prices",
    "search": "search",
}
"""The annexes, each with the one function that is imported of it."""

STANDS_ON = {"search": ("frontier",)}
"""The annexes that go with the one they stand on."""

WIRING = ("tightship/nodes/annexes.py", "hpa_scaler/annexes.py")
CORE = (
    "common/tests/test_plans.py",
    "common/tests/test_lowest_cost.py",
    "common/tests/test_evictability.py",
    "common/tests/drain/test_transitions.py",
    "common/tests/consolidation/test_health.py",
    "node-compactor/tests/test_pacing.py",
    "node-refiner/tests/test_excess.py",
)
"""Tests of the core that need no annex."""


def without(annex: str, folder: Path) -> Path:
    """Copy the packages without *annex* and its lines in the wiring; return the folder to import them from."""
    made, gone = folder / "src", (annex, *STANDS_ON.get(annex, ()))
    for package, where in PACKAGES.items():
        kept = shutil.ignore_patterns("__pycache__", *(gone if package == "tightship" else ()))
        shutil.copytree(ROOT / "packages" / where / "src" / package, made / package, ignore=kept)
    for name in WIRING:
        text = (made / name).read_text()
        for each in gone:
            entry = ENTRIES[each]
            text = re.sub(rf"^from tightship\.{each} import {entry}\n", "", text, flags=re.MULTILINE)
            text = re.sub(rf"\| None = {entry}$", "| None = None", text, flags=re.MULTILINE)
        (made / name).write_text(text)
    return made


def run(source: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(source), "MYPYPATH": str(source)}
    return subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("annex", ENTRIES)
def test_nothing_but_the_wiring_imports_an_annex(annex: str, tmp_path: Path) -> None:
    source = without(annex, tmp_path)
    named = re.compile(rf"^\s*(from|import) tightship\.{annex}\b", re.MULTILINE)
    assert [str(path) for path in source.rglob("*.py") if named.search(path.read_text())] == []


@pytest.mark.takes(20)
@pytest.mark.parametrize("annex", ENTRIES)
def test_without_an_annex_the_rest_does_its_work(annex: str, tmp_path: Path) -> None:
    source = without(annex, tmp_path)
    imported = "import tightship, node_compactor.controller, node_refiner.controller, hpa_scaler.cli"
    where = run(source, "-c", f"{imported}; print(tightship.__file__)")
    assert where.stdout.startswith(str(source)), where.stderr
    tests = [str(ROOT / "packages" / name) for name in CORE]
    made = run(source, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", *tests)
    assert made.returncode == 0, made.stdout[-3000:]


@pytest.mark.slow
@pytest.mark.parametrize("annex", ENTRIES)
def test_without_an_annex_the_rest_checks_its_types(
    annex: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    source = without(annex, tmp_path)
    cache = tmp_path_factory.getbasetemp() / "types"
    checked = [str(source / package) for package in PACKAGES]
    types = run(source, "-m", "mypy", "--cache-dir", str(cache), *checked)
    assert types.returncode == 0, types.stdout
