"""Quantities: every form the API accepts, as exact integers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tightship.objects import quantity
from tightship.objects.quantity import QuantityError


@pytest.mark.parametrize(
    ("text", "milli", "value"),
    [
        ("100m", 100, 1),
        ("0.5", 500, 1),
        (".5", 500, 1),
        ("5.", 5000, 5),
        ("+2", 2000, 2),
        ("1e3", 10**6, 1000),
        ("1E3", 10**6, 1000),
        ("12e-1", 1200, 2),
        ("2E", 2 * 10**21, 2 * 10**18),
        ("1.5Gi", 1610612736000, 1610612736),
        ("129M", 129 * 10**9, 129 * 10**6),
        ("128974848", 128974848000, 128974848),
        ("5n", 1, 1),
        ("0.0001n", 1, 1),
        ("1001u", 2, 1),
        ("0", 0, 0),
        ("-0.5", -500, -1),
        ("100000Ei", (2**63 - 1) * 1000, 2**63 - 1),
        ("1e999999999", (2**63 - 1) * 1000, 2**63 - 1),
        ("1e-999999999", 1, 1),
    ],
)
def test_every_form_becomes_exact_integers_rounded_away_from_zero(text: str, milli: int, value: int) -> None:
    assert (quantity.milli(text), quantity.value(text)) == (milli, value)


@pytest.mark.parametrize(
    "text", ["", " 1", "1 ", "1KI", "1ki", "Ki", ".", "e3", "1e", "1.2.3", "--1", "0x10", "\u0661", "1_0", "NaN", "inf"]
)
def test_what_the_api_refuses_is_refused_by_name(text: str) -> None:
    with pytest.raises(QuantityError, match="is not a quantity; allowed is"):
        quantity.nano(text)


@pytest.mark.parametrize("resource", ["cpu", "memory", "nvidia.com/gpu"])
def test_a_negative_amount_is_refused_with_its_resource(resource: str) -> None:
    with pytest.raises(QuantityError, match=f"'-1' .* zero or more, for {resource}"):
        quantity.amount(resource, "-1")


@given(st.integers(0, 10**9), st.sampled_from(["n", "u", "m", "", "k", "M", "Ki", "Mi", "Gi"]))
def test_suffixes_scale_exactly(number: int, suffix: str) -> None:
    factor = {"n": 1, "u": 10**3, "m": 10**6, "": 10**9, "k": 10**12, "M": 10**15}.get(suffix)
    factor = factor or 1024 ** (("Ki", "Mi", "Gi").index(suffix) + 1) * 10**9
    assert quantity.nano(f"{number}{suffix}") == min(number * factor, (2**63 - 1) * 10**9)


@pytest.mark.parametrize(
    ("resource", "amount", "text"),
    [
        ("cpu", 1500, "1.5"),
        ("cpu", 250, "250m"),
        ("cpu", 4000, "4"),
        ("memory", 1023, "1023"),
        ("memory", 1024, "1Ki"),
        ("memory", 1610612736, "1.5Gi"),
        ("memory", 3 << 60, "3Ei"),
        ("ephemeral-storage", 5 << 70, "5120Ei"),
        ("hugepages-2Mi", 2 << 20, "2Mi"),
        ("pods", 110, "110"),
    ],
)
def test_amounts_read_as_people_write_them(resource: str, amount: int, text: str) -> None:
    assert quantity.humanize(resource, amount) == text
