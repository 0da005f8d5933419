"""What ``make mutants`` changes in a function, and how it learns which block a test enters."""

from __future__ import annotations

from pathlib import Path
from types import FunctionType
from typing import Any

from tightship_testkit.mutants.changes import ENTERED, become, mutants, probed

SOURCE = '''
class Room:
    def left(self, used: int) -> int:
        """Say how much."""
        if used > 1:
            return 4 - used
        return 0
'''


def test_a_place_is_changed_at_a_time_and_known_by_its_block(tmp_path: Path) -> None:
    file = tmp_path / "room.py"
    file.write_text(SOURCE)
    found = [(each.block, each.diff().split("\n")[-1].strip("+ ")) for each in mutants(file)]
    assert found == [
        (4, "if used >= 1:"),
        (4, "if used > 2:"),
        (6, "return None"),
        (6, "return 5 - used"),
        (6, "return 4 + used"),
        (4, "return None"),
        (4, "return 1"),
    ]


def test_a_changed_function_does_what_the_change_says_and_a_probed_one_says_where_it_was(tmp_path: Path) -> None:
    file = tmp_path / "room.py"
    file.write_text(SOURCE)
    values: dict[str, Any] = {}
    exec(compile(SOURCE, str(file), "exec"), values)
    left: FunctionType = values["Room"].left
    for each in mutants(file):
        if "4 + used" in each.diff():
            left.__code__ = each.code()
    assert (left(None, 2), left(None, 1)) == (6, 0)
    entered: set[int] = set()
    values[ENTERED] = entered.add
    left.__code__ = probed(file)["Room.left", 3]
    assert (left(None, 1), entered) == (0, {4})
    assert (left(None, 2), entered) == (2, {4, 6})


def test_what_a_function_has_made_is_changed_with_it(tmp_path: Path) -> None:
    file = tmp_path / "making.py"
    text = "def least(least):\n    def check(text):\n        return int(text) >= least\n    return check\n"
    file.write_text(text)
    values: dict[str, Any] = {}
    exec(compile(text, str(file), "exec"), values)
    positive = values["least"](1)
    [changed] = (each for each in mutants(file) if "> least" in each.diff())
    assert positive("1")
    assert become([values["least"], positive], changed.code()) == [values["least"], positive]
    assert (positive("1"), positive("2")) == (False, True)
