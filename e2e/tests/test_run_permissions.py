"""``node-compactor run`` under exactly the documented rights: none is missing, and none is granted for nothing."""

from __future__ import annotations

import os
import re
import sys
import time
from contextlib import suppress
from pathlib import Path

import yaml

from tightship_e2e import Client, ControlPlane
from tightship_e2e.audit import AuditEvent
from tightship_e2e.autoscaler import off_peak
from tightship_e2e.client import Json, wait_for
from tightship_e2e.load import load

PERMISSIONS = Path(__file__).resolve().parents[2] / "docs" / "permissions.md"
ACCOUNT = "documented-node-compactor"
"""None that other tests, on the same plane, have given more rights to."""
DEADLINE = 120.0
RBAC = "rbac.authorization.k8s.io"

CONFIG = """
nodePools:
  "*": {enabled: true, scaleDownCPURequestRatioLimit: 0.75, scaleDownRequiredUnderutilizedNodeCount: 1}
neededMarkedTimeForRemoval: 1
minimumNodeAge: 0
settleTime: 1
coolDownAfterNodeAdded: 0
"""


def documented() -> list[Json]:
    """The roles in docs/permissions.md, in their order: reading, and the two of the compactor."""
    return [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", PERMISSIONS.read_text(), re.DOTALL)]


async def grant(api: Client, role: Json) -> None:
    version, name, kind = f"{RBAC}/v1", f"documented-{role['metadata']['name']}", role["kind"]
    root = f"/apis/{version}" + ("/namespaces/default" if kind == "Role" else "")
    named = {**role, "metadata": {"name": name}}
    binding = {
        "apiVersion": version,
        "kind": f"{kind}Binding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": RBAC, "kind": kind, "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": "default"}],
    }
    for plural, body in ((f"{kind.lower()}s", named), (f"{kind.lower()}bindings", binding)):
        await api.request("DELETE", f"{root}/{plural}/{name}")
        await api.call("POST", f"{root}/{plural}", body=body)


def granted(roles: list[Json]) -> set[tuple[str, str]]:
    """(verb, resource with subresource) of all rules."""
    return {
        (verb, resource)
        for role in roles
        for rule in role["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def test_run_needs_every_documented_right_and_no_other(empty_plane: ControlPlane, tmp_path: Path) -> None:
    plane, roles = empty_plane, documented()

    async def prepare(api: Client) -> None:
        await load(api, off_peak({"general": 5}, low=0.5, high=0.6))
        await api.create({"kind": "ServiceAccount", "metadata": {"name": ACCOUNT, "namespace": "default"}})
        for role in roles:
            await grant(api, role)
        name = "estafette-k8s-node-compactor-config"
        data = {"config.yaml": CONFIG}
        await api.create({"kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}, "data": data})

    plane.run(prepare)
    plane.audit_events()
    kubeconfig = plane.service_account_kubeconfig("default", ACCOUNT)
    environment = {
        **os.environ,
        "KUBECONFIG": str(kubeconfig),
        "POD_NAMESPACE": "default",
        "POD_NAME": "compactor-0",
        "HTTP_HOST": "127.0.0.1",
        "HTTP_PORTS": "0",
        "SLEEP_DURATION_BETWEEN_ITERATIONS_SECONDS": "1",
        "LEASE_DURATION_SECONDS": "6",
        "LEASE_RENEW_DEADLINE_SECONDS": "4",
        "LEASE_RETRY_PERIOD_SECONDS": "1",
    }
    name = f"compactor-{time.monotonic_ns()}"
    command = [str(Path(sys.executable).parent / "node-compactor"), "run"]
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
    events: list[AuditEvent] = []

    async def all_used(_: Client) -> None:
        async def every_right() -> bool:
            # A watch is in the log when it has ended.
            events.extend(plane.audit_events())
            return granted(roles) <= used(events)

        await wait_for(every_right, DEADLINE, "a use of every granted right")

    with suppress(TimeoutError):  # what is missing is named below
        plane.run(all_used)
    ours = [each for each in events if each.user.username.endswith(f":{ACCOUNT}")]
    assert [f"{each.verb} {each.request_uri}" for each in ours if each.code == 403] == []
    assert granted(roles) - used(ours) == set(), "granted, and never used"


def used(events: list[AuditEvent]) -> set[tuple[str, str]]:
    found = set()
    for each in events:
        ref = each.object_ref
        if each.user.username.endswith(f":{ACCOUNT}"):
            resource = f"{ref.resource}/{ref.subresource}" if ref.subresource else ref.resource
            found.add((each.verb, resource))
    return found
