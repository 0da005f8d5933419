"""A whole day of a cluster under the umbrella chart: peak, night, outages, morning, and the end of the release."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest
from day import AT_NIGHT, AT_PEAK, CONTROLLERS, NIGHT, PEAK, RELEASE, SYSTEM, Live, ShopCluster, scaled
from rights import granted, used

from tightship.kube.reflector import Timing
from tightship_e2e.names import SHOP
from tightship_e2e.providers import ImpossibleError
from tightship_testkit.audit_readings import claims_made, forbidden, held_back, most_in_drain, quarrels
from tightship_testkit.client import Json
from tightship_testkit.faults import Call, Fault
from tightship_testkit.floors import HPA, hpa_annotations

OF_CUSTOM_RESOURCES = {
    ("watch", "capacitybuffers"),
    ("list", "podtemplates"),
    ("watch", "podtemplates"),
    ("watch", "nodepools"),
    ("watch", "leaderworkersets"),
    ("watch", "verticalpodautoscalers"),
}
"""Rights that are used only where somebody has defined these kinds."""
BEHIND_GATES = {("watch", "podgroups")}
"""Rights that are used only where a feature gate is on that is off by default."""
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def definition(group: str, version: str, kind: str, scope: str) -> Json:
    """Return the definition of a kind that a control plane does not serve by itself."""
    plural = f"{kind.lower()}s"
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        # Groups of k8s.io ask for it.
        "metadata": {"name": f"{plural}.{group}", "annotations": {"api-approved.kubernetes.io": "unapproved, a test"}},
        "spec": {
            "group": group,
            "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
            "scope": scope,
            "versions": [{"name": version, "served": True, "storage": True, "schema": schema}],
        },
    }


CUSTOM_RESOURCES = [
    definition("autoscaling.x-k8s.io", "v1alpha1", "CapacityBuffer", "Namespaced"),  # the older version
    definition("karpenter.sh", "v1", "NodePool", "Cluster"),
    definition("leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet", "Namespaced"),
    definition("autoscaling.k8s.io", "v1", "VerticalPodAutoscaler", "Namespaced"),
]
AFTER_CONFLICTS = {("get", "horizontalpodautoscalers")}
"""Rights of the hpa-scaler that are used when somebody writes an HPA just before it does."""
ACCOUNTS = {f"system:serviceaccount:{SYSTEM}:{RELEASE}-{name}": name for name in CONTROLLERS}


@pytest.mark.takes(100)
def test_a_day(on_shop_cluster: Live) -> None:
    async def work(on: ShopCluster) -> None:
        await on.audited()  # where there is no log, that is known before the day
        await every_kind_of_target(on)
        if somebody_edits(on):
            async with custom_resources_served(on):
                await day(on, spared=BEHIND_GATES, patience=20)
        else:  # nor does an outage cut connections there: a watch ends, and is logged, when the server ends it
            await day(
                on,
                spared=AFTER_CONFLICTS | OF_CUSTOM_RESOURCES | BEHIND_GATES,
                patience=2 * Timing().server_timeout + 20,
            )

    on_shop_cluster(work)


async def day(on: ShopCluster, *, spared: set[tuple[str, str]], patience: float) -> None:
    await on.install()
    made = await on.provider.manifest(RELEASE, SYSTEM)
    roles = [each for each in made if each["kind"].endswith("Role")]
    held = {each["metadata"]["name"] for each in made if each["kind"] == "ValidatingAdmissionPolicyBinding"}
    assert {each.rpartition(".")[2] for each in held} == {"autoscalers", "events", "evictions", "leases", "nodes"}
    await peak(on)
    await evening(on)
    await night(on)
    await metrics_outage(on)
    await api_outage(on)
    await morning(on)
    await on.switch_off()
    await least_privilege(on, roles, spared=spared, patience=patience)
    await the_end(on)


@asynccontextmanager
async def custom_resources_served(on: ShopCluster) -> AsyncIterator[None]:
    """Have :data:`CUSTOM_RESOURCES` served for the body's time, of which there are none."""

    async def served() -> bool:
        named = ((each["spec"]["group"], each["spec"]["versions"][0]["name"], each) for each in CUSTOM_RESOURCES)
        paths = [f"{group}/{version}/{each['spec']['names']['plural']}" for group, version, each in named]
        return all([(await on.api.request("GET", f"/apis/{path}"))[0] == 200 for path in paths])

    for each in CUSTOM_RESOURCES:
        await on.api.request("POST", DEFINITIONS, body=each)
    try:
        await on.until(served, "custom resources are served")
        yield
    finally:
        for each in CUSTOM_RESOURCES:
            await on.api.request("DELETE", f"{DEFINITIONS}/{each['metadata']['name']}")


async def every_kind_of_target(on: ShopCluster) -> None:
    """HPAs of targets that are not there: the hpa-scaler asks for each."""
    notes = hpa_annotations(minimum_replicas=2, enable_scale_down_ratio_deployment_checking="true")
    for kind in ("Deployment", "StatefulSet", "ReplicaSet", "Rollout"):
        await on.api.create(scaled(f"of-a-{kind.lower()}", 2, 4, notes, kind))


def somebody_edits(on: ShopCluster) -> bool:
    """Have somebody write the HPA of ``web`` just before the hpa-scaler's first write of it, where that can be done."""
    edited = False

    async def edit(call: Call) -> Fault | None:
        nonlocal edited
        if edited or call.verb != "PATCH" or not call.path.endswith(f"/{SHOP}/horizontalpodautoscalers/web"):
            return None
        edited = True
        return Fault(before=lambda: on.api.patch(HPA, "web", {"spec": {"maxReplicas": 25}}, SHOP))

    try:
        on.provider.disturb(edit)
    except ImpossibleError:
        return False
    return True


