"""Many interleavings of an election: processes stopped, killed, cut off and restarted, clocks that differ."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

from hypothesis import given, settings
from hypothesis import strategies as st
from links import answer as answer_of

from tightship.kube.connection import Connection
from tightship.kube.leases import Elector
from tightship.objects.api_errors import ApiError
from tightship_simulator.api.store import Store
from tightship_simulator.virtual.simulation import BEGIN


class _OwnTimeLoop(asyncio.SelectorEventLoop):
    """One process: it goes on only when told, and its clock has an offset and a speed of its own."""

    def __init__(self, network: Network, rng: random.Random) -> None:
        self._network = network
        self._offset, self._speed = rng.uniform(0, 1e6), rng.uniform(0.97, 1.03)
        super().__init__()

    def time(self) -> float:
        return self._offset + self._speed * self._network.now

    def once(self) -> None:
        self.call_soon(self.stop)
        self.run_forever()


class _Process:
    server = "network"

    def __init__(self, network: Network, identity: str) -> None:
        rng = network.rng
        self.network, self.identity = network, identity
        self.loop = _OwnTimeLoop(network, rng)
        self.frozen_until = self.cut_off_until = 0.0
        self.elector = Elector(
            cast("Connection", self),
            namespace="ns",
            name="leader",
            identity=identity,
            clock=self.loop.time,
            wall_clock=lambda: rng.uniform(1e9, 2e9),
            spread=rng.random,
        )
        self.stop = asyncio.Event()
        self.task = self.loop.create_task(self.elector.run(self.stop))

    async def request(self, verb: str, path: str, *, body: bytes | None, timeout: float, retry: bool) -> bytes:  # noqa: ASYNC109
        answer: asyncio.Future[bytes] = self.loop.create_future()
        self.network.send(self, verb, path, body, answer)
        return await answer

    def close(self) -> None:
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        while asyncio.all_tasks(self.loop):
            self.loop.once()
        self.loop.close()


class Network:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.now = 0.0
        self.calm = False
        self.store = Store(now=lambda: BEGIN, seed=seed)
        self.store.create("Namespace", {"metadata": {"name": "ns"}})
        self.posts: list[tuple[float, int, Callable[[], None]]] = []
        self.dead: list[_Process] = []
        self.processes = [_Process(self, name) for name in "abc"]
        self.terms: dict[int, Elector] = {}
        self.ended: set[int] = set()

    def send(self, process: _Process, verb: str, path: str, body: bytes | None, answer: asyncio.Future[bytes]) -> None:
        rng = self.rng
        bad = not self.calm and rng.random() < 0.25
        cut_off = self.now < process.cut_off_until
        arrives = self.now + (rng.uniform(0, 20) if bad else rng.uniform(0, 0.3))
        twice = bad and verb == "PUT" and rng.random() < 0.3
        heard = not cut_off and not (bad and rng.random() < 0.4)

        def arrive() -> None:
            for _ in range(1 + twice):
                try:
                    result: bytes | ApiError = answer_of(self.store, verb, path, body)
                except ApiError as error:
                    result = error
            if heard:
                self._post(self.now + rng.uniform(0, 3 if bad else 0.3), lambda: tell(result))

        def tell(result: bytes | ApiError) -> None:
            if answer.done() or process.loop.is_closed():
                return
            if isinstance(result, ApiError):
                answer.set_exception(result)
            else:
                answer.set_result(result)

        # Cut off: what is sent may still arrive, the answer never does.
        if not (cut_off or bad) or rng.random() < 0.7:
            self._post(arrives, arrive)

    def _post(self, when: float, deliver: Callable[[], None]) -> None:
        self.posts.append((when, len(self.posts), deliver))

    def check(self) -> None:
        leaders = [each for each in self.processes if each.elector.is_leader]
        assert len(leaders) <= 1, [(each.identity, each.elector.epoch) for each in leaders]
        for each in leaders:
            epoch = each.elector.epoch
            if self.terms.setdefault(epoch, each.elector) is not each.elector:
                raise AssertionError(f"epoch {epoch} was used twice")
            assert epoch == max(self.terms)
            assert epoch not in self.ended
        self.ended |= self.terms.keys() - {each.elector.epoch for each in leaders}

    def pass_time(self, seconds: float) -> None:
        until = self.now + seconds
        while due := [each for each in self.posts if each[0] <= until]:
            first = min(due)
            self.posts.remove(first)
            self.now = max(self.now, first[0])
            first[2]()
            self.check()
        self.now = until
        self.check()

    def turn(self) -> None:
        for process in self.rng.sample(self.processes, len(self.processes)):
            if self.now < process.frozen_until:
                continue
            for _ in range(self.rng.randint(1, 8)):
                process.loop.once()
                self.check()
            if process.task.done():
                process.task.result()
                self.replace(process)

    def replace(self, process: _Process) -> None:
        """A process is gone, a new one starts, often under the same identity."""
        self.dead.append(process)
        self.processes.remove(process)
        name = process.identity if self.rng.random() < 0.7 else process.identity + "'"
        self.processes.append(_Process(self, name))

    def mischief(self) -> None:
        rng = self.rng
        victim = rng.choice(self.processes)
        match rng.choice(["freeze", "freeze", "cut off", "kill", "stop", "label"]):
            case "freeze":
                victim.frozen_until = self.now + rng.uniform(0, 40)
            case "cut off":
                victim.cut_off_until = self.now + rng.uniform(0, 40)
            case "kill":
                self.replace(victim)
            case "stop":
                if self.now >= victim.frozen_until:
                    victim.loop.call_soon(victim.stop.set)
            case "label" if self.store.find("Lease", "leader", "ns") is not None:
                self.store.modify("Lease", "leader", "ns", self._label)
            case _:
                pass

    def _label(self, lease: dict[str, Any]) -> None:
        lease["metadata"]["labels"] = {"at": str(self.now)}

    def close(self) -> None:
        for each in self.processes + self.dead:
            each.close()


@contextmanager
def _network(seed: int) -> Iterator[Network]:
    made = Network(seed)
    try:
        yield made
    finally:
        made.close()


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32))
def test_there_are_never_two_leaders_and_no_epoch_comes_back(seed: int) -> None:
    with _network(seed) as network:
        for _ in range(250):
            network.pass_time(network.rng.expovariate(2))
            if network.rng.random() < 0.08:
                network.mischief()
            network.turn()
        network.calm = True
        for each in network.processes:
            each.frozen_until = each.cut_off_until = 0
        for _ in range(400):
            network.pass_time(0.2)
            network.turn()
        assert sum(each.elector.is_leader for each in network.processes) == 1
        assert network.terms
