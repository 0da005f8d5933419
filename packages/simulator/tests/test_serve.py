"""The embedded cluster as a program, and at the edges of HTTP that no client of ours meets."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from pathlib import Path

import aiohttp
import pytest

from tightship_simulator.api.tables import human
from tightship_simulator.serve import EmbeddedCluster, FileError, read_items

DEADLINE = 60.0
PROGRAM = (sys.executable, "-m", "tightship_simulator.serve")


async def start(*arguments: str) -> asyncio.subprocess.Process:
    pipe = asyncio.subprocess.PIPE
    return await asyncio.create_subprocess_exec(*PROGRAM, *arguments, stdout=pipe, stderr=pipe)


async def test_a_file_is_served_until_it_is_told_to_end(tmp_path: Path) -> None:
    file = tmp_path / "cluster.json"
    items = [{"kind": "Node", "metadata": {"name": "n1"}}, {"kind": "Turnip", "metadata": {"name": "t"}}]
    file.write_text(json.dumps({"kind": "List", "items": items}))
    process = await start("-f", str(file))
    assert process.stdout is not None
    async with asyncio.timeout(DEADLINE):
        lines = [(await process.stdout.readline()).decode() for _ in range(4)]
        assert lines[0] == "left out: 1 of kind Turnip, which is not served\n"
        kubeconfig = lines[2].split("KUBECONFIG=")[1].strip()
        written = await asyncio.to_thread(Path(kubeconfig).read_text)
        server = json.loads(written)["clusters"][0]["cluster"]["server"]
        assert server in lines[1]
        async with aiohttp.ClientSession() as session, session.get(f"{server}/api/v1/nodes/n1") as answer:
            assert (await answer.json())["metadata"]["name"] == "n1"
        process.send_signal(signal.SIGTERM)
        _, complaint = await process.communicate()
    assert (process.returncode, complaint) == (0, b"")
    assert not await asyncio.to_thread(Path(kubeconfig).exists)


async def test_a_file_that_holds_no_objects_is_refused_with_the_reason(tmp_path: Path) -> None:
    wrong = '{"items": [{"kind": "Node"}, 7, {}]}'
    for content, reported in (("turnip", "not JSON"), ("[]", "not an object"), (wrong, "items 1, 2")):
        with pytest.raises(FileError, match=reported):
            read_items(content.encode())
    file = tmp_path / "cluster.json"
    file.write_text(wrong)
    process = await start("-f", str(file))
    async with asyncio.timeout(DEADLINE):
        out, complaint = await process.communicate()
    assert (process.returncode, out) == (1, b"")
    assert "items 1, 2" in complaint.decode()
    assert str(file) in complaint.decode()


async def test_only_this_machine_can_reach_it() -> None:
    async with EmbeddedCluster() as cluster:
        assert cluster.url.startswith("http://127.0.0.1:")


async def test_watches_that_are_open_do_not_hold_up_its_end() -> None:
    async with aiohttp.ClientSession() as session:
        async with asyncio.timeout(DEADLINE):
            async with EmbeddedCluster() as cluster:
                answer = await session.get(f"{cluster.url}/api/v1/nodes?watch=true")
                assert answer.status == 200
        answer.close()


async def test_a_body_that_is_no_json_is_a_bad_request() -> None:
    async with EmbeddedCluster() as cluster, aiohttp.ClientSession(cluster.url) as session:
        headers = {"Content-Type": "application/json"}
        async with session.post("/api/v1/nodes", data=b"{turnip", headers=headers) as answer:
            reported = await answer.json()
            assert (answer.status, reported["kind"], reported["reason"]) == (400, "Status", "BadRequest")
        async with session.post("/api/v1/nodes", data=b"[]", headers=headers) as answer:
            assert answer.status == 400
        async with session.post("/api/v1/nodes", data=b"a: b", headers={"Content-Type": "application/yaml"}) as answer:
            assert answer.status == 415
        async with session.put("/api/v1/nodes", json={}) as answer:
            assert answer.status == 405


async def test_the_log_of_requests_tells_who_asked_for_what_and_what_came_of_it() -> None:
    node = {"kind": "Node", "metadata": {"name": "n1"}}
    eviction = "/api/v1/namespaces/shop/pods/p1/eviction"
    headers = {"User-Agent": "somebody/1"}
    async with EmbeddedCluster() as cluster, aiohttp.ClientSession(cluster.url, headers=headers) as session:
        for method, path, body in (
            ("POST", "/api/v1/nodes?dryRun=All", node),
            ("POST", "/api/v1/nodes", node),
            ("POST", "/api/v1/nodes", node),
            ("GET", "/api/v1/nodes/n1", None),
            ("GET", "/api/v1/nodes", None),
            ("GET", "/api/v1/nodes?watch=true&timeoutSeconds=1", None),
            ("POST", eviction, {"metadata": {"name": "p1"}}),
            ("DELETE", "/api/v1/nodes", None),
            ("GET", "/version", None),
        ):
            async with session.request(method, path, json=body):
                pass
    log = list(cluster.requests)
    assert {each.agent for each in log} == {"somebody/1"}
    assert [(each.verb, each.resource, each.name, each.subresource, each.code, each.writes) for each in log] == [
        ("create", "nodes", "", "", 201, False),
        ("create", "nodes", "", "", 201, True),
        ("create", "nodes", "", "", 409, True),
        ("get", "nodes", "n1", "", 200, False),
        ("list", "nodes", "", "", 200, False),
        ("watch", "nodes", "", "", 200, False),
        ("create", "pods", "p1", "eviction", 404, True),
        ("deletecollection", "nodes", "", "", 200, True),
    ]


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (-5, "0s"),
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (599, "9m59s"),
        (600, "10m"),
        (10_799, "179m"),
        (10_800, "3h"),
        (11_100, "3h5m"),
        (28_800, "8h"),
        (172_799, "47h"),
        (172_800, "2d"),
        (176_400, "2d1h"),
        (691_200, "8d"),
        (63_072_000, "2y"),
        (63_158_400, "2y1d"),
    ],
)
def test_ages_are_written_as_kubectl_writes_them(seconds: int, shown: str) -> None:
    assert human(seconds) == shown
