"""The cache and the single read, against a server that misbehaves."""

from __future__ import annotations

import asyncio
import logging

import pytest

from tightship.documents.warnings import warnings_of
from tightship.kube.cache import CacheCrashed, ClusterCache, Timing, read_cluster
from tightship.kube.connection import Connection
from tightship.kube.pacing import RetryPolicy, begin_anew
from tightship.kube.resources import BY_KIND, resources
from tightship.objects import AUTOSCALER
from tightship.objects.api_errors import AccessDenied, NotSynced, Unavailable
from tightship_testkit.scripted import Responder, ScriptedApi, answer, bookmark, event, page, status, stream
from tightship_testkit.simulated import until

from .conftest import FakeSleep, bad_pod, node, pod

pytestmark = pytest.mark.virtual_time

LIST, WATCH = "LIST /api/v1/pods", "WATCH /api/v1/pods"
NODES = "LIST /api/v1/nodes"
JOBS = "LIST /apis/batch/v1/jobs"
BUFFERS = "/apis/autoscaling.x-k8s.io"
BUDGETS = "LIST /apis/policy/v1/poddisruptionbudgets"
FORBIDDEN = status(403, "Forbidden", "viewer cannot list it")


@pytest.fixture
def cache(api: ScriptedApi, connection: Connection, fake_sleep: FakeSleep) -> ClusterCache:
    api.on(NODES, page([node("n1"), node("n2")]))
    return ClusterCache(connection, timing=Timing(sleep=fake_sleep))


def pods(cache: ClusterCache) -> list[str]:
    return [f"{each.name}@{name}" for name, view in cache.snapshot().nodes.items() for each in view.pods]


async def test_lists_then_watches_from_the_version_of_the_list(api: ScriptedApi, cache: ClusterCache) -> None:
    api.on(LIST, page([pod("a"), pod("b")], "10"))
    added, changed = event("ADDED", pod("c", "n2", "11")), event("MODIFIED", pod("a", "n2", "12"))
    api.on(
        WATCH, stream(added, changed, event("DELETED", pod("b", version="13")), bookmark("20"), end="close"), stream()
    )
    async with cache:
        await until(lambda: cache.has_synced, 60)
        await until(lambda: pods(cache) == ["a@n2", "c@n2"])
        await until(lambda: api.count("WATCH", "/api/v1/pods") == 2)
        stats = cache.stats()["Pod"]
    watches = [
        each.params["resourceVersion"] for each in api.seen if (each.verb, each.path) == ("WATCH", "/api/v1/pods")
    ]
    assert watches == ["10", "20"], "the bookmark's version is where the next watch goes on"
    assert api.count("LIST", "/api/v1/pods") == 1
    assert stats.age is not None
    assert cache.has_synced
    assert cache.missing == {}


@pytest.mark.parametrize(
    "expired",
    [
        pytest.param(stream(event("ERROR", {"kind": "Status", "code": 410, "reason": "Expired"})), id="ERROR event"),
        pytest.param(status(410, "Expired", "too old"), id="answer"),
    ],
)
async def test_an_expired_version_is_listed_anew(api: ScriptedApi, cache: ClusterCache, expired: Responder) -> None:
    api.on(LIST, page([pod("a")], "10"), page([pod("b")], "30"))
    api.on(WATCH, expired, stream())
    async with cache:
        await until(lambda: pods(cache) == ["b@n1"])
        assert api.count("LIST", "/api/v1/pods") == 2


async def test_a_line_cut_by_a_reset_is_forgotten_and_sent_again(api: ScriptedApi, cache: ClusterCache) -> None:
    api.on(LIST, page([], "10"))
    whole, cut = event("ADDED", pod("a", version="11")), event("ADDED", pod("b", version="12"))
    api.on(WATCH, stream(whole[:40], whole[40:] + cut[:50], end="reset"), stream(cut[:9], cut[9:]))
    async with cache:
        await until(lambda: pods(cache) == ["a@n1", "b@n1"])
        assert api.count("LIST", "/api/v1/pods") == 1
    again = [each for each in api.seen if (each.verb, each.path) == ("WATCH", "/api/v1/pods")]
    # The reset may overtake the first line; then it is sent again too.
    assert again[1].params["resourceVersion"] in ("10", "11")


