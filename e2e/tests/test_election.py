"""Election and claims on a real API server: the rights that they need."""

from __future__ import annotations

import asyncio
import time

from tightship.core.reasons import Reason, Refusal
from tightship.drain_io.claims import Claim, ClaimLedger
from tightship.kube.connection import connect
from tightship.kube.election import Elector, LeaseTiming
from tightship_e2e import ControlPlane
from tightship_testkit.client import Client, Json

DEADLINE = 120.0
TIMING = LeaseTiming(duration=12, renew_deadline=9, retry_period=0.5)
"""Long enough that a machine which stands still for some seconds ends no term."""
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"


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


def claim(node: str) -> Claim:
    return Claim(node=node, op=f"op-{node}", controller="test", holder="me", pool="p", since=1_700_000_000.0)


def one_at_a_time(present: tuple[Claim, ...]) -> Refusal | None:
    return Refusal(Reason.BUDGET_EXHAUSTED, present[0].node) if present else None
