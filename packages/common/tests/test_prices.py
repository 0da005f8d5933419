"""What a node costs, where its price comes from, and what is said of prices that can't be used."""

from __future__ import annotations

from typing import Any

import pytest

from tightship.objects import Node
from tightship.objects.money import HOURLY_PRICE, annotation_problem, parse_price, price_of
from tightship.prices.lists import cloud_prices, is_spot, no_list, price_list
from tightship.process.settings.loading import SettingsError
from tightship_testkit.builders import node, snapshot

LARGE = {"node.kubernetes.io/instance-type": "m5.large", "topology.kubernetes.io/zone": "us-east-1a"}
SPOT = {"karpenter.sh/capacity-type": "spot"}


def made(labels: dict[str, str] | None = None, **notes: str) -> Node:
    [view] = snapshot(node(labels=labels, notes=notes)).nodes.values()
    return view.node


def cost(labels: dict[str, str], values: dict[str, Any], notes: dict[str, str] | None = None) -> tuple[int, str] | None:
    found = price_of(made(labels, **(notes or {})), price_list(values))
    return None if found is None else (found.hourly, found.basis)


def test_a_node_without_annotation_and_without_list_has_no_price() -> None:
    assert price_of(made(LARGE)) is None


def shipped(labels: dict[str, str], values: dict[str, Any] | None = None) -> tuple[int, str, str] | None:
    prices = no_list() if values is None else price_list(values, cloud_prices())
    found = price_of(made(labels), prices)
    return None if found is None else (found.hourly, found.source, found.basis)


@pytest.mark.parametrize(
    ("kind", "hourly", "cloud"),
    [
        ("m5.large", 96_000, "AWS on demand in us-east-1, 20"),
        ("Standard_D4s_v5", 192_000, "Azure on demand in eastus, 20"),
        ("e2-standard-4", 134_023, "Google Cloud on demand in us-central1, 20"),
    ],
)
def test_a_machine_of_a_cloud_costs_its_price_on_demand(kind: str, hourly: int, cloud: str) -> None:
    found = shipped({"node.kubernetes.io/instance-type": kind})
    assert found is not None
    assert found[:2] == (hourly, "cloud")
    assert found[2].startswith(cloud)


def test_a_price_of_another_region_names_both() -> None:
    found = shipped(LARGE | {"topology.kubernetes.io/region": "eu-central-1"})
    assert found is not None
    assert found[2].endswith(", taken for eu-central-1")


def test_a_spot_machine_counts_at_a_part_of_its_price_on_demand_that_is_told() -> None:
    found = shipped(LARGE | SPOT)
    assert found is not None
    assert (found[0], found[2].rpartition(", ")[2]) == (38_400, "spot x 0.4")
    found = shipped(LARGE | SPOT, {"spotFactor": 0.25})
    assert found is not None
    assert (found[0], found[2].rpartition(", ")[2]) == (24_000, "spot x 0.25")


@pytest.mark.parametrize(
    ("labels", "values"),
    [
        ({"node.kubernetes.io/instance-type": "m5.imaginary"}, None),
        (LARGE | {"kubernetes.io/os": "windows"}, None),
        (
            {
                "node.kubernetes.io/instance-type": "n1-standard-8",
                "cloud.google.com/gke-accelerator": "nvidia-tesla-t4",
            },
            None,
        ),
        (LARGE, {"cloudPrices": False}),
        (LARGE, {"currency": "EUR", "instanceTypes": {"m6.large": 1}}),
    ],
)
def test_a_price_on_demand_that_would_not_be_true_is_none(
    labels: dict[str, str], values: dict[str, Any] | None
) -> None:
    assert shipped(labels, values) is None


def test_the_list_of_the_user_comes_before_prices_on_demand() -> None:
    values = {"instanceTypes": {"m5.large": 0.05}}
    assert shipped(LARGE, values) == (50_000, "list", "type m5.large")
    assert shipped(LARGE | SPOT, values) is None, "a type of the user's without a factor has no price for spot"
    found = shipped({"node.kubernetes.io/instance-type": "m5.xlarge"}, values)
    assert found is not None
    assert found[:2] == (192_000, "cloud")


def test_the_annotation_comes_before_the_list() -> None:
    found = price_of(made(LARGE, **{HOURLY_PRICE: "0.5"}), price_list({"instanceTypes": {"m5.large": 0.096}}))
    assert found is not None
    assert (found.hourly, found.source, found.monthly) == (500_000, "annotation", 365_000_000)


def test_an_unreadable_annotation_is_told_and_the_list_counts() -> None:
    bad = made(LARGE, **{HOURLY_PRICE: "cheap"})
    found = price_of(bad, price_list({"instanceTypes": {"m5.large": "0.096"}}))
    assert found is not None
    assert (found.hourly, found.source) == (96_000, "list")
    problem = annotation_problem(bad)
    assert "node n1" in problem
    assert "'cheap' is not a price; allowed is a number of 0 to 1,000,000" in problem


def test_the_first_entry_that_matches_counts_and_types_come_last() -> None:
    values = {
        "instanceTypes": {"m5.large": 0.096},
        "prices": [
            {"instanceType": "m5.large", "zone": "us-east-1a", "price": 0.099},
            {"selector": "pool in (gpu,ml)", "price": 3},
            {"selector": {"pool": "gpu", "tier": "b"}, "price": 4},
        ],
    }
    assert cost(LARGE, values) == (99_000, "type m5.large zone us-east-1a")
    assert cost(LARGE | {"topology.kubernetes.io/zone": "us-east-1b"}, values) == (96_000, "type m5.large")
    assert cost({"pool": "gpu", "tier": "b"}, values) == (3_000_000, "selector pool in (gpu,ml)")
    assert cost({"pool": "web"}, values) is None


