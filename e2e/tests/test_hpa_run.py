"""``hpa-scaler run`` as a process on a real control plane: what it sets, what it gives back, and what stops it."""

from __future__ import annotations

from floors import DEADLINE, Open, Shop


def test_a_floor_follows_its_query_up_and_down(in_shop: Open) -> None:
    async def work(on: Shop) -> None:
        await on.stock("web", 3, 20, prometheus_query="rate", requests_per_replica=10, minimum_replicas=1)
        on.prometheus.set("rate", 72)
        on.start()
        await on.until_bounds("web", 8, 20)
        state = await on.state("web")
        assert (state["originalMin"], state["applied"], state["reason"]) == (3, 8, "FollowsQuery")

        async def scaled() -> bool:
            return bool((await on.hpa("web"))["status"]["currentReplicas"] == 8)

        await on.until(scaled, "the HPA controller has scaled to the floor", DEADLINE)
        on.prometheus.set("rate", 41)
        await on.until_bounds("web", 5, 20)

    in_shop(work)
