"""All that happens in a simulation with everything in it, written down: every byte sent, and every change.

``python transcripts.py SEED`` prints the transcript.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Iterator

import aiohttp
import msgspec

from tightship_simulator.api.kinds import KINDS
from tightship_simulator.demo.settings import config_maps
from tightship_simulator.demo.town import SHAPES, group, objects
from tightship_simulator.life.kubelet import Pace
from tightship_simulator.life.living import Speeds
from tightship_simulator.life.node_autoscaler import Rules
from tightship_simulator.life.prometheus import Outage, Prometheus
from tightship_simulator.virtual.programs import PROGRAMS, Program
from tightship_simulator.virtual.simulation import Simulation, VirtualTime, simulate

MINUTES = 5
PORT = 9100
LIMIT = aiohttp.ClientTimeout(total=5)
SPEEDS = Speeds(Pace(start=3, stop=5, boot=20), Rules(unneeded=40, threshold=0.05))


def transcript(seed: int, minutes: int = MINUTES) -> list[str]:
    """Run the simulation, and return its lines."""
    lines: list[str] = []

    async def work(simulation: Simulation) -> None:
        def note(*parts: object) -> None:
            lines.append(f"{simulation.loop.time():.9f} {' '.join(map(str, parts))}")

        store, rng = simulation.store, simulation.rng
        simulation.network.tap = lambda sender, reader, data: note(sender or "world", ">", reader or "world", data)
        simulation.network.delay = lambda: rng.choice([0.0, 0.001, rng.random() * 0.05])
        handler = logging.StreamHandler(_Lines(lines))
        handler.addFilter(VirtualTime(simulation))
        handler.setFormatter(logging.Formatter("%(created).3f %(name)s %(levelname)s %(message)s"))
        logging.getLogger().addHandler(handler)

        async def watch(kind: str) -> None:
            async for change in store.watch(kind, since=0):
                note(change.version, change.type, msgspec.json.encode(change.object).decode())

        watches = [asyncio.create_task(watch(each.name)) for each in KINDS]
        store.load(objects(seed, simulation.now()))
        store.load(config_maps())
        for program in PROGRAMS:
            for number in range(2):
                simulation.start(program, skew=3.0 * number, **_variables(program))
        try:
            await _disasters(simulation, minutes)
        finally:
            for each in watches:
                each.cancel()
            await asyncio.wait(watches)
            logging.getLogger().removeHandler(handler)
        note("killed", [each.name for each in simulation.replicas if each.process.killed.is_set()])
        note("steps", [each.process.steps for each in simulation.replicas])

    simulate(
        work,
        seed=seed,
        groups=[group(each) for each in SHAPES],
        measure=lambda hpa, _, current: 0.4 + len(hpa["metadata"]["name"]) % 3 * 0.3 + 0.1 / current,
        prometheus=Prometheus({"http_requests_total": lambda labels: 100.0 * len(labels["app"])}),
        speeds=SPEEDS,
    )
    return lines


def _variables(program: Program) -> dict[str, str]:
    return {"CONFIG_MAP_NAME": program.name, "HTTP_PORTS": str(PORT), "LOG_FORMAT": "v3"}


async def _disasters(simulation: Simulation, minutes: int) -> None:
    rng = simulation.rng
    for minute in range(minutes):
        await simulation.sleep(30)
        replica = rng.choice([each for each in simulation.replicas if not each.ended])
        match minute % 4:
            case 0:
                replica.process.freeze()
                await simulation.sleep(rng.random() * 25)
                replica.process.thaw()
            case 1:
                simulation.prometheus.outage = rng.choice(list(Outage))
                process = replica.process
                process.stop_at = process.steps + rng.randrange(500)
            case 2:
                simulation.network.cut(replica.process)
            case 3:
                await replica.stopped()
        if replica.ended:
            simulation.start(replica.program, name=f"{replica.name}-again", **_variables(replica.program))
        await simulation.sleep(30)
        await _scrape(simulation)


async def _scrape(simulation: Simulation) -> None:
    """Ask every replica for all that it serves: the transcript has the answers."""
    async with simulation.session() as session:
        for replica in simulation.replicas:
            for path in ("metrics", "status", "readyz", ""):
                try:
                    async with session.get(f"http://{replica.name}:{PORT}/{path}", timeout=LIMIT) as answer:
                        await answer.read()
                except (aiohttp.ClientError, TimeoutError):
                    break


class _Lines:
    def __init__(self, lines: list[str]) -> None:
        self._lines = lines

    def write(self, text: str) -> None:
        self._lines.append(text)

    def flush(self) -> None:
        """Every line is there already."""


def differences(one: list[str], other: list[str]) -> Iterator[str]:
    """Yield where two transcripts part."""
    for number, (mine, yours) in enumerate(zip(one, other, strict=False)):
        if mine != yours:
            yield f"line {number}:\n- {mine[:600]}\n+ {yours[:600]}"
            return
    if len(one) != len(other):
        yield f"{len(one)} lines, and {len(other)}"


if __name__ == "__main__":
    sys.stdout.write("\n".join(transcript(int(sys.argv[1]))) + "\n")
