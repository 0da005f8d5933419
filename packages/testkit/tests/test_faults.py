"""Each fault does what it says, as our own connection and watches see it: over a socket and on virtual time."""

from __future__ import annotations

import asyncio
import gc
import json
import warnings
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from types import SimpleNamespace

import aiohttp
import pytest
import pytest_asyncio

from tightship.core.api_errors import Conflict, ConnectionFailed, Gone, TooManyRequests, Unavailable
from tightship.kube.connection import NO_RETRY, Connection, connect
from tightship.kube.host import monotonic
from tightship_simulator.serve import EmbeddedCluster
from tightship_simulator.virtual.simulation import Simulation
from tightship_testkit.client import RESOURCES, Client, Json, wait_for
from tightship_testkit.client import ApiError as Refused
from tightship_testkit.fault_proxy import WRITES, Proxy, Record
from tightship_testkit.faults import (
    RATES,
    Answer,
    Call,
    Fault,
    Hang,
    HeldWatch,
    Late,
    Rates,
    Reset,
    ResetMidAnswer,
    SeededFaults,
    SilentWatch,
    Slow,
    Twice,
    WatchError,
    at_write,
)
from tightship_testkit.invariants import ANNOTATION, Recorder, evicted_again, successful_evictions
from tightship_testkit.simulated import kubeconfig_to

DEADLINE = 60.0
MAPS = RESOURCES["ConfigMap"].path("default")


def config_map(name: str) -> Json:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}}


def node(name: str) -> Json:
    status = {"allocatable": {"cpu": "4", "pods": "20"}, "conditions": [{"type": "Ready", "status": "True"}]}
    return {"kind": "Node", "metadata": {"name": name}, "status": status}


class Site:
    """A cluster, a proxy before it, our connection through the proxy and a client beside it."""

    def __init__(self, cluster: EmbeddedCluster, api: Client, proxy: Proxy, connection: Connection) -> None:
        self.cluster = cluster
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
async def site(folder: Path, where: str) -> AsyncIterator[Site]:
    async with AsyncExitStack() as stack:
        if where == "virtual":
            cluster = (await stack.enter_async_context(Simulation(0, folder))).cluster
        else:
            cluster = await stack.enter_async_context(EmbeddedCluster())
        api = await stack.enter_async_context(Client(cluster.url, {}, None))
        proxy = await stack.enter_async_context(Proxy(cluster.url, writes=WRITES))
        file = kubeconfig_to(proxy.url, cluster.kubeconfig(folder / "of-cluster"), folder / "of-proxy")
        connection = await stack.enter_async_context(await connect(file, retry=NO_RETRY, timeout=30))
        yield Site(cluster, api, proxy, connection)


@pytest_asyncio.fixture
async def on(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Site]:
    virtual = request.node.get_closest_marker("virtual_time") is not None
    async with site(tmp_path, "virtual" if virtual else "socket") as made:
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


@contextmanager
def nothing_unclosed() -> Iterator[None]:
    """What the body's event loop has opened is closed, once it has ended."""
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always", ResourceWarning)
        yield
        gc.collect()
    assert [str(each.message) for each in warned] == []


