"""``hpa-scaler release``: what is given back, what is left, and when nothing is done."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable

import pytest
from msgspec import Struct

from hpa_scaler.annotations.spec import ENABLE, PREFIX
from tightship.kube.leases import micro_time
from tightship_testkit.client import Json
from tightship_testkit.floors import cli
from tightship_testkit.stall import Stall

from .world import ASKS, STATE, Refused, World

pytestmark = pytest.mark.virtual_time

OURS = json.dumps({"originalMin": 3, "originalMax": 6, "applied": 8, "appliedMax": 9, "history": {}})


class Ended(Struct, frozen=True):
    """What came of a command."""

    code: int
    out: str
    err: str


Release = Callable[..., Awaitable[Ended]]


@pytest.fixture
def release(world: World) -> Release:
    async def run(*arguments: str) -> Ended:
        return Ended(*await cli(world.on, "release", "--kubeconfig", str(world.on.kubeconfig), *arguments))

    return run


def stock(world: World, name: str = "web", *, state: str = OURS, minimum: int = 8, opted_in: bool = True) -> None:
    world.api.stock(name, minimum=minimum, maximum=9, replicas=8)
    world.api.edit(name, notes={STATE: state, **({} if opted_in else {f"{PREFIX}/{ENABLE}": None})})


def led(world: World, *, age: float = 1) -> None:
    renewed = micro_time(int((world.on.simulation.wall() - age) * 1e6))
    spec = {"holderIdentity": "pod-1", "leaseDurationSeconds": 600, "renewTime": renewed}
    meta = {"name": world.api.lease, "namespace": "scaling"}
    world.on.store.load([{"kind": "Lease", "metadata": meta, "spec": spec}])


async def test_the_users_bounds_are_back_and_our_annotation_is_gone(world: World, release: Release) -> None:
    stock(world)
    world.api.stock("plain")
    ended = await release("-A")
    assert ended.code == 0, ended.err
    assert world.api.bounds() == (3, 6)
    assert STATE not in world.api.hpa()["metadata"]["annotations"]
    assert "shop/web" in ended.out
    assert "8 → 3" in ended.out or "8 -> 3" in ended.out
    # An HPA with nothing of ours is no news, unless it is asked for by name.
    assert "plain" not in ended.out
    assert world.prometheus.seen == []


async def test_what_somebody_else_has_changed_is_left_and_said(world: World, release: Release) -> None:
    stock(world, minimum=5)
    ended = await release("-n", "shop", "web", "-o", "json")
    [entry] = json.loads(ended.out)["hpas"]
    assert world.api.bounds() == (5, 6)
    assert entry["outcome"] == "restored"
    assert "minReplicas from 8 to 5" in entry["left"]
    assert (entry["minimum"], entry["maximum"]) == ({"now": 5, "after": 5}, {"now": 9, "after": 6})


async def test_a_dry_run_shows_the_same_and_writes_nothing(world: World, release: Release) -> None:
    stock(world)
    led(world)
    ended = await release("-A", "--dry-run", "-o", "json")
    document = json.loads(ended.out)
    assert (ended.code, document["dryRun"]) == (0, True)
    assert document["hpas"][0]["outcome"] == "would-restore"
    assert document["hpas"][0]["minimum"] == {"now": 8, "after": 3}
    assert "pod-1" in document["leaders"][0]
    assert world.api.sent == []


async def test_nothing_is_released_while_a_controller_leads_that_would_take_it_up_again(
    world: World, release: Release
) -> None:
    stock(world)
    led(world)
    ended = await release("-A")
    assert (ended.code, ended.out) == (1, "")
    assert "pod-1 by the Lease scaling/scaler-leader" in ended.err
    assert "shop/web" in ended.err
    assert world.api.sent == []
    forced = await release("-A", "--force")
    assert forced.code == 0
    assert world.api.bounds() == (3, 6)
    assert "takes up again" in forced.out


async def test_an_hpa_that_is_opted_out_may_be_released_beside_a_controller(world: World, release: Release) -> None:
    stock(world, opted_in=False)
    led(world)
    assert (await release("-A")).code == 0
    assert world.api.bounds() == (3, 6)


async def test_a_controller_that_died_stops_nobody(world: World, release: Release) -> None:
    stock(world)
    led(world, age=601)
    assert (await release("-A")).code == 0


async def test_a_lease_elsewhere_does_not_count_where_the_controllers_namespace_is_named(
    world: World, release: Release
) -> None:
    stock(world)
    led(world)
    assert (await release("-A", "--controller-namespace", "default")).code == 0


async def test_what_is_refused_is_told_and_is_an_error(world: World, release: Release) -> None:
    stock(world)
    stock(world, "free")

    async def policy(name: str, _: Json) -> None:
        if name == "web":
            raise Refused(403, "admission webhook denied the request: frozen")

    world.api.before = policy
    ended = await release("-A", "-o", "json")
    outcomes = {each["name"]: (each["outcome"], each["detail"]) for each in json.loads(ended.out)["hpas"]}
    assert ended.code == 1
    assert outcomes["free"] == ("restored", "")
    assert outcomes["web"][0] == "refused"
    assert "frozen" in outcomes["web"][1]
    assert world.api.bounds() == (8, 9)


async def test_a_change_in_between_is_seen(world: World, release: Release) -> None:
    stock(world)

    async def somebody(_: str, thing: Json) -> None:
        world.api.before = None
        world.api.edit(minReplicas=4)

    world.api.before = somebody
    ended = await release("-n", "shop", "web", "-o", "json")
    assert ended.code == 0
    assert world.api.bounds() == (4, 6)
    assert "from 8 to 4" in json.loads(ended.out)["hpas"][0]["left"]


async def test_a_state_that_cant_be_read_is_left_and_is_an_error(world: World, release: Release) -> None:
    stock(world, state="{broken")
    ended = await release("-A")
    assert ended.code == 1
    assert "StateUnreadable" in ended.out
    assert world.api.sent == []


async def test_the_older_controllers_annotation_is_left_alone(world: World, release: Release) -> None:
    stock(world, state='{"enabled":"true","prometheusQuery":"x"}')
    ended = await release("-A")
    assert ended.code == 0
    assert world.api.bounds() == (8, 9)
    assert STATE in world.api.hpa()["metadata"]["annotations"]


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        ((), 64, "nothing is named"),
        (("-n", "shop", "nobody"), 1, 'HPA "nobody" not found'),
        (("-A", "-n", "shop"), 64, "not allowed"),
    ],
)
async def test_who_names_nothing_or_nobody_is_told(
    world: World, release: Release, arguments: tuple[str, ...], code: int, says: str
) -> None:
    stock(world)
    ended = await release(*arguments)
    assert (ended.code, ended.out) == (code, "")
    assert says in ended.err
    assert world.api.bounds() == (8, 9)


async def test_release_refuses_while_a_controller_leads_and_gives_back_once_it_ended(on: Stall) -> None:
    await on.stock("web", 3, 6, **ASKS)
    await on.stock("edited", 3, 20, **ASKS)
    await on.stock("plain", 2, 4)
    on.prometheus.set("rate", 72)
    replica = on.start()
    await on.until_bounds("web", 8, 9)
    await on.until_bounds("edited", 8, 20)
    code, out, err = await cli(on, "release", "-A")
    assert (code, out) == (1, "")
    assert "a controller runs" in err
    assert "--force" in err
    replica.asked_to_end()
    assert await replica.ended() == 0
    await on.edit("edited", minReplicas=5)
    code, out, _ = await cli(on, "release", "-A", "--dry-run")
    assert code == 0
    assert "would-restore" in out
    assert await on.bounds("web") == (8, 9)
    code, out, _ = await cli(on, "release", "-A")
    assert code == 0, out
    assert await on.bounds("web") == (3, 6)
    assert await on.bounds("edited") == (5, 20)
    assert "the controller now treats this as the user's own bound" in out
    for name in ("web", "edited"):
        assert STATE not in (await on.hpa(name))["metadata"]["annotations"]
    code, out, _ = await cli(on, "release", "shop/web", "shop/plain")
    assert (code, out.count("nothing-ours")) == (0, 3)
