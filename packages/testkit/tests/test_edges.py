"""The precautions that ``make edge-mutants`` leaves out are in the product, in the words by which they are found."""

from __future__ import annotations

import pytest

from tightship_testkit.mutants.edges import EDGES, Edge


@pytest.mark.parametrize("edge", EDGES, ids=lambda edge: str(edge.name))
def test_the_product_has_each_precaution(edge: Edge) -> None:
    assert edge.left_out().co_qualname == edge.function
