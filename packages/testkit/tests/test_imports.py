"""What tests of packages may import. import-linter says it of the packages themselves; it sees no folder of tests."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def helpers(*folders: Path) -> set[str]:
    """The modules of folders of tests that other modules import by their names alone."""
    names = {each.stem for folder in folders for each in folder.glob("*.py")}
    return {each for each in names if not each.startswith("test_")} - {"conftest", "__init__"}


def imported(source: str) -> Iterator[str]:
    """The packages that *source* imports from, wherever in it."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import():
                yield from (each.name.partition(".")[0] for each in node.names)
            case ast.ImportFrom(level=0, module=str(module)):
                yield module.partition(".")[0]


E2E = {"tightship_e2e", *helpers(ROOT / "e2e" / "tests")}


def test_no_test_of_a_package_imports_anything_of_e2e() -> None:
    tests = sorted(ROOT.glob("packages/*/tests/**/*.py"))
    found = {str(path.relative_to(ROOT)): E2E.intersection(imported(path.read_text())) for path in tests}
    assert "packages/testkit/tests/test_imports.py" in found
    assert {path: modules for path, modules in found.items() if modules} == {}


def test_no_helper_of_e2e_has_the_name_of_one_of_a_package() -> None:
    """All folders of tests are on one path: which of the two were imported would be chance."""
    of_packages = helpers(*ROOT.glob("packages/*/tests"))
    assert of_packages
    assert not E2E & of_packages


def test_an_import_is_found_wherever_it_is() -> None:
    source = (
        "import os, floors.deeper as d\ndef work():\n    from drains import Site\nfrom . import own\nfrom .own import x"
    )
    assert set(imported(source)) == {"os", "floors", "drains"}