async def floors(on: ShopCluster, **wanted: int) -> None:
    """Wait until floors are these."""

    async def there() -> bool:
        found = await on.floors()
        return {name: found[name] for name in wanted} == wanted

    await on.until(there, f"the floors {wanted}", on.pods_told)


async def reported(on: ShopCluster, name: str, reason: str) -> None:
    """Wait until the hpa-scaler tells a reason of an HPA."""

    async def there() -> bool:
        return reason in await on.reasons(name)

    await on.until(there, f"{name}: {reason}")


async def peak(on: ShopCluster) -> None:
    await floors(on, web=18, cache=9)
    await on.passes()
    await on.until_ready(AT_PEAK)
    assert on.remover.removed == []


async def evening(on: ShopCluster) -> None:
    """The HPAs themselves want 2 and 1: what stays is their floors."""
    async with on.watch_lows():
        await on.be(NIGHT)
        await floors(on, web=6, cache=3, api=3)
        await on.until_ready(AT_NIGHT)
        await on.passes()
    assert on.lowest == AT_NIGHT


async def night(on: ShopCluster) -> None:
    """Compactor and refiner empty nodes one at a time, until no more can go; each node is taken away."""

    async def both() -> bool:
        return {each.user for each in claims_made(await on.audited())} >= {user for user in ACCOUNTS if "node" in user}

    async def packed() -> bool:
        return len(await on.nodes("general")) <= 3 and len(await on.nodes("memory")) <= 2

    await on.until(both, "both controllers of nodes have drained", deadline=240)
    await on.until(packed, "three nodes and two are enough", deadline=240)
    await on.at_rest()
    await on.until_ready(AT_NIGHT)
    assert len(await on.nodes("system")) == 1


async def metrics_outage(on: ShopCluster) -> None:
    """Prometheus is gone, and so is what the HPAs see: no floor comes down, and so no pod goes."""
    async with on.watch_lows(), on.metrics.outage():
        await on.be({name: 0 for name in NIGHT if name.startswith("traffic_")})
        # That nobody answers is told for a cycle or two, which may be over before somebody looks; this lasts.
        await reported(on, "web", "CircuitOpen")
        await on.passes()
        await floors(on, web=6, cache=3, api=3)
    assert on.lowest == AT_NIGHT
    await on.be(NIGHT)
    await reported(on, "web", "FollowsQuery")


async def api_outage(on: ShopCluster) -> None:
    """Nobody leads while the API server is away, nobody ends, and all go on by themselves."""
    async with on.provider.outage():

        async def nobody() -> bool:
            return await on.leading() == []

        await on.until(nobody, "nobody leads")
        healthy = [(each.name, (await each.get("/healthz"))[0]) for each in await on.provider.controllers(SYSTEM)]
        assert sorted(healthy) == [(name, 200) for name in CONTROLLERS]
    await on.until_led()
    await on.until_ready(AT_NIGHT)
    assert await on.provider.ended() == {}


async def morning(on: ShopCluster) -> None:
    """Floors rise before the HPAs do; pods wait for nodes, nodes come, and all pods are Ready."""
    before = len(await on.nodes("general"))
    await on.be(PEAK)
    await floors(on, web=18, cache=9)
    await on.until_ready(AT_PEAK)
    assert on.grower.added
    assert len(await on.nodes("general")) > before
    await on.at_rest(5)
    await on.until_ready(AT_PEAK)


async def least_privilege(on: ShopCluster, roles: list[Json], spared: set[tuple[str, str]], patience: float) -> None:
    """Nothing was refused, and no right is granted that was not used in the whole day, those *spared* aside.

    *patience* is the seconds until the last use is in the log.
    """
    of = {
        name: [each for each in roles if each["metadata"]["name"].endswith(f"{RELEASE}-{name}")] for name in CONTROLLERS
    }

    async def every_right() -> bool:
        # A watch is in the log when it has ended.
        events = await on.audited()
        return all(granted(of[name]) - spared <= used(events, f"{RELEASE}-{name}") for name in CONTROLLERS)

    with suppress(AssertionError):  # what is missing is named below
        await on.until(every_right, "a use of every granted right", deadline=patience)
    events = await on.audited()
    assert [forbidden(events, user) for user in ACCOUNTS] == [[], [], []]
    assert [held_back(events, user) for user in ACCOUNTS] == [[], [], []]
    unused = {name: granted(of[name]) - spared - used(events, f"{RELEASE}-{name}") for name in CONTROLLERS}
    assert unused == {name: set() for name in CONTROLLERS}
    elsewhere = {name: used(events, f"{RELEASE}-{name}") - granted(of[name]) for name in CONTROLLERS}
    assert elsewhere == {name: set() for name in CONTROLLERS}, "used, and allowed by something else"
    assert most_in_drain(events) == 1
    assert quarrels(events, {user: name for user, name in ACCOUNTS.items() if "node" in name}) == []


async def the_end(on: ShopCluster) -> None:
    """An uninstall takes the rights away while the controllers end: they change nothing then but their Leases."""
    before = len(await on.audited())
    await on.leave()
    refused = [each for each in (await on.audited())[before:] if each.user.username in ACCOUNTS and each.code == 403]
    # What a query came to just then may be told, in an Event.
    changes = [each.object_ref.resource for each in refused if each.verb not in ("get", "list", "watch")]
    assert set(changes) <= {"leases", "events"}
    assert await on.provider.ended() == {}
