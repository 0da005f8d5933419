"""Pure folders load nothing that talks to the outside."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
[PURE] = [
    each
    for each in tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    if "is pure: no network" in each["name"]
]
"""The rule of import-linter, which sees no import of a library by way of another library."""
OUTSIDE = ("aiohttp", "jinja2", "pydantic", "ssl", "tenacity", "yaml")
IMPORTED = """
import importlib, pathlib, pkgutil, sys
folder = importlib.import_module(sys.argv[1])
for module in pkgutil.walk_packages(folder.__path__, folder.__name__ + "."):
    importlib.import_module(module.name)
print(*sorted(set(sys.argv[2:]) & sys.modules.keys()))
print(sum(name.startswith(sys.argv[1]) for name in sys.modules), len([*pathlib.Path(folder.__path__[0]).rglob("*.py")]))
"""


@pytest.mark.parametrize("folder", PURE["source_modules"])
def test_a_pure_folder_loads_nothing_that_talks_to_the_outside(folder: str) -> None:
    asked = [sys.executable, "-c", IMPORTED, folder, *OUTSIDE]
    done = subprocess.run(asked, capture_output=True, text=True, check=True)
    loaded, count = done.stdout.split("\n")[:2]
    assert loaded == ""
    found, files = map(int, count.split())
    assert found >= files > 1
