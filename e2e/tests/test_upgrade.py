"""From the last release to this commit's charts, on the cluster on which that release runs."""

from __future__ import annotations

import pytest
from day import AT_NIGHT, CONTROLLERS, SYSTEM, Live, ShopCluster


@pytest.mark.providers("kind")
def test_the_last_release_is_upgraded_to_these_charts(on_shop_cluster: Live) -> None:
    async def work(on: ShopCluster) -> None:
        before = {each.name: each.pod for each in await on.provider.controllers(SYSTEM)}
        assert sorted(before) == sorted(CONTROLLERS)
        await on.install()

        async def replaced() -> bool:
            now = {each.name: each.pod for each in await on.provider.controllers(SYSTEM)}
            return sorted(now) == sorted(before) and not set(now.values()) & set(before.values())

        await on.until(replaced, "the pods of the last release have made way")
        await on.until_led()
        await on.seen(lambda: bool(on.remover.removed), "a node is taken away")
        await on.until_ready(AT_NIGHT)

    on_shop_cluster(work, by_night=True, upgrade=True)
