"""The ConfigMap of landings: nothing of others is lost."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tightship.landing.controller import POLICY_ANNOTATION, LandingMap, policy_problem
from tightship.objects.api_errors import Conflict
from tightship_testkit.faults import Call, Fault

from .conftest import Bench, Replica

pytestmark = pytest.mark.virtual_time

Json = dict[str, Any]

NAME = "landings"


def put(bench: Bench, data: Json | None = None, said: str | None = "hints/2") -> None:
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
    assert there.policy == "hints/2"
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
    assert set(seen) == {"hints/2"}


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
        ("hints/2", ""),
        (None, "the map does not exist: the chart makes it"),
        ("", "has no annotation tightship.dev/landing-policy"),
        ("hints/1", "'hints/1', not hints/2: upgrade the chart's release"),
        ("hints", "'hints', not hints/2"),
        ("x" * 500, f"{'x' * 60!r}, not hints/2"),
    ],
)
def test_only_the_policy_that_the_mode_needs_will_do(policy: str | None, says: str) -> None:
    found = policy_problem(policy, "hints", "the map")
    assert says in found
    assert bool(found) is bool(says)
