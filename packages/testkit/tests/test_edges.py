"""The precautions that ``make edge-mutants`` leaves out are in the product, in the words by which they are found."""

from __future__ import annotations

from pathlib import Path

import pytest

from tightship_testkit.mutants.edges import EDGES, Edge


@pytest.mark.parametrize("edge", EDGES, ids=lambda edge: str(edge.name))
def test_the_product_has_each_precaution(edge: Edge) -> None:
    assert edge.left_out().co_qualname == edge.function


def test_the_tests_that_notice_what_no_disaster_shows_are_there() -> None:
    for edge in EDGES:
        file, _, name = edge.test.partition("::")
        assert not edge.test or f"def {name}(" in (Path(__file__).parents[3] / file).read_text(), edge.name
