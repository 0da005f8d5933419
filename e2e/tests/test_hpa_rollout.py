"""A floor while its target really rolls out, and beside it one of another target with the same ``app`` label."""

from __future__ import annotations

from fleets import ALONE, Fleet
from floors import Open, Shop

from tightship_e2e import settle
from tightship_testkit.client import Json
from tightship_testkit.floors import DEADLINE, SHOP, autoscaler, hpa_annotations
from tightship_testkit.manifests import node

REPLICAS = 4


def rolling(name: str, cpu: str) -> Json:
    """Return a Deployment that starts all its new pods before it ends an old one."""
    labels = {"app": "same", "of": name}
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    return {
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": SHOP, "labels": labels},
        "spec": {
            "replicas": REPLICAS,
            "selector": {"matchLabels": labels},
            "strategy": {"rollingUpdate": {"maxSurge": "100%", "maxUnavailable": 0}},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }


def test_a_rollout_holds_the_floor_of_its_own_hpa_until_it_is_over(in_shop: Open) -> None:
    async def work(on: Shop) -> None:
        fleet = Fleet(on)
        await on.configured(ALONE)
        await on.api.create(node("n1"))  # has room for the pods of today, and not for those of tomorrow
        await settle.attended(on.api, "n1")
        on.prometheus.set("rate", 40)
        notes = hpa_annotations(
            prometheus_query="rate",
            requests_per_replica=10,
            minimum_replicas=1,
            enable_scale_down_ratio_deployment_checking="true",
        )
        for name, cpu in (("web", "900m"), ("cart", "50m")):
            await on.api.create(rolling(name, cpu))
            hpa = autoscaler(name, REPLICAS, 30, notes)
            hpa["metadata"]["labels"] = {"app": "same"}
            await on.api.create(hpa)

        async def status(name: str) -> Json:
            found: Json = (await on.api.get("Deployment", name, SHOP))["status"]
            return found

        async def all_run() -> bool:
            return all([(await status(name)).get("availableReplicas") == REPLICAS for name in ("web", "cart")])

        async def surges() -> bool:
            web = await status("web")
            # A count of 0 is left out.
            return (web.get("replicas"), web.get("updatedReplicas")) == (2 * REPLICAS, REPLICAS)

        await on.until(all_run, "all pods run", DEADLINE)
        await fleet.until_replicas({"web": REPLICAS, "cart": REPLICAS})
        fleet.start()
        await fleet.until_status({"web": "FollowsQuery", "cart": "FollowsQuery"})
        changed = {"spec": {"template": {"metadata": {"annotations": {"version": "2"}}}}}
        await on.api.patch("Deployment", "web", changed, SHOP)
        await on.until(surges, "all new pods wait beside all old ones", DEADLINE)

        on.prometheus.set("rate", 20)
        await fleet.until_floors({"cart": 2})
        await fleet.until_told({"web": "RolloutInProgress"})
        await fleet.cycles()
        assert await fleet.floors(["web"]) == {"web": REPLICAS}
        # The surge is not in what an HPA knows.
        assert (await on.hpa("web"))["status"]["currentReplicas"] == REPLICAS

        # Pods are bound to it at once; those that kwok then misses are brought to its notice.
        await on.api.create(node("n2"))
        await settle.attended(on.api, "n2")
        for each in await on.api.list("Pod", SHOP, fieldSelector="spec.nodeName=n2"):
            await settle.touch(on.api, each["metadata"]["name"], SHOP)
        await fleet.until_floors({"web": 2})
        done = await status("web")
        assert done.get("replicas") == done["updatedReplicas"]
        assert (fleet.moves("web"), fleet.moves("cart")) == ([(4, 2)], [(4, 2)])

    in_shop(work)
