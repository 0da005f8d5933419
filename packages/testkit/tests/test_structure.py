"""What docs/contributing.md says of names and modules."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

PACKAGES = Path(__file__).resolve().parents[2]
PRODUCT = ("common", "node-compactor", "node-refiner", "hpa-scaler", "tightship-cli")


def test_a_public_class_name_stands_for_one_thing() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for path in (each for package in PRODUCT for each in (PACKAGES / package / "src").rglob("*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(path.name)
    assert len(places) > 500
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_no_module_is_longer_than_350_lines() -> None:
    paths = [each for package in PRODUCT for each in (PACKAGES / package / "src").rglob("*.py")]
    assert {each.name: lines for each in paths if (lines := each.read_text().count("\n")) > 350} == {}
