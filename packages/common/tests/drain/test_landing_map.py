"""The ConfigMap of landings, and the two writes on a gated pod: nothing of others is lost, no other pod is met."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tightship.core.api_errors import Conflict, KubeError, NotSent
from tightship.core.objects import Pod
from tightship.core.objects.pod import LANDING_GATE
from tightship.drain_io.landing_map import POLICY_ANNOTATION, LandingMap, nominate, policy_problem, ungate
from tightship_testkit.builders import decoded
from tightship_testkit.faults import Call, Fault

from .conftest import Bench, Replica, known_pod

pytestmark = pytest.mark.virtual_time

Json = dict[str, Any]

NAME = "landings"
THEIRS = {"name": "their.dev/later"}


def put(bench: Bench, data: Json | None = None, said: str | None = "exact/1") -> None:
    notes = {"their.dev/note": "kept"} | ({POLICY_ANNOTATION: said} if said is not None else {})
    meta = {"name": NAME, "namespace": "default", "annotations": notes}
    bench.api.store.create("ConfigMap", {"metadata": meta, **({} if data is None else {"data": data})})


def data(bench: Bench) -> Json:
    return dict(bench.api.store.get("ConfigMap", NAME, "default").get("data") or {})


def edit(bench: Bench, **data: str) -> None:
    bench.api.edit("ConfigMap", NAME, lambda raw: raw.update(data=data), "default")


async def opened(bench: Bench) -> tuple[Replica, LandingMap]:
    replica = await bench.replica()
    return replica, LandingMap(replica.connection, "default", NAME)


async def test_a_write_makes_the_data_the_whole_data(bench: Bench) -> None:
    put(bench, {"old": "n1", "uid-web": "n1"})
    replica, there = await opened(bench)
    await replica.does(there.write({"uid-web": "n2", "uid-db": "n3"}))
    assert data(bench) == {"uid-web": "n2", "uid-db": "n3"} == there.data
    assert there.policy == "exact/1"
    meta = bench.api.store.get("ConfigMap", NAME, "default")["metadata"]
    assert meta["annotations"]["their.dev/note"] == "kept"
    await replica.does(there.write({}))
    assert data(bench) == {}


async def test_what_was_known_of_the_policy_holds_while_the_map_is_read_again(bench: Bench) -> None:
    put(bench)
    replica, there = await opened(bench)
    await replica.does(there.read())
    again = asyncio.create_task(replica.does(there.read()))
    seen = []
    while not again.done():
        seen.append(there.policy)
        await asyncio.sleep(0)
    assert len(seen) > 1
    assert set(seen) == {"exact/1"}


async def test_a_write_that_changes_nothing_is_not_sent(bench: Bench) -> None:
    put(bench, {"uid-web": "n1"})
    replica, there = await opened(bench)
    await replica.does(there.write({"uid-web": "n1"}))
    assert bench.writes() == []


async def test_an_edit_in_between_is_read_and_written_over(bench: Bench) -> None:
    put(bench)
    replica, there = await opened(bench)
    await replica.does(there.read())
    edit(bench, **{"by-hand": "n9"})
    await replica.does(there.write({"uid-web": "n1"}))
    assert data(bench) == {"uid-web": "n1"}


async def test_who_leads_no_longer_empties_it_only_if_nobody_has_written_since(bench: Bench) -> None:
    put(bench)
    replica, there = await opened(bench)
    await replica.does(there.write({"uid-web": "n1"}))
    await replica.does(there.write({}, unseen=False))
    assert data(bench) == {}
    await replica.does(there.write({"uid-web": "n1"}))
    edit(bench, **{"of-the-next": "n2"})
    with pytest.raises(Conflict):
        await replica.does(there.write({}, unseen=False))
    await replica.does(there.write({}, unseen=False))
    assert data(bench) == {"of-the-next": "n2"}


async def test_one_that_changes_all_the_time_is_given_up(bench: Bench) -> None:
    put(bench)
    replica, there = await opened(bench)

    async def edited(call: Call) -> Fault | None:
        if call.verb == "PATCH":
            edit(bench, by=str(call.number))
        return None

    replica.meets(edited)
    with pytest.raises(Conflict):
        await replica.does(there.write({"uid-web": "n1"}))


async def test_a_missing_one_stays_missing(bench: Bench) -> None:
    replica, there = await opened(bench)
    await replica.does(there.read())
    assert (there.policy, there.data) == (None, {})
    await replica.does(there.write({"uid-web": "n1"}))
    assert bench.writes() == []
    put(bench, said=None)
    await replica.does(there.read())
    assert there.policy == ""


async def test_one_that_goes_before_the_write_is_missing_too(bench: Bench) -> None:
    put(bench)
    replica, there = await opened(bench)
    await replica.does(there.read())
    bench.api.remove("ConfigMap", NAME, "default")
    await replica.does(there.write({"uid-web": "n1"}))
    assert there.policy is None


@pytest.mark.parametrize(
    ("policy", "says"),
    [
        ("exact/1", ""),
        (None, "the map does not exist: the chart makes it"),
        ("", "has no annotation tightship.dev/landing-policy"),
        ("hints/1", "'hints/1', not exact/1: upgrade the chart's release"),
        ("exact/0", "'exact/0', not exact/1"),
        ("exact", "'exact', not exact/1"),
        ("x" * 500, f"{'x' * 60!r}, not exact/1"),
    ],
)
def test_only_the_policy_that_the_mode_needs_will_do(policy: str | None, says: str) -> None:
    found = policy_problem(policy, "exact", "the map")
    assert says in found
    assert bool(found) is bool(says)


def gated(bench: Bench, *others: Json) -> Pod:
    made = known_pod("web-9", on="", phase="Pending")
    made["spec"]["schedulingGates"] = [others[0], {"name": LANDING_GATE}] if others else [{"name": LANDING_GATE}]
    bench.api.add(made)
    found = decoded(bench.api.store.get("Pod", "web-9", "shop"))
    assert isinstance(found, Pod)
    return found


async def test_our_gate_goes_and_that_of_others_stays(bench: Bench) -> None:
    replica = await bench.replica()
    pod = gated(bench, THEIRS)
    await replica.does(nominate(replica.connection, pod, "n2", only_if=lambda: True))
    await replica.does(ungate(replica.connection, pod))
    there = bench.api.store.get("Pod", "web-9", "shop")
    assert there["spec"]["schedulingGates"] == [THEIRS]
    assert there["status"]["nominatedNodeName"] == "n2"
    await replica.does(ungate(replica.connection, pod))
    assert bench.api.store.get("Pod", "web-9", "shop")["spec"]["schedulingGates"] == [THEIRS]


async def test_who_leads_no_longer_nominates_nothing(bench: Bench) -> None:
    replica = await bench.replica()
    pod = gated(bench)
    with pytest.raises(NotSent):
        await replica.does(nominate(replica.connection, pod, "n2", only_if=lambda: False))
    assert "nominatedNodeName" not in bench.api.store.get("Pod", "web-9", "shop")["status"]


async def test_another_pod_of_the_same_name_is_left_alone(bench: Bench) -> None:
    replica = await bench.replica()
    pod = gated(bench)
    bench.api.remove("Pod", "web-9", "shop")
    other = known_pod("web-9", on="", phase="Pending", schedulingGates=[{"name": LANDING_GATE}])
    other["metadata"]["uid"] = "another"
    bench.api.add(other)
    for write in (nominate(replica.connection, pod, "n2", only_if=lambda: True), ungate(replica.connection, pod)):
        with pytest.raises(KubeError):
            await replica.does(write)
    there = bench.api.store.get("Pod", "web-9", "shop")
    assert there["spec"]["schedulingGates"] == [{"name": LANDING_GATE}]
    assert "nominatedNodeName" not in there["status"]
