"""Each fault does what it says, as our own connection and watches see it."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import sys
import time
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace

import aiohttp
import pytest

from tightship.kube.cache import ClusterCache, Timing
from tightship.kube.connection import NO_RETRY, Connection, connect
from tightship.kube.errors import ApiError, Conflict, ConnectionFailed, Gone, TooManyRequests, Unavailable
from tightship_e2e import ControlPlane
from tightship_testkit.client import RESOURCES, Client, Json, wait_for
from tightship_testkit.client import ApiError as Refused
from tightship_testkit.fault_proxy import FaultProxy, Record
from tightship_testkit.faults import (
    RATES,
    Answer,
    Call,
    Fault,
    Hang,
    Rates,
    Reset,
    ResetMidAnswer,
    SeededFaults,
    SilentWatch,
    Slow,
    WatchError,
    at_write,
)
from tightship_testkit.invariants import ANNOTATION, Recorder, evicted_again, successful_evictions

DEADLINE = 60.0
MAPS = RESOURCES["ConfigMap"].path("default")
QUICK = Timing(first=0.1, longest=0.5, silence=3)


def config_map(name: str) -> Json:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}}


def node(name: str) -> Json:
    status = {"allocatable": {"cpu": "4", "pods": "20"}, "conditions": [{"type": "Ready", "status": "True"}]}
    return {"kind": "Node", "metadata": {"name": name}, "status": status}


class Site:
    """A plane, a proxy before it, our connection through the proxy and a client beside it."""

    def __init__(self, api: Client, proxy: FaultProxy, connection: Connection) -> None:
        self.api = api
        self.proxy = proxy
        self.connection = connection

    def meets(self, fault: Fault) -> None:
        """The next call meets *fault*; those after it are left alone."""
        number = len(self.proxy.log) + 1

        async def plan(call: Call) -> Fault | None:
            return fault if call.number == number else None

        self.proxy.plan = plan

    async def make(self, name: str) -> None:
        await self.connection.request("POST", MAPS, body=json.dumps(config_map(name)).encode())

    async def there(self, name: str) -> bool:
        try:
            await self.api.get("ConfigMap", name, "default")
        except Refused as error:
            if error.status != 404:
                raise
            return False
        return True


@asynccontextmanager
async def site(plane: ControlPlane, api: Client, path: Path, seconds: float = 30) -> AsyncIterator[Site]:
    async with FaultProxy(plane) as proxy:
        file = proxy.kubeconfig(path / "kubeconfig")
        async with await connect(file, retry=NO_RETRY, timeout=seconds) as connection:
            yield Site(api, proxy, connection)


@pytest.fixture
def on_site(empty_plane: ControlPlane, tmp_path: Path) -> Callable[..., None]:
    def run(work: Callable[[Site], Awaitable[None]], seconds: float = 30) -> None:
        async def main(api: Client) -> None:
            async with site(empty_plane, api, tmp_path, seconds) as made:
                await work(made)

        empty_plane.run(main)

    return run


OnSite = Callable[..., None]


def test_undisturbed_calls_are_numbered_and_logged(on_site: OnSite) -> None:
    async def work(on: Site) -> None:
        await on.make("a")
        body = await on.connection.request("GET", MAPS, params={"limit": "1", "labelSelector": "a in (b,c),d/e!=f"})
        assert json.loads(body)["kind"] == "ConfigMapList"
        with pytest.raises(Conflict):
            await on.make("a")
        rows = [(r.call.number, r.call.write_number, r.call.verb, r.status, r.answered) for r in on.proxy.log]
        assert rows == [(1, 1, "POST", 201, 201), (2, 0, "GET", 200, 200), (3, 2, "POST", 409, 409)]
        assert on.proxy.log[1].call.query == {"limit": "1", "labelSelector": "a in (b,c),d/e!=f"}
        assert json.loads(on.proxy.log[0].call.body)["metadata"]["name"] == "a"

    on_site(work)


def test_the_clients_own_account_reaches_the_server(empty_plane: ControlPlane, tmp_path: Path) -> None:
    async def work(api: Client) -> None:
        base = await asyncio.to_thread(empty_plane.service_account_kubeconfig, "default", "default")
        async with FaultProxy(empty_plane) as proxy:
            file = proxy.kubeconfig(tmp_path / "kubeconfig", base=base)
            async with await connect(file) as connection:
                with pytest.raises(ApiError, match="system:serviceaccount:default:default"):
                    await connection.request("GET", MAPS)

    empty_plane.run(work)


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
def test_a_broken_connection_and_what_became_of_the_write(on_site: OnSite, fault: Fault, done: bool) -> None:
    async def work(on: Site) -> None:
        on.meets(fault)
        with pytest.raises(ConnectionFailed):
            await on.make("a")
        assert await on.there("a") == done
        assert on.proxy.log[0].status == (201 if done else None)
        assert on.proxy.log[0].answered is None
        await on.make("b")

    on_site(work)


@pytest.mark.parametrize("size", [0, 1000, 10**9])
def test_an_answer_breaks_off_in_the_middle_of_a_list(on_site: OnSite, size: int) -> None:
    async def work(on: Site) -> None:
        for number in range(20):
            await on.make(f"a{number}")
        on.meets(ResetMidAnswer(size))
        heads: list[bytes] = []
        with pytest.raises(ConnectionFailed):
            await on.connection.request("GET", MAPS, on_head=heads.append, retry=False)
        assert sum(map(len, heads)) <= size

    on_site(work)


def test_answers_in_the_servers_place(on_site: OnSite) -> None:
    async def work(on: Site) -> None:
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

    on_site(work)


@pytest.mark.parametrize("done", [False, True])
def test_a_slow_answer_comes_in_the_end(empty_plane: ControlPlane, on_site: OnSite, done: bool) -> None:
    """It is held up before the API server is asked, or once that has answered."""

    async def work(on: Site) -> None:
        empty_plane.audit_events()
        on.meets(Slow(1.5, done=done))
        begin = time.time()
        await on.make("a")
        end = time.time()
        asked: list[float] = []

        async def logged() -> bool:
            asked.extend(
                datetime.fromisoformat(each.request_received_timestamp).timestamp()
                for each in empty_plane.audit_events()
                if (each.verb, each.object_ref.resource, each.object_ref.namespace)
                == ("create", "configmaps", "default")
            )
            return bool(asked)

        await wait_for(logged, DEADLINE, "the call is in the log")
        assert (end - asked[0] if done else asked[0] - begin) >= 1.4  # clocks are not that exact
        assert await on.there("a")

    on_site(work)


@pytest.mark.parametrize("done", [False, True])
def test_a_hanging_call_ends_when_the_client_gives_up(on_site: OnSite, done: bool) -> None:
    async def work(on: Site) -> None:
        on.meets(Hang(done=done))
        with pytest.raises(ConnectionFailed):
            await on.make("a")
        if done:  # the client may have given up before
            await wait_for(lambda: on.there("a"), DEADLINE, "the write takes effect")
        assert await on.there("a") == done

    on_site(work, seconds=2)


def test_a_hanging_call_is_released(on_site: OnSite) -> None:
    async def work(on: Site) -> None:
        release = asyncio.Event()
        on.meets(Hang(release=release))
        sent = asyncio.create_task(on.make("a"))
        await asyncio.sleep(0.5)
        assert not sent.done()
        release.set()
        with pytest.raises(ConnectionFailed):
            await sent

    on_site(work)


def test_hooks_run_before_and_after_the_effect(on_site: OnSite) -> None:
    async def work(on: Site) -> None:
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

    on_site(work)


WRITER = """
import asyncio, json, sys
from tightship.kube.connection import connect

