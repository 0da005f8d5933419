"""Each annex can be deleted: the rest still checks its types, and judges, writes and plans as before."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import hpa_scaler

PACKAGE = Path(hpa_scaler.__file__).parent
ROOT = Path(__file__).parents[3]
ENTRIES = {"backtest": "add_backtest", "forecast": "forecasts_of_past"}
CORE = (
    "test_policy.py",
    "test_cases.py",
    "test_records.py",
    "test_cycle.py",
    "test_decision_log.py",
    "test_fleet.py",
)
"""Tests of the core, with the cases of no annex's commands."""


def without(annex: str, folder: Path) -> Path:
    """Copy the package without *annex* and its lines, and return the folder to import it from."""
    made = folder / "src"
    shutil.copytree(PACKAGE, made / "hpa_scaler", ignore=shutil.ignore_patterns("__pycache__", annex))
    wiring = made / "hpa_scaler" / "annexes.py"
    entry = ENTRIES[annex]
    text = re.sub(rf"^from .*{entry}\n", "", wiring.read_text(), flags=re.MULTILINE)
    wiring.write_text(text.replace(f"({entry},)", "()"))
    assert entry not in wiring.read_text()
    return made


def run(source: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(source), "MYPYPATH": str(source)}
    return subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.takes(20)
@pytest.mark.parametrize("annex", ENTRIES)
def test_without_an_annex_the_rest_does_its_work(annex: str, tmp_path: Path) -> None:
    source = without(annex, tmp_path)
    where = run(source, "-c", "import hpa_scaler.cli as cli; print(cli.__file__)")
    assert where.stdout.startswith(str(source)), where.stderr
    tests = [str(Path(__file__).parent / name) for name in CORE]
    plain = ("-q", "-n", "0", "-p", "no:cacheprovider", "-k", "not backtest and not suggest")
    made = run(source, "-m", "pytest", *plain, *tests)
    assert made.returncode == 0, made.stdout[-3000:]


@pytest.mark.slow
@pytest.mark.parametrize("annex", ENTRIES)
def test_without_an_annex_the_rest_checks_its_types(annex: str, tmp_path: Path) -> None:
    source = without(annex, tmp_path)
    types = run(source, "-m", "mypy", "--cache-dir", str(tmp_path / "types"), str(source / "hpa_scaler"))
    assert types.returncode == 0, types.stdout