async def test_a_silent_watch_is_opened_again(
    api: ScriptedApi, connection: Connection, fake_sleep: FakeSleep, caplog: pytest.LogCaptureFixture
) -> None:
    api.on(WATCH, stream(), stream(event("ADDED", pod("a", version="11"))))
    api.on(NODES, page([node("n1")]))
    async with ClusterCache(connection, timing=Timing(sleep=fake_sleep, silence=0.05)) as cache:
        await until(lambda: pods(cache) == ["a@n1"])
        assert api.count("LIST", "/api/v1/pods") == 1
    assert "WATCH /api/v1/pods" in caplog.text


async def test_an_unreadable_object_of_a_watch_takes_the_place_of_the_readable(
    api: ScriptedApi, cache: ClusterCache
) -> None:
    api.on(LIST, page([pod("a"), bad_pod("z", "n2")], "10"))
    api.on(WATCH, stream(event("MODIFIED", bad_pod("a", "n2"))))
    async with cache:
        await until(lambda: len(cache.snapshot().unreadable) == 2)
        assert pods(cache) == []
        assert {(each.name, each.node) for each in cache.snapshot().unreadable} == {("a", "n2"), ("z", "n2")}


async def test_server_errors_are_waited_out_with_growing_jittered_pauses(
    api: ScriptedApi, cache: ClusterCache, fake_sleep: FakeSleep
) -> None:
    api.on(WATCH, *[status(500, "InternalError", "etcd")] * 4, stream(event("ADDED", pod("a", version="11"))))
    async with cache:
        await until(lambda: pods(cache) == ["a@n1"])
    longest = [0.5, 1, 2, 4]
    assert len(fake_sleep.waits) == 4
    assert all(most / 2 <= wait <= most for wait, most in zip(fake_sleep.waits, longest, strict=True))


async def test_watches_that_end_at_once_are_not_opened_in_a_tight_loop(
    api: ScriptedApi, connection: Connection, fake_sleep: FakeSleep
) -> None:
    api.on(WATCH, *[stream(end="close")] * 3, stream())
    async with ClusterCache(connection, timing=Timing(sleep=fake_sleep, clock=lambda: 0.0)):
        await until(lambda: api.count("WATCH", "/api/v1/pods") == 4)
    assert len(fake_sleep.waits) == 3


async def test_an_error_event_other_than_410_goes_on_from_the_same_version(
    api: ScriptedApi, cache: ClusterCache
) -> None:
    api.on(
        WATCH, stream(event("ERROR", {"code": 500, "message": "etcd"})), stream(event("ADDED", pod("a", version="11")))
    )
    async with cache:
        await until(lambda: pods(cache) == ["a@n1"])
        assert api.count("LIST", "/api/v1/pods") == 1