class Faults:
    """What is true of every way to the cluster."""

    async def test_undisturbed_calls_are_numbered_and_logged(self, on: Site) -> None:
        await on.make("a")
        body = await on.connection.request("GET", MAPS, params={"limit": "1", "labelSelector": "a in (b,c),d/e!=f"})
        assert json.loads(body)["kind"] == "ConfigMapList"
        with pytest.raises(Conflict):
            await on.make("a")
        rows = [(r.call.number, r.call.write_number, r.call.verb, r.status, r.answered) for r in on.proxy.log]
        assert rows == [(1, 1, "POST", 201, 201), (2, 0, "GET", 200, 200), (3, 2, "POST", 409, 409)]
        assert on.proxy.log[1].call.query == {"limit": "1", "labelSelector": "a in (b,c),d/e!=f"}
        assert json.loads(on.proxy.log[0].call.body)["metadata"]["name"] == "a"

    @pytest.mark.parametrize(
        ("fault", "done"),
        [
            (Reset(), False),
            (Reset(done=True), True),
            (ResetMidAnswer(0), True),
            (ResetMidAnswer(20), True),
            (ResetMidAnswer(10**9), True),
            (Hang(seconds=0.2), False),
            (Hang(seconds=0.2, done=True), True),
        ],
        ids=str,
    )
    async def test_a_broken_connection_and_what_became_of_the_write(self, on: Site, fault: Fault, done: bool) -> None:
        on.meets(fault)
        with pytest.raises(ConnectionFailed):
            await on.make("a")
        assert await on.there("a") == done
        assert on.proxy.log[0].status == (201 if done else None)
        assert on.proxy.log[0].answered is None
        await on.make("b")

    @pytest.mark.parametrize("size", [0, 1000, 10**9])
    async def test_an_answer_breaks_off_in_the_middle_of_a_list(self, on: Site, size: int) -> None:
        for number in range(20):
            await on.make(f"a{number}")
        on.meets(ResetMidAnswer(size))
        heads: list[bytes] = []
        with pytest.raises(ConnectionFailed):
            await on.connection.request("GET", MAPS, on_head=heads.append, retry=False)
        assert sum(map(len, heads)) <= size

    async def test_answers_in_the_servers_place(self, on: Site) -> None:
        on.meets(Answer(429, "TooManyRequests", retry_after=7))
        with pytest.raises(TooManyRequests) as busy:
            await on.make("a")
        assert busy.value.retry_after == 7
        on.meets(Answer(429, "TooManyRequests"))
        with pytest.raises(TooManyRequests) as silent:
            await on.make("a")
        assert (silent.value.retry_after, silent.value.causes) == (None, ())
        on.meets(Answer(429, "TooManyRequests", causes=(("DisruptionBudget", "no more"),)))
        with pytest.raises(TooManyRequests) as budget:
            await on.make("a")
        assert [cause.reason for cause in budget.value.causes] == ["DisruptionBudget"]
        on.meets(Answer(500, "InternalError", headers={"Retry-After": "3"}))
        with pytest.raises(Unavailable) as broken:
            await on.make("a")
        assert broken.value.retry_after == 3
        on.meets(Answer(410, "Expired"))
        with pytest.raises(Gone):
            await on.connection.request("GET", MAPS)
        assert not await on.there("a")
        assert [(record.status, record.answered) for record in on.proxy.log] == [
            (None, status) for status in (429, 429, 429, 500, 410)
        ]

    @pytest.mark.parametrize("done", [False, True])
    async def test_a_slow_answer_comes_in_the_end(self, on: Site, done: bool) -> None:
        """It is held up before the API server is asked, or once that has answered."""
        at: list[float] = []

        async def asked() -> None:
            at.append(monotonic())

        on.meets(Slow(0.3, done=done, after=asked))
        began = monotonic()
        await on.make("a")
        ended = monotonic()
        assert (ended - at[0] if done else at[0] - began) >= 0.29
        assert await on.there("a")

    @pytest.mark.parametrize("done", [False, True])
    async def test_a_hanging_call_ends_when_the_client_gives_up(self, on: Site, done: bool) -> None:
        on.meets(Hang(done=done))
        with pytest.raises(ConnectionFailed):
            await on.make("a", seconds=0.3)
        if done:  # the client may have given up before
            await wait_for(lambda: on.there("a"), DEADLINE, "the write takes effect")
        assert await on.there("a") == done

    async def test_a_hanging_call_is_released(self, on: Site) -> None:
        release, asked = asyncio.Event(), asyncio.Event()

        async def hangs() -> None:
            asked.set()

        on.meets(Hang(release=release, before=hangs))
        sent = asyncio.create_task(on.make("a"))
        await asked.wait()
        assert not sent.done()
        release.set()
        with pytest.raises(ConnectionFailed):
            await sent

    async def test_a_late_call_is_carried_out_after_its_connection_broke(self, on: Site) -> None:
        on.meets(Late(0.2))
        with pytest.raises(ConnectionFailed):
            await on.make("a")
        assert not await on.there("a")
        await wait_for(lambda: on.there("a"), DEADLINE, "the write takes effect")

    async def test_of_a_call_that_is_carried_out_twice_the_second_answer_is_heard(self, on: Site) -> None:
        on.meets(Twice())
        with pytest.raises(Conflict):
            await on.make("a")
        assert await on.there("a")

    async def test_hooks_run_before_and_after_the_effect(self, on: Site) -> None:
        seen: list[tuple[str, bool]] = []

        async def before() -> None:
            seen.append(("before", await on.there("b")))

        async def after() -> None:
            seen.append(("after", await on.there("b")))

        on.proxy.plan = at_write(2, Fault(before=before, after=after))
        for name in ("a", "b", "c"):
            await on.make(name)
        assert seen == [("before", False), ("after", True)]
        assert [record.answered for record in on.proxy.writes] == [201, 201, 201]

    async def test_a_write_is_carried_out_though_its_sender_is_gone(self, on: Site) -> None:
        async def asked() -> bool:
            return bool(on.proxy.log)

        on.meets(Slow(0.2))
        sent = asyncio.create_task(on.make("a"))
        await wait_for(asked, DEADLINE)
        sent.cancel()
        await wait_for(lambda: on.there("a"), DEADLINE, "the write takes effect")

    async def test_a_watch_is_passed_on_event_by_event_and_ended_with_its_client(self, on: Site) -> None:
        async with on.connection.stream(MAPS, params={"watch": "true"}, silence=DEADLINE) as chunks:
            said = events(chunks)
            for name in ("a", "b"):
                await on.api.create(config_map(name))
                async with asyncio.timeout(DEADLINE):
                    while (await anext(said))["object"]["metadata"]["name"] != name:
                        pass
            [watching] = on.proxy.tasks
            assert not watching.done()
        assert on.proxy.log[0].call.is_watch

        async def ended() -> bool:
            return watching.done()

        await wait_for(ended, DEADLINE, "the end of the watch")

    async def test_a_held_watch_says_everything_once_it_is_let_go(self, on: Site) -> None:
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

    async def test_a_watch_falls_silent_after_some_events(self, on: Site) -> None:
        for name in ("a", "b", "c"):
            await on.api.create(config_map(name))
        on.meets(SilentWatch(events=2))
        assert (await until_it_breaks(on, silence=0.5)).count(b"\n") == 2

    async def test_a_watch_from_too_old_a_version(self, on: Site) -> None:
        await on.make("a")
        on.meets(WatchError(410, "Expired"))
        async with on.connection.stream(MAPS, params={"watch": "true"}, silence=DEADLINE) as chunks:
            [event] = [each async for each in events(chunks)]
            assert (event["type"], event["object"]["code"]) == ("ERROR", 410)
        on.meets(ResetMidAnswer(10))
        assert len(await until_it_breaks(on)) == 10

    async def test_an_outage_refuses_and_cuts_and_ends(self, on: Site) -> None:
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

    async def test_a_proxy_and_a_recorder_that_are_interrupted_at_their_end_close_all_the_same(self, on: Site) -> None:
        seen = SimpleNamespace(client=lambda: Client(on.cluster.url, {}, None))
        with nothing_unclosed():
            for made in (Proxy(on.cluster.url), Recorder(seen)):
                begun = asyncio.Event()

                async def use(made: Proxy | Recorder = made, begun: asyncio.Event = begun) -> None:
                    async with made:
                        begun.set()
                        await asyncio.Event().wait()

                using = asyncio.create_task(use())
                await begun.wait()
                for _ in range(2):  # out of the body, and then out of what ends it
                    using.cancel()
                    await asyncio.sleep(0)
                with pytest.raises(asyncio.CancelledError):
                    await using

    async def test_a_recorder_that_cannot_begin_closes_its_connections(self, on: Site) -> None:
        on.meets(Answer(401, "Unauthorized"))
        seen = SimpleNamespace(client=lambda: Client(on.proxy.url, {}, None))
        with nothing_unclosed(), pytest.raises(aiohttp.ClientResponseError, match="Unauthorized"):
            async with Recorder(seen):
                pytest.fail("the API server knows nobody's token")

    async def test_a_recorder_whose_watch_breaks_sees_nothing_twice(self, on: Site) -> None:
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


class TestOverASocket(Faults):
    """A socket of loopback, and real time."""


@pytest.mark.virtual_time
class TestOnVirtualTime(Faults):
    """Neither."""


@pytest.mark.virtual_time
@pytest.mark.parametrize("where", ["plan", "after"])
async def test_an_error_in_a_plan_or_a_hook_reaches_the_test(tmp_path: Path, where: str) -> None:
    async def wrong(*_: object) -> None:
        raise ConnectionResetError

    async def work() -> None:
        async with site(tmp_path, "virtual") as on:
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
