"""``hpa-scaler run`` under exactly the documented rights: none is missing, and none is granted for nothing."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from floors import Open, Shop
from rights import documented, grant, granted, used

from tightship_e2e import ControlPlane
from tightship_testkit.audit import AuditEvent
from tightship_testkit.faults import Call, Fault
from tightship_testkit.floors import HPA, SHOP, autoscaler, hpa_annotations
from tightship_testkit.replica import LEASES, NAMESPACE, SCALER, configure

WHO = "documented-hpa-scaler"
"""An account that other tests, on the same plane, have given no more rights to."""

TARGETS = {
    "deployment": "apps/v1",
    "statefulset": "apps/v1",
    "replicaset": "apps/v1",
    "rollout": "argoproj.io/v1alpha1",
}


def test_run_needs_every_documented_right_and_no_other(in_shop: Open, control_plane: ControlPlane) -> None:
    async def work(on: Shop) -> None:
        api, roles = on.api, documented("hpa-scaler")
        await api.create({"kind": "ServiceAccount", "metadata": {"name": WHO, "namespace": NAMESPACE}})
        for role in roles:
            await grant(api, role, WHO)
        await api.request("DELETE", f"{LEASES}/hpa-scaler")  # Leases outlive the emptying of a plane
        await configure(api, "hpa-scaler-config", {"coldSourceGuard": False, "dataAgeQuery": ""}, SCALER)
        await on.stock("web", 3, 20, prometheus_query="rate", requests_per_replica=10)
        for kind, version in TARGETS.items():
            made = autoscaler(kind, 3, 20, hpa_annotations(enable_scale_down_ratio_deployment_checking="true"))
            made["spec"]["scaleTargetRef"] = {"apiVersion": version, "kind": _camel(kind), "name": kind}
            await api.create(made)
        edited = False

        async def edit(call: Call) -> Fault | None:
            nonlocal edited
            if edited or call.verb != "PATCH" or not call.path.endswith("/web"):
                return None
            edited = True
            return Fault(before=lambda: api.patch(HPA, "web", {"spec": {"minReplicas": 4}}, SHOP))

        on.proxy.plan = edit
        on.prometheus.set("rate", 72)
        control_plane.audit_events()
        base = await asyncio.to_thread(control_plane.service_account_kubeconfig, NAMESPACE, WHO)
        on.kubeconfig = on.proxy.kubeconfig(on.kubeconfig.with_name("documented"), base=base)
        replica = on.start(CONFIG_MAP_NAME="hpa-scaler-config", LEASE_NAME="hpa-scaler")
        await on.until_bounds("web", 8, 20)
        await on.cycles(replica, 3)
        replica.told_to_end()
        assert await replica.ended() == 0
        events: list[AuditEvent] = []

        async def every_right() -> bool:
            # A watch is in the log when it has ended.
            events.extend(control_plane.audit_events())
            return granted(roles) <= used(events, WHO)

        with suppress(AssertionError):  # what is missing is named below
            await on.until(every_right, "a use of every granted right")
        ours = [each for each in events if each.user.username.endswith(f":{WHO}")]
        assert [f"{each.verb} {each.request_uri}" for each in ours if each.code == 403] == []
        assert granted(roles) - used(ours, WHO) == set(), "granted, and never used"
        assert used(ours, WHO) - granted(roles) == set(), "used, and allowed by something else"

    in_shop(work)


def _camel(kind: str) -> str:
    return {"statefulset": "StatefulSet", "replicaset": "ReplicaSet"}.get(kind, kind.capitalize())
