"""What tests of packages may import. import-linter says it of the packages themselves; it sees no folder of tests."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
TESTS = sorted(ROOT.glob("packages/*/tests/**/*.py"))


def helpers(*folders: Path) -> set[str]:
    """The modules of folders of tests that other modules import by their names alone."""
    names = {each.stem for folder in folders for each in folder.glob("*.py")}
    return {each for each in names if not each.startswith("test_")} - {"conftest", "__init__"}


E2E = {"tightship_e2e", *helpers(ROOT / "e2e" / "tests")}
OF_PACKAGES = helpers(*ROOT.glob("packages/*/tests"))


def imported(source: str) -> Iterator[str]:
    """The packages that *source* imports from, wherever in it."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import():
                yield from (each.name.partition(".")[0] for each in node.names)
            case ast.ImportFrom(level=0, module=str(module)):
                yield module.partition(".")[0]


def test_no_test_of_a_package_imports_anything_of_e2e() -> None:
    found = {str(path.relative_to(ROOT)): E2E.intersection(imported(path.read_text())) for path in TESTS}
    assert "packages/testkit/tests/test_imports.py" in found
    assert {path: modules for path, modules in found.items() if modules} == {}


def test_no_helper_of_e2e_has_the_name_of_one_of_a_package() -> None:
    """All folders of tests are on one path: which of the two were imported would be chance."""
    assert OF_PACKAGES
    assert {"tightship_e2e"} < E2E
    assert not E2E & OF_PACKAGES


@pytest.mark.parametrize(
    "source",
    [
        "import floors",
        "import os, floors.deeper as deeper",
        "from floors import Shop",
        "from floors.deeper import Shop",
        "def work():\n    from floors import Shop",
        "if TYPE_CHECKING:\n    import floors",
    ],
)
def test_an_import_is_found_wherever_it_is(source: str) -> None:
    assert "floors" in set(imported(source))


@pytest.mark.parametrize("source", ["from . import floors", "from .floors import Shop", "from other import floors"])
def test_a_module_of_a_package_of_its_own_is_no_helper_of_e2e(source: str) -> None:
    assert "floors" not in set(imported(source))