def test_a_spot_node_has_its_own_entry_or_the_factor_or_no_price() -> None:
    own = {"instanceType": "m5.large", "capacityType": "spot", "price": 0.035}
    types = {"instanceTypes": {"m5.large": 0.1}}
    assert cost(LARGE | SPOT, types | {"prices": [own]}) == (35_000, "type m5.large spot")
    assert cost(LARGE, types | {"prices": [own]}) == (100_000, "type m5.large")
    assert cost(LARGE | SPOT, types | {"spotFactor": 0.35}) == (35_000, "type m5.large, spot x 0.35")
    assert cost(LARGE | SPOT, types) is None


def test_an_entry_by_selector_is_about_spot_nodes_too() -> None:
    values = {"prices": [{"selector": "pool=batch", "price": 0.2}], "spotFactor": 0.5}
    assert cost({"pool": "batch"} | SPOT, values) == (200_000, "selector pool=batch")


@pytest.mark.parametrize(
    ("label", "word"),
    [
        ("karpenter.sh/capacity-type", "spot"),
        ("eks.amazonaws.com/capacityType", "SPOT"),
        ("cloud.google.com/gke-spot", "true"),
        ("cloud.google.com/gke-preemptible", "true"),
        ("cloud.google.com/gke-provisioning", "spot"),
        ("kubernetes.azure.com/scalesetpriority", "spot"),
    ],
)
def test_every_cloud_names_its_spot_nodes(label: str, word: str) -> None:
    assert is_spot({label: word})
    assert not is_spot({label: "on-demand"})


def test_a_currency_is_told_with_the_price() -> None:
    found = price_of(made(LARGE), price_list({"currency": "eur", "instanceTypes": {"m5.large": "0.0884"}}))
    assert found is not None
    assert (found.currency, found.hourly) == ("EUR", 88_400)


@pytest.mark.parametrize("value", [0, "0", 0.096, "0.0000004", 1_000_000, "1e2"])
def test_a_price_is_a_number_in_millionths(value: object) -> None:
    assert parse_price(value) == round(float(str(value)) * 1_000_000)


@pytest.mark.parametrize(
    "value", [None, True, "", "x", "-1", -0.1, "nan", "inf", 1_000_001, "1_0", "9" * 400, "1e99", [1]]
)
def test_anything_else_is_no_price(value: object) -> None:
    with pytest.raises(ValueError, match="is not a price; allowed is a number of 0 to 1,000,000"):
        parse_price(value)


def test_every_problem_of_a_list_is_told_with_its_thing_and_what_is_allowed() -> None:
    with pytest.raises(SettingsError) as caught:
        price_list(
            {
                "curency": "USD",
                "currency": "dollars",
                "spotFactor": 3,
                "instanceTypes": {"m5.large": -1},
                "prices": [
                    {"price": 1},
                    {"instanceType": "a", "price": 1, "capacityType": "cheap"},
                    {"selector": "a=(", "price": 1},
                    {"selector": {}, "price": 1},
                    {"instanceType": "b", "prize": 1},
                    "m5.large: 1",
                ],
            }
        )
    reported = caught.value.problems
    for part in (
        "curency: unknown key; did you mean currency? allowed are cloudPrices, currency",
        "currency: 'dollars'; allowed is a code of three letters",
        "spotFactor: 3; allowed is a number of 0 to 1",
        "instanceTypes.m5.large: -1 is not a price",
        "prices[1]: names no nodes; allowed is instanceType, selector, or both",
        "prices[2].capacityType: 'cheap'; allowed are on-demand and spot",
        "prices[3].selector: selector 'a=('",
        "prices[4].selector: {} selects every node",
        "prices[5].prize: unknown key",
        "prices[5].price: None is not a price",
        "prices[6]: 'm5.large: 1'; allowed is a mapping",
    ):
        assert any(each.startswith(part) for each in reported), part


def test_two_entries_about_the_same_nodes_are_refused() -> None:
    with pytest.raises(SettingsError, match=r"^prices\[3\]: is about the same nodes as prices\[1\]; allowed is one"):
        price_list({"prices": [{"instanceType": each, "price": 1} for each in ("a", "b", "a")]})


def test_values_without_end_make_a_short_error() -> None:
    bomb: Any = "x"
    for _ in range(40):
        bomb = [bomb] * 10
    with pytest.raises(SettingsError) as caught:
        price_list({"instanceTypes": {"a": bomb}, "prices": [{"selector": bomb, "price": bomb}], "currency": bomb})
    assert len(str(caught.value)) < 2000


@pytest.mark.parametrize("values", [{}, {"currency": "USD"}, {"prices": []}])
def test_a_list_without_prices_is_refused(values: dict[str, Any]) -> None:
    with pytest.raises(SettingsError, match="holds no price"):
        price_list(values)


@pytest.mark.parametrize("values", [{"prices": {"a": 1}}, {"prices": "a"}, {"instanceTypes": ["m5.large"]}])
def test_a_list_of_the_wrong_shape_is_refused(values: dict[str, Any]) -> None:
    with pytest.raises(SettingsError, match="allowed is a"):
        price_list(values)
