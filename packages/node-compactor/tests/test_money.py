"""A plan in money, in every output: with prices for all nodes, for some, and for none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from node_compactor.controller import COMPACTOR
from tightship.prices.lists import PriceList
from tightship.process.settings.loading import SettingsError

POOL = "cloud.google.com/gke-nodepool"
PRICES = {
    "currency": "EUR",
    "prices": [{"selector": {POOL: "web"}, "price": 0.2}, {"selector": f"{POOL} in (gpu)", "price": "2.5"}],
}


@pytest.fixture
def prices(tmp_path: Path) -> Path:
    path = tmp_path / "prices.yaml"
    path.write_text(yaml.safe_dump(PRICES))
    return path


def lines(text: str, *labels: str) -> list[str]:
    """Return the lines of the summary from the first of *labels* on, without blanks at their ends."""
    return [line.rstrip() for line in text.splitlines() if line.startswith(labels)]


def test_the_table_says_what_a_month_costs_before_and_after(cli: Any, data: Path, prices: Path) -> None:
    outcome = cli("plan", "-f", data / "cluster.yaml", "--prices", prices)
    assert outcome.code == 0
    text = outcome.out
    assert "  MONTH  " in text
    assert lines(text, "Money") == ["Money      EUR 0.4 an hour now; EUR 292 a month if it lasts (11%)"]
    assert f"from the list: 5 by selector {POOL}=web, 1 by selector {POOL} in (gpu)" in text
    assert "3 nodes have no price, so no sum counts them" in text
    assert "Pools      batch        2 nodes            no price" in text
    assert "web      5 → 3 nodes   EUR 730 → EUR 438   EUR 292 saved" in text


def test_without_prices_one_line_says_how_to_get_them(cli: Any, data: Path) -> None:
    text = cli("plan", "-f", data / "cluster.yaml").out
    detail = "no node has a price; --prices FILE or the annotation tightship.dev/hourly-price tells the plan in money"
    assert lines(text, "Money") == [f"Money      {detail}"]
    assert "MONTH" not in text
    assert "Pools  " not in text


def test_the_wide_table_says_where_each_price_comes_from(cli: Any, data: Path, prices: Path) -> None:
    printed = cli("plan", "-f", data / "cluster.yaml", "--prices", prices, "-o", "wide").out.splitlines()
    [at] = [number for number, line in enumerate(printed) if line.startswith("NODE ")]
    head, *rows = printed[at:]
    for title in ("OTHER", "HOUR", "MONTH", "PRICE FROM"):
        assert title in head
    [gpu] = [row for row in rows if row.startswith("gpu-1")]
    for cell in ("nvidia.com/gpu=1/1", "EUR 2.5", "EUR 1,825", f"list (selector {POOL} in (gpu))"):
        assert cell in gpu


def test_the_document_has_integers_and_sources(cli: Any, data: Path, prices: Path) -> None:
    document = json.loads(cli("plan", "-f", data / "cluster.yaml", "--prices", prices, "-o", "json").out)
    money = document["summary"]["money"]
    assert money["microsPerMonth"] == {"before": 2_555_000_000, "after": 2_263_000_000, "saved": 292_000_000}
    assert (money["priced"], money["unpriced"], money["unpricedRemoved"], money["hoursPerMonth"]) == (6, 3, 0, 730)
    web = {each["pool"]: each for each in document["summary"]["pools"]}["web"]
    assert web["microsPerMonth"] == {"before": 730_000_000, "after": 438_000_000, "saved": 292_000_000}
    costs = {node["name"]: node["cost"] for node in document["nodes"]}
    assert costs["batch-1"] is None
    assert costs["web-1"] == {
        "microsPerHour": 200_000,
        "microsPerMonth": 146_000_000,
        "currency": "EUR",
        "source": "list",
        "basis": f"selector {POOL}=web",
    }
    as_yaml = yaml.safe_load(cli("plan", "-f", data / "cluster.yaml", "--prices", prices, "-o", "yaml").out)
    assert as_yaml == document


def test_the_page_says_the_same(cli: Any, data: Path, prices: Path) -> None:
    page = cli("plan", "-f", data / "cluster.yaml", "--prices", prices, "-o", "html").out
    for text in (
        "saved now",
        "EUR 0.4 an hour",
        "EUR 292 of EUR 2,555 a month, if it lasts; 3 nodes without a price",
        "EUR 0.4 an hour, ",
        "gpu: ",
        "A month",
    ):
        assert text in page


def test_the_page_has_the_limit_of_the_settings_on_its_bars(cli: Any, data: Path) -> None:
    page = cli("plan", "-f", data / "cluster.yaml", "--limit", "0.5", "-o", "html").out
    assert "The line across a bar of CPU is the limit: 50%." in page
    assert '<path class="limit" d="M60 0' in page


def test_explain_says_what_a_node_costs(cli: Any, data: Path, prices: Path) -> None:
    text = cli("explain", "-f", data / "cluster.yaml", "--prices", prices, "web-1").out
    assert f"Price     EUR 0.2 an hour, EUR 146 a month; from the list (selector {POOL}=web)" in text


def test_nodes_can_be_sorted_by_price(cli: Any, data: Path, prices: Path) -> None:
    arguments = ("plan", "-f", data / "cluster.yaml", "--prices", prices, "--sort-by", "price", "-o", "json")
    names = [each["name"] for each in json.loads(cli(*arguments).out)["nodes"]]
    assert names[:2] == ["gpu-1", "web-1"]
    assert names[-1] == "control-1"


def test_a_bad_annotation_is_a_warning(cli: Any, data: Path, tmp_path: Path) -> None:
    cluster = yaml.safe_load((data / "cluster.yaml").read_text())
    cluster["items"][0]["metadata"]["annotations"] = {"tightship.dev/hourly-price": "free"}
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps(cluster))
    text = cli("plan", "-f", path).out
    assert "Warning    node web-1: annotation tightship.dev/hourly-price: 'free' is not a price; allowed is" in text


def test_a_strategy_by_price_without_prices_says_what_it_needs(cli: Any, data: Path) -> None:
    text = cli("plan", "-f", data / "cluster.yaml", "--strategy", "lowest-cost").out
    assert "strategy lowest-cost needs prices: without any, the plan is that of fewest-nodes" in text


@pytest.mark.parametrize("strategy", ["lowest-cost", "balanced"])
def test_a_search_of_a_plan_by_price_saves_no_less(strategy: str, cli: Any, data: Path, prices: Path) -> None:
    given = ("plan", "-f", data / "cluster.yaml", "--strategy", strategy, "--prices", prices, "-o", "json")
    alone = json.loads(cli(*given, "--placement", "possible").out)["summary"]
    for more in ((), ("--until-stable",)):
        summary = json.loads(cli(*given, "--search", "1s", *more).out)["summary"]
        assert summary["search"]["iterations"]
        assert summary["money"]["microsPerMonth"]["saved"] >= alone["money"]["microsPerMonth"]["saved"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("prices: [{price: -1, instanceType: a}]", "prices[1].price: -1 is not a price; allowed is a number of 0 to"),
        ("instanceTypes: {a: dear}", "instanceTypes.a: 'dear' is not a price"),
        ("- a", "holds list, not a mapping of settings"),
        ("{", "neither JSON nor YAML"),
        ("", "holds no price"),
    ],
)
def test_an_unusable_price_list_is_an_error_that_names_the_file(
    cli: Any, data: Path, tmp_path: Path, text: str, says: str
) -> None:
    path = tmp_path / "prices.yaml"
    path.write_text(text)
    outcome = cli("plan", "-f", data / "cluster.yaml", "--prices", path)
    assert (outcome.code, outcome.out) == (1, "")
    assert str(path) in outcome.err
    assert says in outcome.err


def test_the_list_may_stand_in_the_configuration() -> None:
    settings = COMPACTOR.configured({"config.yaml": yaml.safe_dump({"prices": PRICES})}, {})
    assert isinstance(settings.prices, PriceList)
    assert (settings.prices.currency, len(settings.prices.entries)) == ("EUR", 2)


def test_a_bad_list_in_the_configuration_is_refused_with_its_key() -> None:
    with pytest.raises(SettingsError) as caught:
        COMPACTOR.configured({"config.yaml": "prices: {instanceTypes: {a: -1}, curency: USD}"}, {})
    [problem] = caught.value.problems
    assert problem.startswith(
        "config.yaml: prices: curency: unknown key; did you mean currency? allowed are cloudPrices, currency"
    )
    assert "instanceTypes.a: -1 is not a price" in problem


def test_a_configmap_manifest_may_hold_the_list(cli: Any, data: Path, tmp_path: Path) -> None:
    path = tmp_path / "manifest.yaml"
    manifest = {"kind": "ConfigMap", "data": {"prices.yaml": yaml.safe_dump(PRICES)}}
    path.write_text(yaml.safe_dump(manifest))
    assert "EUR 2,263 a month" in cli("plan", "-f", data / "cluster.yaml", "--prices", path).out


def test_a_flag_overrides_the_configuration(prices: Path, tmp_path: Path) -> None:
    from tightship.prices.lists import read_prices

    config = tmp_path / "config.yaml"
    config.write_text("prices: {instanceTypes: {a: 1}}")
    settings = COMPACTOR.planned(str(config), {}, {"prices": read_prices(str(prices))})
    assert settings.prices is not None
    assert settings.prices.currency == "EUR"
