"""``node-compactor run`` as a process on a real control plane: what it does to a cluster, and how it ends."""

from __future__ import annotations

import json
import time

from drains import Run, Site

from tightship_e2e import ControlPlane
from tightship_testkit.client import wait_for
from tightship_testkit.drains import all_ready, removing
from tightship_testkit.invariants import evictions_by, forbidden
from tightship_testkit.off_peak import off_peak
from tightship_testkit.replica import QUICK, USER


def test_off_peak_nodes_disappear_and_every_pod_is_ready_again(on_site: Run, control_plane: ControlPlane) -> None:
    async def work(on: Site) -> None:
        control_plane.audit_events()
        before = len(await on.api.list("Node"))
        began = time.monotonic()
        replica = on.start()
        async with removing(on.api) as remover:
            await replica.ready()

            def done() -> bool:
                return len(remover.removed) >= 3

            await on.seen(done, "three nodes are removed", 240)
        await all_ready(on.api)
        replica.told_to_end()
        assert await replica.ended() == 0
        events = control_plane.audit_events()
        assert forbidden(events, USER) == []
        evicted = evictions_by(events, USER)
        assert set(evicted.values()) == {1}
        seen = on.recorder
        print(
            f"\n{len(remover.removed)} of {before} nodes removed in {time.monotonic() - began:.0f} s, "
            f"{len(evicted)} evictions, longest Pending {seen.longest_pending:.1f} s, "
            f"most in drain {seen.most_in_drain}, least spare of budgets {min(seen.least_spare.values())}"
        )

    on_site(work, off_peak({"general": 6, "memory": 4}), settings=QUICK)


def test_everything_is_served(on_site: Run) -> None:
    async def work(on: Site) -> None:
        replica = on.start()
        await replica.ready()
        await on.phase("n1", "Drained")
        for path, part in (
            ("/healthz", ""),
            ("/liveness", ""),
            ("/readyz", ""),
            ("/readiness", ""),
            ("/metrics", "estafette_node_compactor_total_node_count"),
            ("/metrics", "tightship_"),
            ("/status", '"CompactorStatus"'),
            ("/", "<html"),
        ):
            status, text = await replica.get(path)
            assert status == 200, (path, status, text)
            assert part in text.lower() or part in text, path

        async def shown() -> bool:
            return "n1" in json.dumps((await replica.status()).get("inDrain"))

        await wait_for(shown, 30, "the drain is shown")

    on_site(work)
