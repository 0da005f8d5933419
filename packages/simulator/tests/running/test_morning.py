"""A morning of the demo's night at its real pace: with a buffer for the forecast, nodes are there before their pods."""

from __future__ import annotations

import math
from collections.abc import Callable

import msgspec
import pytest
from aiohttp import web

from tightship_simulator.demo import story
from tightship_simulator.demo.settings import SCALER as NAME
from tightship_simulator.demo.settings import config_maps
from tightship_simulator.demo.town import SHAPES, SYSTEM, WORKS, group, objects
from tightship_simulator.life.capacity_buffers import BufferController
from tightship_simulator.life.changes import Json
from tightship_simulator.life.kubelet import Pace
from tightship_simulator.life.living import Speeds
from tightship_simulator.life.node_autoscaler import Rules
from tightship_simulator.life.responders import Responder, body, success
from tightship_simulator.virtual.programs import SCALER
from tightship_simulator.virtual.simulation import Simulation, simulate

HOUR = 3600.0
FROM, TO = 28.5, 29.5
"""Hours of the story: the steepest part of the morning, after half an hour of it."""
CRAMPED = {"compute": 2, "general": 3, "memory": 2}
TOWN = [msgspec.structs.replace(work, guarded=True) for work in WORKS if work.name in ("web", "thumbs", "feed")]
ANNOTATION = "estafette.io/hpa-scaler-"


def demand(hour: float) -> float:
    """The traffic at an hour of this night or an earlier one, as a share of the evening's."""
    hour = (hour - story.BEGIN) % 24 + story.BEGIN
    return story.demand(hour) if hour < story.END else 1.0


def town(now: Callable[[], object], notes: dict[str, str]) -> list[Json]:
    """The town in the night, on few nodes; its HPAs have *notes*."""
    share = demand(FROM)
    works = [msgspec.structs.replace(each, replicas=math.ceil(each.replicas * share)) for each in TOWN]
    shapes = [msgspec.structs.replace(each, count=CRAMPED[each.pool]) for each in SHAPES]
    found = list(objects(7, now(), shapes, works))  # type: ignore[arg-type]
    for each in found:
        if each["kind"] == "HorizontalPodAutoscaler":
            rate = next(work.rate for work in TOWN if work.name == each["metadata"]["name"])
            each["spec"]["maxReplicas"] = 60
            each["metadata"]["annotations"] |= {f"{ANNOTATION}requests-per-replica": f"{rate:g}"}
            each["metadata"]["annotations"] |= {ANNOTATION + name: text for name, text in notes.items()}
    return found


def waited(**notes: str) -> int:
    """The seconds that pods wait for a node in the morning of HPAs with *notes*, in all."""
    began: list[float] = []

    def hour(simulation: Simulation) -> float:
        return FROM + (simulation.wall() - began[0]) / HOUR

    def measure(hpa: Json, _: Json, current: int) -> float:
        work = next(each for each in TOWN if each.name == hpa["metadata"]["name"])
        return work.peak * demand(now()) / (work.rate * max(1, current))

    now: Callable[[], float] = lambda: FROM  # noqa: E731 - until the simulation has begun

    async def live(simulation: Simulation) -> int:
        nonlocal now
        began.append(simulation.wall())
        now = lambda: hour(simulation)  # noqa: E731
        store = simulation.store
        crd = {"metadata": {"name": "capacitybuffers.autoscaling.x-k8s.io"}}
        served = {"group": "autoscaling.x-k8s.io", "versions": [{"name": "v1beta1", "served": True}]}
        store.create("CustomResourceDefinition", {**crd, "spec": served})
        simulation.living.others.append(BufferController())
        store.load(town(simulation.now, {key.replace("_", "-"): text for key, text in notes.items()}))
        store.load(config_maps(on=False))

        def answers(peak: float) -> Responder:
            async def respond(request: web.Request) -> web.StreamResponse:
                form = await request.post()
                if not request.path.endswith("query_range"):
                    return web.json_response(body(str(peak * demand(now())), at=simulation.wall()))
                first, last = float(str(form["start"])), float(str(form["end"]))
                times = [first + 300 * number for number in range(int((last - first) / 300) + 1)]
                values = [[at, str(peak * demand(FROM + (at - began[0]) / HOUR))] for at in times]
                return web.json_response(success([{"metric": {}, "values": values}], "matrix"))

            return respond

        for work in TOWN:
            query = f'sum(rate(http_requests_total{{app="{work.name}"}}[1m]))'
            simulation.prometheus.answers[query] = answers(work.peak)
        variables = {"NAMESPACE": SYSTEM, "CONFIG_MAP_NAME": NAME, "LEASE_NAME": NAME, "FORECAST_BUFFERS": "true"}
        simulation.start(SCALER, name=NAME, **variables)
        waiting = 0
        while now() < TO:
            await simulation.sleep(10)
            if now() >= FROM + 0.25:
                waiting += 10 * sum(not pod["spec"].get("nodeName") for pod in store.list("Pod"))
        assert not any(each.crashed for each in simulation.replicas)
        return waiting

    groups = [group(shape) for shape in SHAPES]
    speeds = Speeds(Pace(start=6, stop=10, boot=120), Rules(threshold=0.05))
    return simulate(live, seed=7, groups=groups, measure=measure, speeds=speeds)


@pytest.mark.takes(5)
def test_no_pod_waits_for_a_node_in_the_morning_of_a_forecast_with_a_buffer() -> None:
    assert waited() > 100
    assert waited(forecast="daily", forecast_buffer="true") == 0
