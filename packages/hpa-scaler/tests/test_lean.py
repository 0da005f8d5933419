"""What the image of the hpa-scaler can do without."""

from __future__ import annotations

import subprocess
import sys

IMPORTED = """
import importlib, pkgutil, sys
import hpa_scaler
for module in pkgutil.walk_packages(hpa_scaler.__path__, "hpa_scaler."):
    importlib.import_module(module.name)
unwanted = {"numpy", "tightship.scheduler", "tightship.planning.plan"}
print(*sorted(unwanted & sys.modules.keys()))
"""


def test_it_plans_nothing_and_needs_no_numpy() -> None:
    done = subprocess.run([sys.executable, "-c", IMPORTED], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
