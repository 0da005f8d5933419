"""The charts with the dependencies that a checkout lacks, built once for all workers of a run of tests."""

from __future__ import annotations

import fcntl
import shutil
from pathlib import Path

from tightship_e2e.helm import Helm

SOURCES = Path(__file__).resolve().parents[3] / "charts"
"""The charts of this checkout. Tests write nothing there: workers would meet, and a person may be building as well."""


def built(helm: Helm, folder: Path) -> Path:
    """Return *folder* with a copy of every chart and its dependencies. Whoever comes second waits for the first.

    Raises :class:`HelmError` if a chart is out of step with its ``Chart.lock``.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            whole = folder.with_suffix(".whole")
            copied(SOURCES, whole)
            for each in sorted(whole.glob("*/Chart.lock")):
                helm("dependency", "build", each.parent)
            whole.rename(folder)
    return folder


def copied(charts: Path, folder: Path) -> None:
    """Copy every chart of *charts* as git has it: without dependencies that somebody has built there."""
    shutil.rmtree(folder, ignore_errors=True)
    for each in charts.glob("*/Chart.yaml"):
        shutil.copytree(each.parent, folder / each.parent.name, ignore=shutil.ignore_patterns("charts"))


__all__ = ["SOURCES", "built", "copied"]
