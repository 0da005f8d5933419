"""``node-compactor run`` under exactly the documented rights: none is missing, and none is granted for nothing."""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from rights import documented, grant, granted, used

from tightship_e2e import ControlPlane
from tightship_e2e.load import load
from tightship_testkit.audit import AuditEvent
from tightship_testkit.client import Client, wait_for
from tightship_testkit.off_peak import off_peak
from tightship_testkit.replica import COMPACTOR, LEASES, QUICK, QUICK_REFINER, REFINER, Program, Settings, configure

DEADLINE = 120.0

CASES: list[tuple[Program, str, Settings]] = [
    (COMPACTOR, "estafette-k8s-node-compactor-config", {**QUICK, "neededMarkedTimeForRemoval": 1}),
    (REFINER, "node-refiner-cm", QUICK_REFINER),
]
"""Each controller, the ConfigMap that it reads by default, and settings with which it soon drains a node."""


CLAIMS = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/tightship-claims"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
BUFFERS = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "capacitybuffers.autoscaling.x-k8s.io"},
    "spec": {
        "group": "autoscaling.x-k8s.io",
        "names": {"kind": "CapacityBuffer", "plural": "capacitybuffers", "singular": "capacitybuffer"},
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1alpha1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}
"""CapacityBuffers, which a control plane does not serve by itself; the older version."""


def account(program: Program) -> str:
    """None that other tests, on the same plane, have given more rights to."""
    return f"documented-{program.name}"


@pytest.mark.parametrize(("program", "config_map", "settings"), CASES, ids=[case[0].name for case in CASES])
def test_run_needs_every_documented_right_and_no_other(
    empty_plane: ControlPlane, program: Program, config_map: str, settings: Settings
) -> None:
    plane, who = empty_plane, account(program)
    roles = documented("tightship-reader", "tightship-drainer", program.name, "tightship-claims")

    async def prepare(api: Client) -> None:
        async def served() -> bool:
            status, _ = await api.request("GET", "/apis/autoscaling.x-k8s.io/v1alpha1/capacitybuffers")
            return status == 200

        await api.request("POST", DEFINITIONS, body=BUFFERS)
        await wait_for(served, DEADLINE, "buffers are served")
        await load(api, off_peak({"general": 5}, low=0.5, high=0.6))
        await api.create({"kind": "ServiceAccount", "metadata": {"name": who, "namespace": "default"}})
        for role in roles:
            await grant(api, role, who)
        # Leases outlive the emptying of a plane.
        await api.request("DELETE", f"{LEASES}/{program.name}")
        await api.request("DELETE", CLAIMS)
        await configure(api, config_map, settings, program)

    plane.run(prepare)
    plane.audit_events()
    kubeconfig = plane.service_account_kubeconfig("default", who)
    environment = {
        **os.environ,
        "KUBECONFIG": str(kubeconfig),
        "POD_NAMESPACE": "default",
        "POD_NAME": f"{program.name}-0",
        "HTTP_HOST": "127.0.0.1",
        "HTTP_PORTS": "0",
        program.interval: "1",
        "LEASE_DURATION_SECONDS": "6",
        "LEASE_RENEW_DEADLINE_SECONDS": "4",
        "LEASE_RETRY_PERIOD_SECONDS": "1",
    }
    name = f"{program.name}-{time.monotonic_ns()}"
    command = [str(Path(sys.executable).parent / program.name), "run"]
    plane.spawn(name, command, env=environment)

    async def drained(api: Client) -> None:
        async def one() -> bool:
            nodes = await api.list("Node")
            notes = [node["metadata"].get("annotations", {}).get("tightship.dev/drain", "") for node in nodes]
            return any('"phase":"Drained"' in note for note in notes)

        await wait_for(one, DEADLINE, "a drained node")

    try:
        plane.run(drained)
    finally:
        plane.kill(name)
        plane.run(lambda api: api.request("DELETE", f"{DEFINITIONS}/capacitybuffers.autoscaling.x-k8s.io"))
    events: list[AuditEvent] = []

    async def all_used(_: Client) -> None:
        async def every_right() -> bool:
            # A watch is in the log when it has ended.
            events.extend(plane.audit_events())
            return granted(roles) <= used(events, who)

        await wait_for(every_right, DEADLINE, "a use of every granted right")

    with suppress(TimeoutError):  # what is missing is named below
        plane.run(all_used)
    ours = [each for each in events if each.user.username.endswith(f":{who}")]
    assert [f"{each.verb} {each.request_uri}" for each in ours if each.code == 403] == []
    assert granted(roles) - used(ours, who) == set(), "granted, and never used"