async def main():
    async with await connect(sys.argv[1]) as connection:
        for name in "abcd":
            body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}
            await connection.request("POST", sys.argv[2], body=json.dumps(body).encode())

asyncio.run(main())
"""


@pytest.mark.parametrize("done", [False, True])
def test_a_process_is_killed_at_its_third_write(empty_plane: ControlPlane, tmp_path: Path, done: bool) -> None:
    async def work(api: Client) -> None:
        process: asyncio.subprocess.Process

        async def kill() -> None:
            os.kill(process.pid, signal.SIGKILL)
            await process.wait()

        fault = Reset(done=True, after=kill) if done else Reset(before=kill)
        async with FaultProxy(empty_plane, at_write(3, fault)) as proxy:
            file = proxy.kubeconfig(tmp_path / "kubeconfig")
            process = await asyncio.create_subprocess_exec(sys.executable, "-c", WRITER, str(file), MAPS)
            assert await asyncio.wait_for(process.wait(), DEADLINE) == -signal.SIGKILL
            assert len(proxy.writes) == 3
        made = {item["metadata"]["name"] for item in await api.list("ConfigMap", "default")}
        assert made - {"kube-root-ca.crt"} == ({"a", "b", "c"} if done else {"a", "b"})

    empty_plane.run(work)


def test_a_write_is_carried_out_though_its_sender_is_gone(on_site: OnSite) -> None:
    async def work(on: Site) -> None:
        on.meets(Slow(1))
        sent = asyncio.create_task(on.make("a"))
        await wait_for(lambda: _true(bool(on.proxy.log)), DEADLINE)
        sent.cancel()
        await wait_for(lambda: on.there("a"), DEADLINE, "the write takes effect")

    on_site(work)


async def _true(value: bool) -> bool:
    return value


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


def ended_watches(plane: ControlPlane) -> int:
    """Watches of config maps that the API server has ended since the last question."""
    wanted = f"{MAPS}?watch=true"
    return sum(event.verb == "watch" and event.request_uri.startswith(wanted) for event in plane.audit_events())


def test_a_watch_is_passed_on_event_by_event_and_ended_with_its_client(
    empty_plane: ControlPlane, on_site: OnSite
) -> None:
    async def work(on: Site) -> None:
        ended_watches(empty_plane)
        async with on.connection.stream(MAPS, params={"watch": "true"}, silence=DEADLINE) as chunks:
            said = events(chunks)
            for name in ("a", "b"):
                await on.api.create(config_map(name))
                async with asyncio.timeout(DEADLINE):
                    while (await anext(said))["object"]["metadata"]["name"] != name:
                        pass
            assert not ended_watches(empty_plane)
        assert on.proxy.log[0].call.is_watch

        async def ended() -> bool:
            return ended_watches(empty_plane) == 1

        await wait_for(ended, DEADLINE, "the API server's end of the watch")

    on_site(work)


def test_a_watch_falls_silent_after_some_events(on_site: OnSite) -> None:
    async def work(on: Site) -> None:
        for name in ("a", "b", "c"):
            await on.api.create(config_map(name))
        on.meets(SilentWatch(events=2))
        assert (await until_it_breaks(on, silence=3)).count(b"\n") == 2

    on_site(work)


def test_a_watch_from_too_old_a_version(on_site: OnSite) -> None:
    async def work(on: Site) -> None:
        on.meets(WatchError(410, "Expired"))
        async with on.connection.stream(MAPS, params={"watch": "true"}, silence=DEADLINE) as chunks:
            [event] = [each async for each in events(chunks)]
            assert (event["type"], event["object"]["code"]) == ("ERROR", 410)
        on.meets(ResetMidAnswer(10))
        assert len(await until_it_breaks(on)) == 10

    on_site(work)


def test_an_outage_refuses_and_cuts_and_ends(on_site: OnSite) -> None:
    async def work(on: Site) -> None:
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

    on_site(work)


@pytest.mark.parametrize("through_proxy", [False, True], ids=["client", "proxy"])
def test_no_socket_outlives_the_client_of_a_server_that_falls_silent(
    empty_plane: ControlPlane, tmp_path: Path, through_proxy: bool
) -> None:
    async def work(api: Client) -> None:
        async with site(empty_plane, api, tmp_path) as on:

            async def ask() -> None:
                await (on.connection.request("GET", MAPS) if through_proxy else api.list("ConfigMap"))

            await ask()
            silence.enter_context(empty_plane.paused("kube-apiserver"))
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(ask(), 1)

    with ExitStack() as silence, nothing_unclosed():
        empty_plane.run(work)


def test_a_proxy_and_a_recorder_that_are_interrupted_at_their_end_close_all_the_same(
    empty_plane: ControlPlane,
) -> None:
    async def work(api: Client) -> None:
        for made in (FaultProxy(empty_plane), Recorder(empty_plane)):
            begun = asyncio.Event()

            async def use(made: FaultProxy | Recorder = made, begun: asyncio.Event = begun) -> None:
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

    with nothing_unclosed():
        empty_plane.run(work)


def test_a_recorder_that_cannot_begin_closes_its_connections(control_plane: ControlPlane) -> None:
    seen = SimpleNamespace(client=lambda: control_plane.client(token="nobody's"))

    async def work(api: Client) -> None:
        with pytest.raises(aiohttp.ClientResponseError, match="Unauthorized"):
            async with Recorder(seen):
                pytest.fail("the API server knows nobody's token")

    with nothing_unclosed():
        control_plane.run(work)


def test_a_recorder_whose_watch_breaks_sees_nothing_twice(empty_plane: ControlPlane) -> None:
    async def work(api: Client) -> None:
        async def enter(phase: str) -> None:
            record = json.dumps({"phase": phase}) if phase else None
            await api.patch("Node", "n1", {"metadata": {"annotations": {ANNOTATION: record}}})

        async with FaultProxy(empty_plane) as proxy:
            behind = SimpleNamespace(client=lambda: Client(proxy.url, api.headers, None))
            async with Recorder(behind) as recorder:
                await api.create(node("n1"))
                seen = []
                for phase in ("Marked", "Backoff", ""):
                    await enter(phase)
                    seen.append(phase)
                    await recorder.until(lambda: recorder.phases("n1")[-len(seen) :] == seen, f"{seen} are seen")
                    proxy.cut()
                await recorder.check()
                assert recorder.phases("n1") == seen

    empty_plane.run(work)


@contextmanager
def nothing_unclosed() -> Iterator[None]:
    """What the body's event loop has opened is closed, once it has ended."""
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always", ResourceWarning)
        yield
        gc.collect()
    assert [str(each.message) for each in warned] == []


