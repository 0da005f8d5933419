"""Rights that are withheld from a controller, or taken away while it works: what it does without them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tightship.kube.connection import connect
from tightship.process.settings.live import ConfigMapSource, LiveConfig
from tightship_simulator.api.requests import Asked
from tightship_simulator.virtual.simulation import Simulation
from tightship_testkit.drains import SETTINGS
from tightship_testkit.embedded import embedded_cluster, small

pytestmark = pytest.mark.virtual_time


async def test_without_the_right_to_record_events_drains_go_on_and_that_is_counted(tmp_path: Path) -> None:
    async with embedded_cluster(tmp_path, small(), SETTINGS) as on:
        on.yard.cluster.permit(lambda who, about: not who or about.resource != "events")
        replica = on.start()
        with on.removing():
            await on.gone("n1")
        await on.free()
        metrics = (await replica.get("/metrics"))[1]
        dropped = [line for line in metrics.splitlines() if line.startswith("tightship_events_dropped_total{")]
        assert any(float(line.rpartition(" ")[2]) > 0 for line in dropped)
        assert on.yard.simulation.store.list("Event") == []


@pytest.mark.parametrize("resource", ["nodes", "pods", "leases"])
async def test_a_right_that_is_taken_away_in_a_drain_and_given_back_costs_nothing_but_time(
    tmp_path: Path, resource: str
) -> None:
    def withheld(who: str, about: Asked) -> bool:
        return not who or about.resource != resource or about.verb in {"list", "watch"}

    async with embedded_cluster(tmp_path, small(), {**SETTINGS, "settleTime": "5s"}) as on:
        replica = on.start()
        await on.phase("n1", "Claimed")
        on.yard.cluster.permit(withheld)
        with on.removing():
            await on.yard.simulation.sleep(60)
            # Without the right to renew its Lease it leads until its time is over: long enough for this drain.
            assert (on.recorder.node("n1") is None) == (resource == "leases")
            assert replica.code is None
            on.yard.cluster.permit(None)
            await on.gone("n1", 3600)
        await on.free()


async def test_a_config_map_is_followed_with_the_right_to_its_name_alone(tmp_path: Path) -> None:
    def by_name(_: str, about: Asked) -> bool:
        return (about.verb, about.resource, about.name) in {
            (verb, "configmaps", "limits") for verb in ("list", "watch")
        }

    async with Simulation(0, tmp_path) as simulation:
        store = simulation.store
        store.create("ConfigMap", {"metadata": {"name": "limits"}, "data": {"limit": "2"}})
        simulation.cluster.permit(by_name)
        async with await connect(simulation.kubeconfig) as connection:
            async with LiveConfig(
                ConfigMapSource(connection, "default", "limits"), lambda data: int(data["limit"]), starting=1
            ) as live:
                assert live.current == 2
                store.modify("ConfigMap", "limits", "default", lambda each: each["data"].update(limit="3"))
                while live.current != 3:
                    live.changed.clear()
                    await live.changed.wait()
            source = ConfigMapSource(connection, "default", "of-another")
            async with LiveConfig(source, lambda data: int(data["limit"]), starting=1) as live:
                assert live.current == 1
                assert re.search(r"can't be read: .*cannot list resource", live.problems[0])
