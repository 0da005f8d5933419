"""Election and claims on a real API server: processes that are killed, stopped and told to end."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tightship.drain.claims import CLAIMS_ANNOTATION, Claim, ClaimLedger, ClaimsUnreadable
from tightship.kube.connection import connect
from tightship.kube.election import Elector, LeaseTiming
from tightship.kube.errors import Conflict
from tightship.kube.leases import LeaseStore
from tightship.reasons import Reason, Refusal
from tightship_e2e import ControlPlane
from tightship_testkit.client import Client, Json

DEADLINE = 120.0
TIMING = LeaseTiming(duration=12, renew_deadline=9, retry_period=0.5)
"""Long enough that a machine which stands still for some seconds ends no term."""
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"

REPLICA = """
import asyncio, json, signal, sys, threading, time
from tightship.kube.connection import connect
from tightship.kube.election import Elector, LeaseTiming

kubeconfig, name, identity, duration, deadline, period = sys.argv[1:]
timing = LeaseTiming(duration=float(duration), renew_deadline=float(deadline), retry_period=float(period))

def tell(**what):
    # One write: print's second, of the line's end, would let the log in between.
    sys.stdout.write(json.dumps(what) + "\\n")
    sys.stdout.flush()

def watch(elector, ended):
    # A thread of its own: after SIGCONT it looks before, after, or while the event loop takes in what it missed.
    looked, led, led_last, seen = time.monotonic(), False, 0.0, ""
    while not ended.wait(0.005):
        now = time.monotonic()
        leads = elector.is_leader
        if now - looked > 1:
            tell(what="woke", at=now, after=now - looked, leads=leads)
        if leads != led:
            tell(what="leads" if leads else "lost", at=now if leads else led_last, epoch=elector.epoch)
        if not seen and (seen := elector.holder):
            tell(what="sees", holder=seen)
        looked, led, led_last = now, leads, now if leads else led_last
    if led:
        tell(what="lost", at=led_last, epoch=elector.epoch)

async def main():
    stop, ended = asyncio.Event(), threading.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with await connect(kubeconfig) as connection:
        elector = Elector(connection, namespace="default", name=name, identity=identity, timing=timing)
        watcher = threading.Thread(target=watch, args=(elector, ended), daemon=True)
        watcher.start()
        tell(what="started", at=time.monotonic())
        try:
            await elector.run(stop)
        finally:
            ended.set()
            watcher.join()
            tell(what="ended", at=time.monotonic())

