"""Selectors, node affinity terms, taints and tolerations."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tightship.objects.selectors import (
    HARD_EFFECTS,
    LabelSelector,
    NodeSelector,
    Requirement,
    SelectorIndex,
    Taint,
    Toleration,
    untolerated,
)


@pytest.mark.parametrize(
    ("operator", "values", "labels", "matches"),
    [
        ("In", ["a", "b"], {"k": "a"}, True),
        ("In", ["a"], {}, False),
        ("NotIn", ["a"], {"k": "a"}, False),
        ("NotIn", ["a"], {}, True),
        ("Exists", [], {"k": ""}, True),
        ("DoesNotExist", [], {"k": "x"}, False),
        ("Gt", ["3"], {"k": "4"}, True),
        ("Gt", ["3"], {"k": "3"}, False),
        ("Lt", ["3"], {"k": "-1"}, True),
        ("Gt", ["3"], {"k": "many"}, False),
        ("Gt", ["3"], {"k": str(2**63)}, False),
        ("Near", ["3"], {"k": "3"}, False),
    ],
)
def test_requirement(operator: str, values: list[str], labels: dict[str, str], *, matches: bool) -> None:
    selector = msgspec.convert(
        {"matchExpressions": [{"key": "k", "operator": operator, "values": values}]}, LabelSelector
    )
    assert selector.matches(labels) is matches


def test_the_empty_selector_matches_everything_and_an_empty_node_term_nothing() -> None:
    assert LabelSelector().matches({})
    assert not msgspec.convert({"nodeSelectorTerms": [{}]}, NodeSelector).matches("n", {})
    assert not NodeSelector().matches("n", {})


def test_terms_are_alternatives_and_fields_know_the_name() -> None:
    by_name = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}
    by_label = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
    selector = msgspec.convert({"nodeSelectorTerms": [by_name, by_label]}, NodeSelector)
    assert selector.matches("n1", {})
    assert selector.matches("n2", {"zone": "a"})
    assert not selector.matches("n2", {"zone": "b"})


@pytest.mark.parametrize(
    ("toleration", "tolerates"),
    [
        (Toleration(operator="Exists"), True),
        (Toleration(key="k", operator="Exists"), True),
        (Toleration(key="k", value="v"), True),
        (Toleration(key="k", operator="Equal", value="other"), False),
        (Toleration(key="k", operator="Exists", effect="NoExecute"), False),
        (Toleration(key="other", operator="Exists"), False),
        (Toleration(key="k", operator="Gt", value="0"), False),
    ],
)
def test_toleration(toleration: Toleration, *, tolerates: bool) -> None:
    taint = Taint("k", "NoSchedule", "v")
    assert (untolerated([taint], [toleration], HARD_EFFECTS) is None) is tolerates


def test_a_soft_taint_keeps_nobody_away() -> None:
    assert untolerated([Taint("k", "PreferNoSchedule")], [], HARD_EFFECTS) is None


_KEYS = st.sampled_from("ab")
_VALUES = st.sampled_from(["1", "2", "3", ""])
_LABELS = st.dictionaries(_KEYS, _VALUES)
_REQUIREMENTS = st.builds(
    Requirement,
    _KEYS,
    st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Near"]),
    st.lists(_VALUES, max_size=3).map(tuple),
)
_SELECTORS = st.none() | st.builds(
    LabelSelector, st.none() | _LABELS, st.none() | st.lists(_REQUIREMENTS, max_size=2).map(tuple)
)


@given(
    st.lists(st.tuples(st.sampled_from(["x", "y", None]), _SELECTORS), max_size=12),
    st.lists(st.tuples(st.sampled_from("xyz"), _LABELS), min_size=1, max_size=4),
)
def test_an_index_finds_exactly_the_selectors_that_match(
    filed: list[tuple[str | None, LabelSelector | None]], asked: list[tuple[str, dict[str, str]]]
) -> None:
    index: SelectorIndex[int] = SelectorIndex()
    for number, (namespace, selector) in enumerate(filed):
        index.add(namespace, selector, number)
    for namespace, labels in asked:
        matching = [
            number
            for number, (where, selector) in enumerate(filed)
            if where in (namespace, None) and selector is not None and selector.matches(labels)
        ]
        assert sorted(index.find(namespace, labels)) == matching
