"""An embedded cluster with controllers on virtual time."""

from __future__ import annotations

import asyncio
import io
import logging
import random
import sys
from datetime import UTC, datetime

import pytest

from tightship.kube.host import HOST, wall
from tightship_simulator.demo.cluster import objects
from tightship_simulator.demo.settings import config_maps
from tightship_simulator.virtual.programs import COMPACTOR, PROGRAMS
from tightship_simulator.virtual.simulation import NAMESPACE, Replica, Simulation, VirtualTime, simulate


def _settled(simulation: Simulation, *, on: bool = True) -> None:
    simulation.store.load(objects(1, simulation.now()))
    simulation.store.load(config_maps(on=on))


def _start(simulation: Simulation, **variables: str) -> list[Replica]:
    return [simulation.start(each, CONFIG_MAP_NAME=each.name, **variables) for each in PROGRAMS]


def _holder(simulation: Simulation, lease: str) -> str:
    found = simulation.store.find("Lease", lease, NAMESPACE)
    return "" if found is None else str(found["spec"].get("holderIdentity") or "")


def test_the_process_has_its_own_chance_back_afterwards() -> None:
    random.seed(99)
    before = random.getstate()

    async def work(_: Simulation) -> float:
        return random.random()

    assert simulate(work, seed=1) == simulate(work, seed=1) != simulate(work, seed=2)
    assert random.getstate() == before

    async def fail(_: Simulation) -> None:
        random.random()
        raise ValueError("as a test does")

    with pytest.raises(ValueError, match="as a test does"):
        simulate(fail)
    assert random.getstate() == before
    assert HOST.get().own_process


def test_the_clocks_of_replicas_may_be_skewed_and_no_other_is() -> None:
    seen: dict[str, float] = {}

    async def work(simulation: Simulation) -> None:
        async def look(name: str) -> None:
            seen[name] = wall() - simulation.wall()

        for name, skew in (("slow", -5.0), ("right", 0.0), ("fast", 5.0)):
            await simulation.start(COMPACTOR, name=name, skew=skew).process.run(look(name))
        await look("world")

    simulate(work)
    assert seen == {"slow": -5.0, "right": 0.0, "fast": 5.0, "world": 0.0}


def test_a_replica_that_can_t_begin_has_crashed_and_says_why() -> None:
    async def work(simulation: Simulation) -> Replica:
        replica = simulation.start(COMPACTOR, HTTP_PORTS="none")
        await simulation.until(lambda: replica.ended, 10, "it ends")
        return replica

    replica = simulate(work)
    assert replica.crashed
    assert "HTTP_PORTS" in str(replica.error)


def test_what_each_serves_is_found_under_its_name() -> None:
    async def work(simulation: Simulation) -> None:
        _settled(simulation)
        replicas = _start(simulation, HTTP_PORTS="9100")
        await simulation.sleep(30)
        async with simulation.session() as session:
            for each in replicas:
                async with session.get(f"http://{each.name}:9100/metrics") as answer:
                    text = await answer.text()
                    assert f'tightship_build_info{{controller="{each.program.name}"' in text
                    # This process's CPU time is that of all of them, and real.
                    assert "process_cpu_seconds" not in text
                    assert answer.headers["Date"] == "Mon, 05 Jan 2026 08:00:30 GMT"
            async with session.get(f"{simulation.url}/api/v1/nodes") as answer:
                assert answer.headers["Date"] == "Mon, 05 Jan 2026 08:00:30 GMT"
            async with session.get(f"{simulation.prometheus.url}/api/v1/query", params={"query": "up"}) as answer:
                assert answer.headers["Date"] == "Mon, 05 Jan 2026 08:00:30 GMT"

    simulate(work)


def test_an_error_of_what_lives_in_the_cluster_is_raised() -> None:
    async def work(simulation: Simulation) -> None:
        simulation.store.load(objects(1, simulation.now()))
        await simulation.sleep(60)

    def broken(*_: object) -> float:
        raise ZeroDivisionError("the metric")

    with pytest.raises(ZeroDivisionError):
        simulate(work, measure=broken)


def test_log_lines_bear_the_simulations_time() -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter("%(created).3f %(msecs).0f"))

    async def work(simulation: Simulation) -> None:
        handler.addFilter(VirtualTime(simulation))
        await simulation.sleep(90.25)
        logging.getLogger("test").handle(logging.makeLogRecord({"msg": "x", "levelno": logging.ERROR}))

    logging.getLogger("test").addHandler(handler)
    try:
        simulate(work)
    finally:
        logging.getLogger("test").removeHandler(handler)
    assert stream.getvalue() == f"{datetime(2026, 1, 5, 8, 1, 30, tzinfo=UTC).timestamp() + 0.25:.3f} 250\n"


def test_the_interpreter_has_what_the_loop_takes_from_asyncio() -> None:
    """Names that are asyncio's own: a version without one of them is found here, and not somewhere in a run."""
    handle = asyncio.TimerHandle(1.0, print, (), _Loop())  # type: ignore[arg-type]
    for name in ("_cancelled", "_scheduled", "_when", "_context", "_run"):
        assert hasattr(handle, name), (name, sys.version)
    for name in ("_run_once", "_write_to_self", "_process_events"):
        assert hasattr(asyncio.BaseEventLoop, name), (name, sys.version)
    loop = asyncio.BaseEventLoop()
    for name in ("_ready", "_scheduled", "_stopping", "_timer_cancelled_count"):
        assert hasattr(loop, name), (name, sys.version)
    loop._closed = True  # type: ignore[attr-defined]  # it has nothing to close


class _Loop:
    def get_debug(self) -> bool:
        return False