@pytest.mark.parametrize("error", [ZeroDivisionError, ConnectionResetError])
@pytest.mark.parametrize("where", ["plan", "before", "after"])
def test_an_error_in_a_plan_or_a_hook_reaches_the_test(
    empty_plane: ControlPlane, tmp_path: Path, where: str, error: type[Exception]
) -> None:
    async def wrong(*_: object) -> None:
        raise error

    async def work(api: Client) -> None:
        async with site(empty_plane, api, tmp_path) as on:
            if where == "plan":
                on.proxy.plan = wrong
            else:
                on.meets(Fault(before=wrong) if where == "before" else Fault(after=wrong))
            with pytest.raises(ConnectionFailed):
                await on.make("a")

    with pytest.raises(error):
        empty_plane.run(work)


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


@pytest.mark.parametrize("seed", range(3))
def test_a_cache_holds_the_truth_after_a_storm(empty_plane: ControlPlane, tmp_path: Path, seed: int) -> None:
    async def work(api: Client) -> None:
        plan = SeededFaults(seed, Rates(hang_seconds=1).times(3), seconds=6)
        async with FaultProxy(empty_plane, plan) as proxy:
            file = proxy.kubeconfig(tmp_path / "kubeconfig")
            async with await connect(file, timeout=3) as connection, ClusterCache(connection, timing=QUICK) as cache:
                for number in range(30):
                    await api.create(node(f"n{number}"))
                    if number % 2:
                        await api.delete("Node", f"n{number - 1}")
                    await asyncio.sleep(0.2)
                wanted = {f"n{number}" for number in range(1, 30, 2)}
                await cache.synced(DEADLINE)
                async with asyncio.timeout(DEADLINE):
                    while set(cache.snapshot().nodes) != wanted:
                        await cache.changed(cache.revision, 1)
        print(f"seed {seed}: {len(proxy.log)} calls, {dict(plan.tally)}")
        assert plan.tally.total() > 5

    empty_plane.run(work)