asyncio.run(main())
"""


class Replica:
    """One process with an elector, and what it has said so far."""

    _numbers = itertools.count()

    def __init__(self, plane: ControlPlane, script: Path, lease: str, timing: LeaseTiming = TIMING) -> None:
        self.plane = plane
        self.name = f"elector-{next(self._numbers)}"
        arguments = [str(plane.kubeconfig), lease, self.name]
        times = [str(each) for each in (timing.duration, timing.renew_deadline, timing.retry_period)]
        self.pid = plane.spawn(self.name, [sys.executable, str(script), *arguments, *times])

    def told(self, what: str) -> list[Json]:
        lines = self.plane.logs[self.name].read_text().splitlines()
        said: list[Json] = [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]
        return [each for each in said if each["what"] == what]

    def wait_for(self, what: str, count: int = 1) -> Json:
        """Wait until something was said *count* times; return the last of these."""
        until(lambda: len(self.told(what)) >= count, lambda: self.plane.log_tail(self.name))
        return self.told(what)[count - 1]

    def end(self) -> None:
        if self.name not in self.plane.exits():
            self.plane.kill(self.name)


def until(condition: Callable[[], bool], explain: Callable[[], str]) -> None:
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline, explain()
        time.sleep(0.01)  # noqa: TID251 - between two looks at a condition with a deadline


Start = Callable[..., Replica]


@pytest.fixture
def start(control_plane: ControlPlane, tmp_path: Path) -> Iterator[Start]:
    """Start replicas of one election; they end with the test."""
    script = tmp_path / "replica.py"
    script.write_text(REPLICA)
    lease = f"leader-{time.time_ns()}"
    started: list[Replica] = []

    def one_more(timing: LeaseTiming = TIMING) -> Replica:
        started.append(Replica(control_plane, script, lease, timing))
        return started[-1]

    yield one_more
    for each in started:
        each.end()


def pair(start: Start) -> tuple[Replica, Replica]:
    """A leader, and a candidate that has seen it lead."""
    leader = start()
    leader.wait_for("leads")
    candidate = start()
    assert candidate.wait_for("sees")["holder"] == leader.name
    return leader, candidate


def test_a_killed_leader_is_succeeded(start: Start) -> None:
    leader, candidate = pair(start)
    killed = time.monotonic()
    leader.end()
    led = candidate.wait_for("leads")
    print(f"takeover {led['at'] - killed:.2f} s after SIGKILL (duration {TIMING.duration:g} s)")
    assert led["epoch"] == 2
    assert led["at"] > killed + TIMING.duration - TIMING.renew_deadline


def test_a_stopped_leader_is_succeeded_and_wakes_up_as_none(start: Start, control_plane: ControlPlane) -> None:
    leader, candidate = pair(start)
    with control_plane.paused(leader.name):
        stopped = time.monotonic()
        led = candidate.wait_for("leads")
        print(f"takeover {led['at'] - stopped:.2f} s after SIGSTOP (duration {TIMING.duration:g} s)")
    until(lambda: bool(woken(leader, led)), lambda: control_plane.log_tail(leader.name))
    assert [each["leads"] for each in woken(leader, led)] == [False]
    lost = leader.wait_for("lost")
    assert lost["at"] < led["at"]
    candidate.end()
    again = leader.wait_for("leads", 2)
    assert again["epoch"] == 3


def woken(replica: Replica, led: Json) -> list[Json]:
    """When it has slept past that time; a machine under load lets any process sleep a little."""
    return [each for each in replica.told("woke") if each["at"] > led["at"]][:1]


def test_a_leader_told_to_end_hands_over(start: Start, control_plane: ControlPlane) -> None:
    leader, candidate = pair(start)
    told = time.monotonic()
    os.kill(leader.pid, signal.SIGTERM)
    led = candidate.wait_for("leads")
    lost = leader.wait_for("lost")
    print(f"takeover {led['at'] - told:.2f} s after SIGTERM (retry period {TIMING.retry_period:g} s)")
    assert lost["at"] < led["at"]
    assert led["epoch"] == 2
    until(lambda: control_plane.exits().get(leader.name) == 0, lambda: control_plane.log_tail(leader.name))


def test_an_api_server_that_hangs_ends_leadership_in_time_and_nothing_else(
    start: Start, control_plane: ControlPlane
) -> None:
    leader, candidate = pair(start)
    with control_plane.paused("kube-apiserver"):
        paused = time.monotonic()
        lost = leader.wait_for("lost")
        assert lost["at"] - paused <= TIMING.renew_deadline
    both = (leader, candidate)
    until(
        lambda: sum(len(each.told("leads")) for each in both) > 1,
        lambda: "\n".join(control_plane.log_tail(each.name) for each in both),
    )
    epochs = [each["epoch"] for replica in both for each in replica.told("leads")]
    assert 1 in epochs
    assert len(set(epochs)) == len(epochs)
    assert control_plane.exits().keys().isdisjoint({leader.name, candidate.name})


def role(name: str) -> list[Json]:
    """An account that may do with Leases what election and ledger need, in one namespace, and nothing else."""
    version = "rbac.authorization.k8s.io/v1"
    meta = {"name": name, "namespace": "default"}
    rules = [{"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "create", "update"]}]
    return [
        {"apiVersion": version, "kind": "Role", "metadata": meta, "rules": rules},
        {
            "apiVersion": version,
            "kind": "RoleBinding",
            "metadata": meta,
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": "default"}],
        },
    ]


def test_get_create_and_update_of_leases_suffice(control_plane: ControlPlane) -> None:
    name = f"elector-{time.time_ns()}"

    async def permit(api: Client) -> None:
        await api.create({"kind": "ServiceAccount", "metadata": {"name": name, "namespace": "default"}})
        for plural, body in zip(("roles", "rolebindings"), role(name), strict=True):
            path = f"/apis/rbac.authorization.k8s.io/v1/namespaces/default/{plural}"
            await api.call("POST", path, body=body)

    control_plane.run(permit)
    kubeconfig = control_plane.service_account_kubeconfig("default", name)

    async def work(api: Client) -> None:
        async with await connect(kubeconfig) as connection:
            elector = Elector(connection, namespace="default", name=name, identity="me", timing=TIMING)
            stop = asyncio.Event()
            running = asyncio.create_task(elector.run(stop))
            async with asyncio.timeout(DEADLINE):
                assert await elector.wait_for_leadership() == 1
                lease = await api.call("GET", f"{LEASES}/{name}")
                assert lease["spec"]["holderIdentity"] == "me"
                # Deleted under its holder: not made again by a renewal, but by a new term.
                await api.call("DELETE", f"{LEASES}/{name}")
                await elector.wait_for_loss()
                assert await elector.wait_for_leadership() == 2
                stop.set()
                await running
            lease = await api.call("GET", f"{LEASES}/{name}")
            assert lease["spec"]["holderIdentity"] == ""
            assert lease["spec"]["leaseTransitions"] == 2
            ledger = ClaimLedger(connection, namespace="default", name=f"claims-{name}")
            assert await ledger.take(claim("n1"), one_at_a_time) is None
            await ledger.drop("n1", "op-n1")
            assert await ledger.read() == ()

    control_plane.run(work)


def test_a_replace_never_makes_a_deleted_lease_again(control_plane: ControlPlane) -> None:
    name = f"deleted-{time.time_ns()}"

    async def work(api: Client) -> None:
        async with await connect(control_plane.kubeconfig) as connection:
            store = LeaseStore(connection, "default", name)
            body = {"metadata": {"name": name, "labels": {"team": "x"}}, "spec": {"holderIdentity": "x"}}
            await api.call("POST", LEASES, body={"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", **body})
            lease = await store.get(5)
            assert lease is not None
            await api.call("DELETE", f"{LEASES}/{name}")
            with pytest.raises(Conflict):
                await store.replace(lease, 5)
            assert await store.get(5) is None

    control_plane.run(work)


def claim(node: str) -> Claim:
    return Claim(node=node, op=f"op-{node}", controller="test", holder="me", pool="p", since=1_700_000_000.0)


def one_at_a_time(present: tuple[Claim, ...]) -> Refusal | None:
    return Refusal(Reason.BUDGET_EXHAUSTED, present[0].node) if present else None


def test_of_many_takers_one_gets_the_only_place(control_plane: ControlPlane) -> None:
    name = f"claims-{time.time_ns()}"

    async def work(api: Client) -> None:
        async with await connect(control_plane.kubeconfig) as connection:
            ledgers = [ClaimLedger(connection, namespace="default", name=name) for _ in range(16)]
            for turn in range(3):
                claims = [claim(f"n{turn}-{number}") for number in range(16)]
                takes = [each.take(wanted, one_at_a_time) for each, wanted in zip(ledgers, claims, strict=True)]
                answers = await asyncio.gather(*takes)
                [winner] = [wanted for wanted, refusal in zip(claims, answers, strict=True) if refusal is None]
                assert await ledgers[0].read() == (winner,)
                await asyncio.gather(*[each.drop(winner.node, winner.op) for each in ledgers])
            # All sixteen at once where each may: as many rounds of compare-and-swap as it takes.
            await asyncio.gather(*[each.take(claim(f"m{i}"), lambda _: None) for i, each in enumerate(ledgers)])
            assert len(await ledgers[0].read()) == 16
            broken = {"metadata": {"annotations": {CLAIMS_ANNOTATION: "none"}}}
            await api.patch("Lease", name, broken, "default")
            with pytest.raises(ClaimsUnreadable, match=f"Lease default/{name}"):
                await ledgers[0].take(claim("n"), one_at_a_time)

    control_plane.run(work)
