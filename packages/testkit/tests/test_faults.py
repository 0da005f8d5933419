"""Each fault does what it says, as our own connection and watches see it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
import pytest_asyncio

from tightship.kube.connection import Connection, connect
from tightship.kube.host import monotonic
from tightship.kube.pacing import RetryPolicy
from tightship.objects.api_errors import Conflict, ConnectionFailed, Gone, TooManyRequests, Unavailable
from tightship_simulator.virtual.simulation import Simulation
from tightship_testkit.client import RESOURCES, Client, Json
from tightship_testkit.client import ApiError as Refused
from tightship_testkit.fault_proxy import WRITES, Proxy, evicted_again, successful_evictions
from tightship_testkit.faults import (
    RATES,
    Answer,
    Call,
    Fault,
    Hang,
    HeldWatch,
    Late,
    Rates,
    Record,
    Reset,
    ResetMidAnswer,
    SeededFaults,
    SilentWatch,
    Slow,
    Twice,
    WatchError,
)
from tightship_testkit.invariants import Recorder
from tightship_testkit.marks import ANNOTATION
from tightship_testkit.simulated import kubeconfig_to

pytestmark = pytest.mark.virtual_time

DEADLINE = 60.0
MAPS = RESOURCES["ConfigMap"].path("default")


def config_map(name: str) -> Json:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}}


def node(name: str) -> Json:
    status = {"allocatable": {"cpu": "4", "pods": "20"}, "conditions": [{"type": "Ready", "status": "True"}]}
    return {"kind": "Node", "metadata": {"name": name}, "status": status}


class Site:
    """A proxy before a cluster, our connection through the proxy and a client beside it."""

    def __init__(self, api: Client, proxy: Proxy, connection: Connection) -> None:
        self.api = api
        self.proxy = proxy
        self.connection = connection

    def meets(self, fault: Fault) -> None:
        """The next call meets *fault*; those after it are left alone."""
        number = len(self.proxy.log) + 1

        async def plan(call: Call) -> Fault | None:
            return fault if call.number == number else None

        self.proxy.plan = plan

    async def make(self, name: str, seconds: float | None = None) -> None:
        body = json.dumps(config_map(name)).encode()
        await self.connection.request("POST", MAPS, body=body, timeout=seconds)

    async def there(self, name: str) -> bool:
        try:
            await self.api.get("ConfigMap", name, "default")
        except Refused as error:
            if error.status != 404:
                raise
            return False
        return True


@asynccontextmanager
async def site(folder: Path) -> AsyncIterator[Site]:
    async with AsyncExitStack() as stack:
        cluster = (await stack.enter_async_context(Simulation(0, folder))).cluster
        api = await stack.enter_async_context(Client(cluster.url, {}, None))
        proxy = await stack.enter_async_context(Proxy(cluster.url, writes=WRITES))
        file = kubeconfig_to(proxy.url, cluster.kubeconfig(folder / "of-cluster"), folder / "of-proxy")
        connection = await stack.enter_async_context(await connect(file, retry=RetryPolicy(attempts=1), timeout=30))
        yield Site(api, proxy, connection)


@pytest_asyncio.fixture
async def on(tmp_path: Path) -> AsyncIterator[Site]:
    async with site(tmp_path) as made:
        yield made


async def until_it_breaks(on: Site, silence: float = DEADLINE) -> bytes:
    """What a watch says before it fails, as it must."""
    received = b""
    try:
        async with on.connection.stream(MAPS, params={"watch": "true"}, silence=silence) as chunks:
            async for chunk in chunks:
                received += chunk
    except ConnectionFailed:
        return received
    pytest.fail(f"the watch ended as if all were well, after {received!r}")


async def events(chunks: AsyncIterator[bytes]) -> AsyncIterator[Json]:
    rest = b""
    async for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield json.loads(line)


BROKEN = ConnectionFailed


@pytest.mark.parametrize(
    ("fault", "error", "done"),
    [
        (Reset(), BROKEN, False),
        (Reset(done=True), BROKEN, True),
        (ResetMidAnswer(20), BROKEN, True),
        (ResetMidAnswer(10**9), BROKEN, True),
        (Hang(seconds=0.2), BROKEN, False),
        (Hang(seconds=0.2, done=True), BROKEN, True),
        (Hang(), BROKEN, False),
        (Hang(done=True), BROKEN, True),
        (Late(5), BROKEN, True),
        (Twice(), Conflict, True),
        (Slow(5), None, True),
        (Slow(5, done=True), None, True),
        (Answer(429, "TooManyRequests"), TooManyRequests, False),
        (Answer(500, "InternalError"), Unavailable, False),
        (Answer(410, "Expired"), Gone, False),
    ],
    ids=str,
)
async def test_what_a_client_hears_of_its_write_and_what_became_of_it(
    on: Site, fault: Fault, error: type[Exception] | None, done: bool
) -> None:
    on.meets(fault)
    began = monotonic()
    with pytest.raises(error) if error is not None else nullcontext():
        await on.make("a", seconds=60)
    assert monotonic() - began >= (5 if isinstance(fault, Slow) else 0)
    if isinstance(fault, Late):
        assert not await on.there("a")
        await asyncio.sleep(6)
    assert await on.there("a") == done
    assert (on.proxy.log[0].status is not None) == done
    await on.make("b")


async def test_an_answer_in_the_servers_place_has_its_causes_and_a_time_to_come_back(on: Site) -> None:
    detail = (("DisruptionBudget", "no more"),)
    for answer in (
        Answer(429, "TooManyRequests", retry_after=7, causes=detail),
        Answer(429, "TooManyRequests", causes=detail, headers={"Retry-After": "7"}),
    ):
        on.meets(answer)
        with pytest.raises(TooManyRequests) as busy:
            await on.make("a")
        assert (busy.value.retry_after, [each.reason for each in busy.value.causes]) == (7, ["DisruptionBudget"])


async def test_hooks_run_before_and_after_the_effect(on: Site) -> None:
    seen: list[tuple[str, bool]] = []

    async def before() -> None:
        seen.append(("before", await on.there("b")))

    async def after() -> None:
        seen.append(("after", await on.there("b")))

    await on.make("a")
    on.meets(Fault(before=before, after=after))
    for name in ("b", "c"):
        await on.make(name)
    assert seen == [("before", False), ("after", True)]
    assert [(each.call.write_number, each.answered) for each in on.proxy.log] == [(1, 201), (2, 201), (3, 201)]


async def test_a_held_watch_says_everything_once_it_is_let_go(on: Site) -> None:
    go = asyncio.Event()
    on.meets(HeldWatch(open=go))
    async with on.connection.stream(MAPS, params={"watch": "true"}, silence=DEADLINE) as chunks:
        said = events(chunks)
        first = asyncio.ensure_future(anext(said))
        for name in ("a", "b"):
            await on.api.create(config_map(name))
        await asyncio.sleep(0.1)
        assert not first.done()
        go.set()
        heard = [await first, await anext(said)]
        assert [each["object"]["metadata"]["name"] for each in heard] == ["a", "b"]


async def test_a_watch_falls_silent_after_some_events(on: Site) -> None:
    for name in ("a", "b", "c"):
        await on.api.create(config_map(name))
    on.meets(SilentWatch(events=2))
    assert (await until_it_breaks(on, silence=0.5)).count(b"\n") == 2


async def test_a_watch_from_too_old_a_version(on: Site) -> None:
    await on.make("a")
    on.meets(WatchError(410, "Expired"))
    async with on.connection.stream(MAPS, params={"watch": "true"}, silence=DEADLINE) as chunks:
        [event] = [each async for each in events(chunks)]
        assert (event["type"], event["object"]["code"]) == ("ERROR", 410)
    on.meets(ResetMidAnswer(10))
    assert len(await until_it_breaks(on)) == 10


async def test_an_outage_refuses_and_cuts_and_ends(on: Site) -> None:
    await on.api.create(config_map("first"))
    async with on.connection.stream(MAPS, params={"watch": "true"}, silence=DEADLINE) as chunks:
        await anext(chunks)
        async with on.proxy.outage():
            with pytest.raises(ConnectionFailed):
                await asyncio.wait_for(anext(chunks), DEADLINE)
            for _ in range(3):
                with pytest.raises(ConnectionFailed, match=r"[Cc]onnect"):
                    await on.make("a")
            assert len(on.proxy.log) == 1
    await on.make("a")


async def test_a_recorder_whose_watch_breaks_sees_nothing_twice(on: Site) -> None:
    async def enter(phase: str) -> None:
        record = json.dumps({"phase": phase}) if phase else None
        await on.api.patch("Node", "n1", {"metadata": {"annotations": {ANNOTATION: record}}})

    behind = SimpleNamespace(client=lambda: Client(on.proxy.url, {}, None))
    async with Recorder(behind) as recorder:
        await on.api.create(node("n1"))
        seen = []
        for phase in ("Marked", "Backoff", ""):
            await enter(phase)
            seen.append(phase)
            await recorder.until(lambda: recorder.phases("n1")[-len(seen) :] == seen, f"{seen} are seen")
            on.proxy.cut()
        await recorder.check()
        assert recorder.phases("n1") == seen


@pytest.mark.parametrize("where", ["plan", "after"])
async def test_an_error_in_a_plan_or_a_hook_reaches_the_test(tmp_path: Path, where: str) -> None:
    async def wrong(*_: object) -> None:
        raise ConnectionResetError

    async def work() -> None:
        async with site(tmp_path) as on:
            if where == "plan":
                on.proxy.plan = wrong
            else:
                on.meets(Fault(after=wrong))
            with pytest.raises(ConnectionFailed):
                await on.make("a")

    with pytest.raises(ConnectionResetError):
        await work()


def call(number: int, *, write: bool = False, watch: bool = False) -> Call:
    return Call(number, number if write else 0, "POST" if write else "GET", "/api", {}, b"", watch)


def test_an_eviction_is_asked_for_again_only_where_its_answer_was_lost() -> None:
    def evicted(uid: str, answered: int | None, status: int = 201) -> Record:
        body = json.dumps({"deleteOptions": {"preconditions": {"uid": uid}}}).encode()
        asked = Call(1, 1, "POST", "/api/v1/namespaces/shop/pods/web-0/eviction", {}, body, is_watch=False)
        return Record(asked, status=status, answered=answered)

    lost, heard, refused = evicted("a", None), evicted("a", 201), evicted("a", 429, status=429)
    assert evicted_again([refused, lost, lost, heard]) == set()
    assert evicted_again([heard, evicted("b", 201), refused]) == set()
    assert evicted_again([heard, lost]) == {"a"}
    assert successful_evictions([heard, lost, refused, evicted("b", None)]) == {"a": 2, "b": 1}


async def test_a_seed_gives_the_same_faults_and_then_quiet() -> None:
    async def faults(seed: int, **options: object) -> list[Fault | None]:
        plan = SeededFaults(seed, Rates().times(2), **options)  # type: ignore[arg-type]
        return [await plan(call(n, write=n % 3 == 0, watch=n % 3 == 1)) for n in range(1, 301)]

    assert await faults(1) == await faults(1)
    assert await faults(1) != await faults(2)
    early = await faults(1, calls=100)
    assert early[:100] == (await faults(1))[:100]
    assert early[100:] == [None] * 200
    ticks = iter(range(1000))
    timed = await faults(1, seconds=50, clock=lambda: float(next(ticks)))
    assert any(timed[:50])
    assert timed[50:] == [None] * 250
    assert not any(await faults(1, only=lambda each: each.is_watch is None))


async def test_a_seed_makes_every_fault_where_it_is_possible_and_only_there() -> None:
    plan = SeededFaults(3)
    reads = [await plan(call(n)) for n in range(2000)]
    assert not plan.tally.keys() & {"conflict", "gone", "expired", "silent"}
    assert 200 < sum(each is not None for each in reads) < 500
    for number in range(2000):
        await plan(call(number, write=True))
        await plan(call(number, watch=True))
    assert plan.tally.keys() == set(RATES)