async def test_a_forbidden_optional_kind_is_missing_and_told_once(
    api: ScriptedApi, connection: Connection, fake_sleep: FakeSleep, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    api.on(NODES, page([node("n1")]))
    api.on(JOBS, FORBIDDEN, FORBIDDEN, page([]))
    api.on("LIST /apis/storage.k8s.io/v1/csinodes", status(404, "NotFound", "no such resource"))
    async with ClusterCache(connection, timing=Timing(sleep=fake_sleep, recheck=600)) as cache:
        await until(lambda: api.count("LIST", "/apis/batch/v1/jobs") == 3 and cache.has_synced)
        await until(lambda: "Job" not in cache.missing)
        assert cache.missing == {"CSINode": "not served"}
        assert cache.snapshot().missing == {"CSINode": "not served"}
    reported = [each.getMessage() for each in caplog.records if "jobs.batch" in each.getMessage()]
    assert len(reported) == 2
    assert reported[0].startswith("doing without jobs.batch: forbidden")
    assert reported[1] == "jobs.batch can be read now"
    assert 600 in fake_sleep.waits


async def test_buffers_are_read_in_the_version_that_is_served(api: ScriptedApi, connection: Connection) -> None:
    thing = {
        "metadata": {"name": "spare", "namespace": "default"},
        "status": {"replicas": 2, "podTemplateRef": {"name": "unit"}},
    }
    api.on(f"LIST {BUFFERS}/v1beta1/capacitybuffers", status(404, "NotFound", "no such resource"))
    api.on(f"LIST {BUFFERS}/v1alpha1/capacitybuffers", page([thing]))
    async with ClusterCache(connection) as cache:
        await until(lambda: cache.has_synced and api.count("WATCH", f"{BUFFERS}/v1alpha1/capacitybuffers") > 0)
        assert [each.replicas for each in cache.snapshot().buffers.values()] == [2]
        assert api.count("WATCH", f"{BUFFERS}/v1beta1/capacitybuffers") == 0
    assert list((await read_cluster(connection)).buffers) == ["default/spare"]


async def test_a_cluster_without_buffers_is_told_once_and_warns_of_nothing(
    api: ScriptedApi, connection: Connection, fake_sleep: FakeSleep, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    missing = status(404, "NotFound", "no such resource")
    for version in ("v1beta1", "v1alpha1"):
        api.on(f"LIST {BUFFERS}/{version}/capacitybuffers", missing, missing, missing)
    async with ClusterCache(connection, timing=Timing(sleep=fake_sleep, recheck=600)) as cache:
        await until(lambda: api.count("LIST", f"{BUFFERS}/v1alpha1/capacitybuffers") == 3 and cache.has_synced)
        assert cache.missing == {"CapacityBuffer": "not served"}
        assert warnings_of(cache.snapshot()) == ()
    reported = [each for each in caplog.records if "capacitybuffers" in each.getMessage()]
    assert [each.levelname for each in reported[:1]] == ["INFO"]
    assert len([each for each in reported if "doing without" in each.getMessage()]) == 1


async def test_a_kind_that_is_served_in_unknown_versions_only_is_told_with_them(
    api: ScriptedApi, connection: Connection, fake_sleep: FakeSleep, caplog: pytest.LogCaptureFixture
) -> None:
    missing = status(404, "NotFound", "no such resource")
    versions = [{"groupVersion": f"autoscaling.x-k8s.io/{each}", "version": each} for each in ("v1alpha1", "v2", "v3")]
    for version in ("v1beta1", "v1alpha1"):
        api.on(f"LIST {BUFFERS}/{version}/capacitybuffers", missing)
    api.on(f"LIST {BUFFERS}", answer({"kind": "APIGroup", "versions": versions}))
    api.on(f"LIST {BUFFERS}/v2", answer({"kind": "APIResourceList", "resources": [{"name": "capacitybuffers"}]}))
    api.on(f"LIST {BUFFERS}/v3", answer({"kind": "APIResourceList", "resources": [{"name": "others"}]}))
    why = "served only as v2, which Tightship does not know"
    async with ClusterCache(connection, timing=Timing(sleep=fake_sleep, recheck=600)) as cache:
        await until(lambda: cache.has_synced)
        assert cache.missing["CapacityBuffer"] == why
        [warning] = warnings_of(cache.snapshot())
        assert warning == f"CapacityBuffers are {why}: the room that they keep free is not seen"
    [reported] = [each for each in caplog.records if "capacitybuffers" in each.getMessage()]
    assert (reported.levelname, why in reported.getMessage()) == ("WARNING", True)
    assert (await read_cluster(connection)).missing["CapacityBuffer"] == why


async def test_a_kind_withdrawn_later_is_forgotten(api: ScriptedApi, connection: Connection) -> None:
    budget = {"metadata": {"name": "j", "namespace": "default", "uid": "u"}}
    api.on(NODES, page([node("n1")]))
    api.on(JOBS, page([budget], "10"), FORBIDDEN)
    api.on("WATCH /apis/batch/v1/jobs", FORBIDDEN)

    async def forever(seconds: float) -> None:
        await until(lambda: False, seconds)

    async with ClusterCache(connection, timing=Timing(sleep=forever)) as cache:
        await until(lambda: cache.missing == {"Job": "forbidden"})
        assert cache.snapshot().workloads == {}


async def test_forbidden_required_kinds_are_named_with_the_way_out(
    api: ScriptedApi, cache: ClusterCache, connection: Connection
) -> None:
    api.on(LIST, FORBIDDEN)
    api.on(BUDGETS, FORBIDDEN)
    wanted = r"does not allow reading Pod, PodDisruptionBudget \(.*cannot list it.*docs/permissions\.md"
    with pytest.raises(AccessDenied, match=wanted):
        await read_cluster(connection)
    async with cache:
        await until(lambda: api.count("LIST", BUDGETS.partition(" ")[2]) > 1)
        assert not cache.has_synced
        api.on(LIST, page([pod("a")]))
        api.on(BUDGETS, page([]))
        await until(lambda: cache.has_synced)


async def test_changed_tells_of_every_change(api: ScriptedApi, cache: ClusterCache) -> None:
    api.on(WATCH, stream(event("ADDED", pod("a", version="11"))))
    async with cache:
        await until(lambda: cache.has_synced, 60)
        await until(lambda: pods(cache) == ["a@n1"])
        seen = cache.revision
        assert seen > 0
        assert await cache.changed(seen - 1, 1)
        assert not await cache.changed(seen + 1000, 0.01)


async def test_a_crash_in_a_task_is_told_at_once_and_by_everything(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def crash(*_: object, **__: object) -> None:
        raise ZeroDivisionError("defect")

    monkeypatch.setattr("tightship.kube.reflector.list_served", crash)
    reported = asyncio.Event()
    async with ClusterCache(connection, crashed=reported.set) as cache:
        async with asyncio.timeout(60):
            await reported.wait()
        with pytest.raises(CacheCrashed, match=r"^reflector of \w+ ended: .*defect") as raised:
            cache.snapshot()
        assert isinstance(raised.value.__cause__, ZeroDivisionError)
        with pytest.raises(CacheCrashed):
            assert not cache.has_synced


async def test_an_end_in_good_order_is_no_crash(connection: Connection) -> None:
    reported: list[str] = []
    async with ClusterCache(connection, crashed=lambda: reported.append("crashed")) as cache:
        await until(lambda: cache.has_synced, 60)
    assert reported == []


async def test_the_single_read_lists_without_watching(api: ScriptedApi, connection: Connection) -> None:
    api.on(NODES, page([node("n1")]))
    api.on(LIST, page([pod("a")], "1", "t"), page([bad_pod("b")], "1"))
    api.on(JOBS, FORBIDDEN)
    reported: dict[str, int] = {}
    snapshot = await read_cluster(connection, progress=reported.__setitem__)
    assert snapshot.pod_count == 1
    assert [each.name for each in snapshot.unreadable] == ["b"]
    assert snapshot.missing == {"Job": "forbidden"}
    assert reported["Pod"] == 2
    assert not any(each.verb == "WATCH" for each in api.seen)


async def test_the_single_read_raises_the_first_other_error(api: ScriptedApi, connection: Connection) -> None:
    api.on(NODES, status(500, "InternalError", "etcd"))
    with pytest.raises(Unavailable):
        await read_cluster(connection)


def test_waits_double_up_to_a_bound_and_are_shortened_by_up_to_the_jitter() -> None:
    policy = RetryPolicy(first=1, longest=5, jitter=0.5, spread=lambda: 0)
    assert [policy.seconds(failures) for failures in range(1, 6)] == [1, 2, 4, 5, 5]
    short = RetryPolicy(first=1, longest=5, jitter=0.5, spread=lambda: 1)
    assert [short.seconds(failures) for failures in (1, 2)] == [0.5, 1]


async def test_endless_attempts_wait_longer_each_time_until_something_works() -> None:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    async for attempt in RetryPolicy(first=1, longest=60, spread=lambda: 0, sleep=sleep).endlessly():
        if len(waits) == 5:
            break
        with attempt:
            if len(waits) == 3:
                begin_anew(attempt.retry_state)
    assert waits == [1, 2, 4, 1, 2]


HPAS = "/apis/autoscaling/v2/horizontalpodautoscalers"


def scaler(minimum: int, version: str = "1") -> dict[str, object]:
    target = {"kind": "Deployment", "name": "web"}
    meta = {"name": "web", "namespace": "shop", "uid": "u", "resourceVersion": version}
    spec = {"scaleTargetRef": target, "minReplicas": minimum, "maxReplicas": 9}
    return {"kind": "HorizontalPodAutoscaler", "apiVersion": "autoscaling/v2", "metadata": meta, "spec": spec}


async def test_a_kind_can_be_followed_and_forgotten_later(api: ScriptedApi, connection: Connection) -> None:
    api.on(NODES, page([node("n1")]))
    api.on(f"LIST {HPAS}", page([scaler(2)], "10"))
    api.on(f"WATCH {HPAS}", stream(event("MODIFIED", scaler(5, "11"))))
    async with ClusterCache(connection, resources=resources(autoscalers=False, buffers=False)) as cache:
        await until(lambda: cache.has_synced, 60)
        assert api.count("LIST", HPAS) == 0
        assert cache.snapshot().autoscalers == {}
        for _ in range(2):
            await cache.follow(BY_KIND[AUTOSCALER], wanted=True, timeout=60)
        await until(lambda: [each.min_replicas for each in cache.snapshot().autoscalers.values()] == [5])
        assert api.count("LIST", HPAS) == 1
        assert AUTOSCALER in cache.stats()
        for _ in range(2):
            await cache.follow(BY_KIND[AUTOSCALER], wanted=False, timeout=60)
        assert cache.snapshot().autoscalers == {}
        assert AUTOSCALER not in cache.stats()
        assert cache.has_synced
        assert cache.missing == {}
        api.on(f"LIST {HPAS}", page([scaler(7)], "20"))
        await cache.follow(BY_KIND[AUTOSCALER], wanted=True, timeout=60)
        assert [each.min_replicas for each in cache.snapshot().autoscalers.values()] == [7]


async def test_following_a_kind_ends_when_it_turns_out_to_be_forbidden(
    api: ScriptedApi, connection: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    api.on(f"LIST {HPAS}", FORBIDDEN)
    async with ClusterCache(connection, resources=resources(autoscalers=False, buffers=False)) as cache:
        for _ in range(3):
            await cache.follow(BY_KIND[AUTOSCALER], wanted=True, timeout=60)
        assert cache.snapshot().missing == {AUTOSCALER: "forbidden"}
        assert cache.snapshot().autoscalers == {}
    reported = [each.getMessage() for each in caplog.records if "horizontalpodautoscalers" in each.getMessage()]
    assert len(reported) == 1
    assert reported[0].startswith("doing without horizontalpodautoscalers.autoscaling: forbidden")


async def test_following_a_kind_that_does_not_come_says_what_is_in_the_way(
    api: ScriptedApi, connection: Connection
) -> None:
    api.on(f"LIST {HPAS}", status(500, "InternalError", "etcd is away"))
    async with ClusterCache(connection, resources=resources(autoscalers=False, buffers=False)) as cache:
        await until(lambda: cache.has_synced, 60)
        with pytest.raises(NotSynced, match=r"HorizontalPodAutoscaler: .*(etcd is away|not listed yet)"):
            await cache.follow(BY_KIND[AUTOSCALER], wanted=True, timeout=0.2)
