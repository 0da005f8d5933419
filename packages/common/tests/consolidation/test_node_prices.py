"""Prices of OpenCost in a running controller."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping

import pytest

from tightship.nodes.loop import PRICES_AGAIN, PRICES_EVERY, NodePrices
from tightship.objects.query_servers import Server
from tightship.prices import opencost
from tightship.prices.lists import read_prices
from tightship.process.settings.loading import SettingsError
from tightship.process.settings.sections import NodeSettings
from tightship_testkit.simulated import until

from .conftest import Start
from .toy import Cluster


class OpenCost:
    """What a server would answer; ``None`` if it is away."""

    def __init__(self) -> None:
        self.says: dict[str, int] | None = {"n1": 500_000}
        self.asked: list[str] = []
        self.now = 0.0
        self.prices = NodePrices(logging.getLogger("t"), lambda: self.now)

    def answer(self, server: Server, _: object) -> Mapping[str, int]:
        self.asked.append(str(server.address))
        if self.says is None:
            raise SettingsError(["openCost http://p:9090: can't be asked: no route"])
        return dict(self.says)


@pytest.fixture
def cost(monkeypatch: pytest.MonkeyPatch) -> OpenCost:
    made = OpenCost()
    monkeypatch.setattr(opencost, "node_costs", made.answer)
    return made


def settings(server: str = "http://p:9090") -> NodeSettings:
    return NodeSettings(prices=read_prices(server)) if server else NodeSettings()


async def test_settings_get_the_prices_and_stay_the_same_while_these_do(cost: OpenCost) -> None:
    own = settings()
    await cost.prices.refresh(own)
    first = cost.prices.applied(own)
    assert first.prices.nodes == {"n1": 500_000}
    cost.now = PRICES_EVERY
    await cost.prices.refresh(own)
    assert len(cost.asked) == 2
    assert cost.prices.applied(own) is first
    cost.now, cost.says = 2 * PRICES_EVERY, {"n1": 1}
    await cost.prices.refresh(own)
    assert cost.prices.applied(own).prices.nodes == {"n1": 1}


async def test_a_server_that_is_away_leaves_the_last_prices_in_use_and_is_told(cost: OpenCost) -> None:
    own = settings()
    await cost.prices.refresh(own)
    cost.now, cost.says = PRICES_EVERY, None
    await cost.prices.refresh(own)
    assert cost.prices.applied(own).prices.nodes == {"n1": 500_000}
    assert cost.prices.problems == ("openCost http://p:9090: can't be asked: no route: the last prices stay in use",)
    await cost.prices.refresh(own)
    assert len(cost.asked) == 2
    cost.now, cost.says = PRICES_EVERY + PRICES_AGAIN, {"n1": 500_000}
    await cost.prices.refresh(own)
    assert cost.prices.problems == ()


async def test_without_a_server_nobody_is_asked_and_another_server_s_prices_are_forgotten(cost: OpenCost) -> None:
    none = settings("")
    await cost.prices.refresh(none)
    assert cost.asked == []
    await cost.prices.refresh(settings())
    await cost.prices.refresh(none)
    assert cost.prices.applied(none) is none


@pytest.mark.virtual_time
async def test_a_running_controller_tells_its_plan_by_the_prices_of_opencost(
    cluster: Cluster, start: Start, cost: OpenCost
) -> None:
    cluster.configure(on=False, prices='{"openCost": "http://p:9090"}')
    process = start()

    async def sources() -> dict[str, str]:
        nodes = json.loads((await process.get("/status"))[1])["plan"]["nodes"]
        return {each["name"]: each["cost"]["source"] for each in nodes if each["cost"]}

    await process.passes(3)
    assert await sources() == {"n1": "opencost"}
    cost.says = None
    cluster.configure(on=False, prices='{"openCost": "http://q:9090"}')
    await until(lambda: cost.asked[-1] == "http://q:9090")
    await process.passes(3)
    assert await sources() == {}
    assert "no route: its nodes have other prices, or none" in (await process.get("/"))[1]
