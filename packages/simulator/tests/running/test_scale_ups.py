"""Running controllers of nodes, and replicas that an HPA is about to start."""

from __future__ import annotations

from pathlib import Path

import pytest

from tightship_testkit.client import Client, Json, wait_for
from tightship_testkit.drains import SETTINGS, all_ready, spare
from tightship_testkit.embedded import embedded_cluster
from tightship_testkit.floors import HPA, SHOP, autoscaler, deployment
from tightship_testkit.manifests import as_list, budget, replicas
from tightship_testkit.replica import COMPACTOR, QUICK_REFINER, REFINER, Program, Settings

pytestmark = pytest.mark.virtual_time

NAME = "store"
BOTH: list[tuple[Program, Settings]] = [(COMPACTOR, SETTINGS), (REFINER, QUICK_REFINER)]


async def deploy(api: Client) -> None:
    """Make a Deployment of two pods of 1,700 milli-CPU, of which a node has room for two, and an HPA of them."""
    made = deployment(NAME, 2)
    made["spec"]["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1700m"}}
    await api.create(made)
    await api.create(autoscaler(NAME, 2, 9))

    async def looked_at() -> bool:
        ready = (await api.get("Deployment", NAME, SHOP)).get("status", {}).get("readyReplicas", 0)
        return bool(ready == (await api.get(HPA, NAME, SHOP)).get("status", {}).get("currentReplicas") == 2)

    await wait_for(looked_at, 90, "two replicas run, and the HPA controller has looked at the HPA")


def cluster() -> Json:
    """Return three equal nodes, each with a pod; n1 may go."""
    rest = [spare(name, pool="rest") for name in ("n2", "n3")]
    return as_list(spare(), *rest, *replicas("web", ["n1", "n1", "n2", "n3"], app="web"), budget("web", 3, app="web"))


@pytest.mark.parametrize(("program", "settings"), BOTH, ids=[each[0].name for each in BOTH])
async def test_a_raised_floor_keeps_the_node_its_replicas_need_until_it_is_lowered(
    tmp_path: Path, program: Program, settings: Settings
) -> None:
    async with embedded_cluster(tmp_path, cluster(), settings, program, autoscaling=True) as on:
        await deploy(on.api)
        # What the kube-controller-manager does of what lives in the cluster.
        with on.living.paused("horizontal", "workloads"):
            await on.api.patch(HPA, NAME, {"spec": {"minReplicas": 5}}, SHOP)
            replica = on.start()
            await on.passes(replica, 6)
            assert set(on.recorder.phases("n1")) <= {"Marked"}
            [n1] = [each for each in (await replica.status())["plan"]["nodes"] if each["name"] == "n1"]
            assert n1["reasons"] == ["ScaleUpNeedsNode"]
            message = f"HPA {SHOP}/{NAME} is about to start 3 more replicas (minReplicas is 5, 2 exist)"
            assert message in str(n1["refusals"][0]["detail"])
            await on.api.patch(HPA, NAME, {"spec": {"minReplicas": 2}}, SHOP)
        with on.removing():
            await on.gone("n1")
        await all_ready(on.api)
