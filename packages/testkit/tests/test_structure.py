"""What docs/contributing.md says of names: a public class name stands for one thing in the whole product."""

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
