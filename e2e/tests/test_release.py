"""What becomes of a cluster when releases come, change and go: also while a node is being drained."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from pathlib import Path

import pytest
from day import AFTERWARDS, AT_NIGHT, CONTROLLERS, NIGHT, PEAK, RELEASE, SYSTEM, UNGUARDED, Live, ShopCluster, scaled

from tightship.objects import decode
from tightship_e2e import ControlPlane
from tightship_e2e.binaries import find_or_installed
from tightship_e2e.helm import HelmError, run
from tightship_e2e.names import SHOP
from tightship_e2e.providers import Values
from tightship_testkit.audit_readings import claims_made, forbidden, node_writes
from tightship_testkit.client import Client, Json
from tightship_testkit.floors import HPA, hpa_annotations
from tightship_testkit.marks import drain

pytestmark = pytest.mark.takes(20)

ODD = "a\"b'c: {{ .Release.Name }} #\n\\ ü $(NOTHING) - null"
"""No YAML, no template, no shell, and no reference to a variable."""


UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
"""The taint by which the controller-manager says that a node is cordoned."""

LONG = 180
"""Seconds that a pod takes to end where a release comes or goes meanwhile: nobody waits for it in the end."""

PATIENT: Mapping[str, Values] = {
    "node-compactor": {"config": {"podEvictionTimeout": "600s", "nodeDrainTimeout": "600s"}},
    "node-refiner": {"config": {"podEvictionTimeout": "600s", "nodeDrainTimeout": "600s"}},
}
"""Values by which a drain is not given up because of such a pod."""


async def slow(on: ShopCluster, seconds: int) -> None:
    """Have pods of ``batch`` take their time to end, so that a drain is under way for as long."""
    notes = {"e2e.tightship.dev/exit-after": f"{seconds}s"}
    template = {"metadata": {"annotations": notes}, "spec": {"terminationGracePeriodSeconds": 2 * seconds}}
    await on.api.patch("Deployment", "batch", {"spec": {"template": template}}, SHOP)

    async def rolled() -> bool:
        pods = await on.api.list("Pod", SHOP, labelSelector="app=batch")
        return len(pods) == AT_NIGHT["batch"] and all(each["metadata"].get("annotations") for each in pods)

    began = time.time()
    await on.until(rolled, "batch is rolled out")
    await on.until_ready(UNGUARDED)
    # By this `windows.notBefore` knows the end of a rollout.
    found = [decode("ReplicaSet", json.dumps(each).encode()) for each in await on.api.list("ReplicaSet", SHOP)]
    emptied = [each.since for each in found if each.owner.name == "batch" and each.replicas == 0]
    assert len(emptied) == 1
    assert began - 2 < emptied[0] <= time.time()


@asynccontextmanager
async def hastening(on: ShopCluster) -> AsyncIterator[None]:
    """End the pods of ``batch`` that take their time for the body's: what was to be seen meanwhile has been seen."""

    async def hasten() -> None:
        while True:
            for each in await on.api.list("Pod", SHOP, labelSelector="app=batch"):
                if each["metadata"].get("deletionTimestamp"):
                    await on.api.delete("Pod", each["metadata"]["name"], SHOP, grace=0)
            await asyncio.sleep(0.2)

    task = asyncio.create_task(hasten(), name="hasten")
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def under_way(on: ShopCluster) -> str:
    """Wait until a node is being emptied of a pod that takes its time, and return it."""
    found: list[str] = []

    async def emptied() -> bool:
        pods = await on.api.list("Pod", SHOP, labelSelector="app=batch")
        ending = {each["spec"].get("nodeName") for each in pods if each["metadata"].get("deletionTimestamp")}
        found[:] = sorted(ending & {name for name, phase in on.recorder.in_drain().items() if phase == "Evicting"})
        return bool(found)

    await on.until(emptied, "a node is being emptied")
    return found[0]


def pod_of(record: Json) -> str:
    """The pod of the controller that is written down in a drain's *record*."""
    return str(record["holder"]).rpartition("_")[0]


@pytest.mark.takes(25)
def test_an_upgrade_in_the_middle_of_a_drain_goes_on_with_it(on_shop_cluster: Live) -> None:
    async def work(on: ShopCluster) -> None:
        await slow(on, LONG)
        await on.install(**PATIENT)
        node = await under_way(on)
        before = {each.pod for each in await on.provider.controllers(SYSTEM)}
        rolled = {"podAnnotations": {"example.com/rolled": "yes"}}
        await on.install(**{name: {**PATIENT.get(name, {}), **rolled} for name in CONTROLLERS})

        async def replaced() -> bool:
            pods = {each.pod for each in await on.provider.controllers(SYSTEM)}
            return len(pods) == len(CONTROLLERS) and not pods & before

        await on.until(replaced, "all pods are new ones")
        await on.until_led()

        def taken_over() -> bool:
            now = on.recorder.node(node)
            return now is None or pod_of(drain(now)) not in before

        await on.seen(taken_over, f"somebody else drains {node}")
        async with hastening(on):
            await on.seen(lambda: on.recorder.node(node) is None, f"{node} is taken away")
        writes = [each for each in node_writes(await on.audited()) if each.name == node and each.node is not None]
        drains = [each.drain for each in writes if each.drain.get("phase") in ("Claimed", "Evicting", "Drained")]
        assert len({each["op"] for each in drains}) == 1
        holders = set(map(pod_of, drains))
        assert holders & before, f"begun by {before}, held by {holders}"
        assert holders - before, f"nobody else took over from {holders}"
        await on.until_ready(AT_NIGHT)

    on_shop_cluster(work, by_night=True)


DRY: Mapping[str, Values] = {name: {"dryRun": True} for name in PATIENT}
"""Values by which the controllers of nodes are dry runs."""


def patient(**config: object) -> Mapping[str, Values]:
    """Return :data:`PATIENT` with more keys of the controllers' configurations."""
    return {name: {"config": {**values["config"], **config}} for name, values in PATIENT.items()}


async def held(on: ShopCluster) -> list[str]:
    """Return what holds nodes (cordons, taints) and what leads pods: labels of nodes, costs of pods that stay."""
    found = [each for each in await on.left_behind() if ": cordoned" in each or ": taint" in each]
    labelled = await on.api.list("Node", labelSelector="tightship.dev/leaving")
    found += [f"{each['metadata']['name']}: label" for each in labelled]
    for pod in await on.api.list("Pod", SHOP):
        notes = pod["metadata"].get("annotations") or {}
        if not pod["metadata"].get("deletionTimestamp"):
            found += [f"{pod['metadata']['name']}: {key}" for key in notes if key.endswith("deletion-cost")]
    return found


async def given_back(on: ShopCluster, node: str) -> None:
    """See *node* given back before it was drained, and nothing held."""

    async def nothing() -> bool:
        return await held(on) == []

    async def left() -> str:
        return f"held: {await held(on)}"

    await on.until(nothing, f"{node} is given back", left)
    now = on.recorder.node(node)
    assert now is not None
    assert drain(now)["reason"].startswith("Released")


@pytest.mark.takes(80)
def test_going_back_to_a_dry_run_in_the_middle_of_a_drain_gives_the_node_back(on_shop_cluster: Live) -> None:
    """By a rollback, whose revision knows nothing of a drain, by a value, and by a restart that Helm knows nothing of.

    Each comes from another mode: pods are led by hints and costs, deleted past their budgets, evicted.
    """

    async def work(on: ShopCluster) -> None:
        await slow(on, LONG)
        await on.apply(**DRY)
        await on.install(**patient(steering="hints", deletionCost=True, scaleInTimeout="0s"))
        node = await under_way(on)
        leads = await held(on)
        assert any(each.endswith(": label") for each in leads), leads
        assert any(each.endswith("/pod-deletion-cost") for each in leads), leads
        await on.provider.roll_back(RELEASE, SYSTEM, 1)
        # Helm has waited for what gives back.
        assert await held(on) == []
        await given_back(on, node)

        async with hastening(on):
            await on.until_ready(AT_NIGHT)
            await on.install(**patient(evictionMethod="delete"))
        node = await under_way(on)
        await on.apply(**DRY)
        assert await held(on) == []
        await given_back(on, node)

        async with hastening(on):
            await on.until_ready(AT_NIGHT)
            await on.install(**PATIENT)
        node = await under_way(on)
        deployments = [f"deployment/{RELEASE}-{name}" for name in PATIENT]
        await on.provider.command("kubectl", "-n", SYSTEM, "set", "env", *deployments, "DRY_RUN=true")
        await given_back(on, node)

    on_shop_cluster(work, by_night=True)


STOP = "tightship.dev/stop"
BEGINS = ("/eviction", "/horizontalpodautoscalers/")
"""What paths of writes have in them that evict, or change an HPA."""


@pytest.mark.takes(60)
def test_one_annotation_on_the_leases_stops_all_three_within_a_second(on_shop_cluster: Live) -> None:
    """From the moment at which kubectl has its answer; and ``STOP-`` starts them again."""

    async def begun(on: ShopCluster, since: float) -> list[str]:
        events = await on.audited()
        claims = [f"claim of {each.name}" for each in claims_made(events) if each.asked > since]
        writes = [each for each in events if each.verb in ("create", "patch", "update", "delete")]
        ours = [each for each in writes if each.user.username.startswith(f"system:serviceaccount:{SYSTEM}:")]
        late = [each for each in ours if datetime.fromisoformat(each.request_received_timestamp).timestamp() > since]
        return claims + [each.request_uri for each in late if any(part in each.request_uri for part in BEGINS)]

    async def annotated(on: ShopCluster, *words: str) -> float:
        await on.provider.command("kubectl", "-n", SYSTEM, "annotate", "lease", "--all", *words)
        return time.time()

    async def work(on: ShopCluster) -> None:
        await slow(on, LONG)
        await on.install(**PATIENT)
        node = await under_way(on)
        answered = await annotated(on, "--overwrite", f"{STOP}=true")
        await asyncio.sleep(1)
        for each in await on.provider.controllers(SYSTEM):
            assert "tightship_stopped 1.0" in (await each.get("/metrics"))[1], each.name
        floors = await on.floors()
        await given_back(on, node)
        await on.be(PEAK)
        async with hastening(on):
            await on.passes(10)
        assert await begun(on, answered + 1) == []
        assert await on.floors() == floors
        assert await held(on) == []
        for each in await on.provider.controllers(SYSTEM):
            status = (await each.get("/status"))[1]
            assert f"kubectl -n {SYSTEM} annotate lease {RELEASE}-{each.name} {STOP}-" in status, each.name
        events = await on.provider.command("kubectl", "-n", SYSTEM, "get", "events.events.k8s.io", "-o", "json")
        assert events.count('"reason": "Stopped"') == len(CONTROLLERS)
        assert not [each for name in CONTROLLERS for each in forbidden(await on.audited(), user_of(name))]

        started = await annotated(on, f"{STOP}-")

        async def goes_on() -> bool:
            return await on.floors() != floors and bool(await begun(on, started))

        await on.until(goes_on, "they go on")

    on_shop_cluster(work, by_night=True)


GIVES_BACK = "jobs,roles,rolebindings,serviceaccounts"
"""The kinds of what gives nodes back, in the release's namespace."""


@pytest.mark.takes(60)
def test_a_controller_taken_away_in_the_middle_of_a_drain_gives_the_node_back(on_shop_cluster: Live) -> None:
    """By the umbrella's ``enabled``, and by an uninstall."""

    async def work(on: ShopCluster) -> None:
        await slow(on, LONG)
        await on.install(**PATIENT)
        node = await under_way(on)
        await on.apply(**{name: {"enabled": False} for name in PATIENT})
        assert await held(on) == []
        await given_back(on, node)
        assert [each.name for each in await on.provider.controllers(SYSTEM)] == ["hpa-scaler"]
        assert "release" not in await on.provider.command("kubectl", "get", GIVES_BACK, "-n", SYSTEM)

        async with hastening(on):
            await on.until_ready(AT_NIGHT)
            await on.install(**PATIENT)
        node = await under_way(on)
        await on.provider.uninstall(RELEASE, SYSTEM)
        assert await held(on) == []
        await given_back(on, node)
        assert RELEASE not in await on.provider.command("kubectl", "get", GIVES_BACK, "-n", SYSTEM)

    on_shop_cluster(work, by_night=True)


@pytest.mark.takes(50)
def test_what_an_uninstall_without_its_hooks_leaves_is_ended_by_a_release_that_is_switched_off(
    on_shop_cluster: Live,
) -> None:
    """Which is what the notes of the charts say to do first."""

    async def work(on: ShopCluster) -> None:
        await slow(on, LONG)
        kept = {"giveBack": {"enabled": False}}
        said = await on.install(**{name: {**values, **kept} for name, values in PATIENT.items()})
        assert said.count("To free a node that stayed cordoned, install the controller again") == len(PATIENT)
        node = await under_way(on)
        await on.provider.uninstall(RELEASE, SYSTEM)
        left = await on.left_behind()
        assert f"{node}: cordoned" in left
        assert f"{node}: taint tightship.dev/draining" in left
        begun = claims_made(await on.audited())
        async with hastening(on):
            await on.switch_off()
        assert on.recorder.node(node) is None
        assert claims_made(await on.audited()) == begun
        await on.until_ready(AT_NIGHT)
        await on.leave()

    on_shop_cluster(work, by_night=True)


@pytest.mark.parametrize("command", AFTERWARDS, ids=[each[0] for each in AFTERWARDS])
def test_what_is_done_after_an_uninstall_is_what_the_page_about_operations_says(command: tuple[str, ...]) -> None:
    page = (Path(__file__).resolve().parents[2] / "docs/operations.md").read_text()
    assert f"$ {' '.join(command)}\n" in page.partition("## Remove it")[2]


@pytest.mark.parametrize("controller", ["node-compactor", "node-refiner"])
def test_each_chart_does_its_work_alone(on_shop_cluster: Live, controller: str) -> None:
    async def work(on: ShopCluster) -> None:
        await on.install_alone(controller)
        assert {each.name for each in await on.provider.controllers(SYSTEM)} == {controller}
        await on.seen(lambda: bool(on.remover.removed), "a node is taken away")
        assert {each.user for each in claims_made(await on.audited())} == {user_of(controller)}
        await on.until_ready(UNGUARDED)
        await judged_by_its_own_test(on, controller)
        assert forbidden(await on.audited(), user_of(controller)) == []

    on_shop_cluster(work, by_night=True)


def test_the_chart_of_the_hpa_scaler_does_its_work_alone(on_shop_cluster: Live) -> None:
    """In all namespaces, with odd values; then in one, without a right elsewhere."""

    async def work(on: ShopCluster) -> None:
        odd = {"podAnnotations": {"example.com/odd": ODD}, "commonAnnotations": {"example.com/common": ODD}}
        # Values of `env` are templates: what looks like one has to be quoted as one.
        quoted = ODD.replace("{{ .Release.Name }}", '{{ "{{" }} .Release.Name }}')
        await on.install_alone("hpa-scaler", env=[{"name": "ODD", "value": quoted}], **odd)
        [scaler] = await on.provider.controllers(SYSTEM)
        assert scaler.name == "hpa-scaler"
        assert f"ODD={ODD}" in await scaler.environment()
        pods = await on.api.list("Pod", SYSTEM)
        assert [each["metadata"]["annotations"]["example.com/odd"] for each in pods] == [ODD]
        assert [each["metadata"]["annotations"]["example.com/common"] for each in pods] == [ODD]
        await _floors(on, {"web": 6, "cache": 3, "api": 3})
        await on.until_ready(AT_NIGHT)
        await judged_by_its_own_test(on, "hpa-scaler")
        await on.provider.uninstall(RELEASE, SYSTEM)

        elsewhere = scaled("stranger", 1, 9, hpa_annotations(minimum_replicas=3))
        elsewhere["metadata"]["namespace"] = "default"
        await on.api.create(elsewhere)
        await on.be({**NIGHT, "load_web": 70})
        await on.install_alone("hpa-scaler", config={"namespaces": [SHOP]})
        kinds = {each["kind"] for each in await on.provider.manifest(RELEASE, SYSTEM)}
        assert not kinds & {"ClusterRole", "ClusterRoleBinding"}
        await _floors(on, {"web": 7, "cache": 3, "api": 3})
        await on.passes()
        assert (await on.api.get(HPA, "stranger", "default"))["spec"]["minReplicas"] == 1
        assert forbidden(await on.audited(), user_of("hpa-scaler")) == []

    on_shop_cluster(work, by_night=True)


def user_of(controller: str) -> str:
    """The account of a controller in a release of its chart alone."""
    return f"system:serviceaccount:{SYSTEM}:{RELEASE}-{controller}"


async def judged_by_its_own_test(on: ShopCluster, controller: str) -> None:
    """The chart's own test says yes, and no once its ConfigMap is spoilt, or its controller is gone."""

    async def well() -> bool:
        with suppress(HelmError):
            said = await on.provider.tested(RELEASE, SYSTEM)
            return "is ready, its configuration is valid, and its passes succeed" in said
        return False

    await on.until(well, "the chart's own test says that all is well")
    [config] = [each for each in await on.provider.manifest(RELEASE, SYSTEM) if each["kind"] == "ConfigMap"]
    key, name = next(iter(config["data"])), config["metadata"]["name"]
    await on.api.patch("ConfigMap", name, {"data": {key: "nonsense: 7"}}, SYSTEM)

    async def noticed() -> bool:
        [one] = await on.provider.controllers(SYSTEM)
        return "tightship_config_valid 0.0" in (await one.get("/metrics"))[1]

    await on.until(noticed, "the bad edit is noticed")
    with pytest.raises(HelmError, match="the configuration is invalid"):
        await on.provider.tested(RELEASE, SYSTEM)
    await on.api.patch("Deployment", f"{RELEASE}-{controller}", {"spec": {"replicas": 0}}, SYSTEM)

    async def gone() -> bool:
        return not await on.provider.controllers(SYSTEM)

    await on.until(gone, "its pod is gone")
    with pytest.raises(HelmError, match="/readyz says 0"):
        await on.provider.tested(RELEASE, SYSTEM)


async def _floors(on: ShopCluster, wanted: dict[str, int]) -> None:
    async def there() -> bool:
        found = await on.floors()
        return {name: found[name] for name in wanted} == wanted

    await on.until(there, f"the floors {wanted}", on.pods_told)


@pytest.mark.takes(3)
def test_the_page_about_operations_gives_stranded_nodes_back_without_another_installation(
    empty_plane: ControlPlane,
) -> None:
    page = (Path(__file__).resolve().parents[2] / "docs/operations.md").read_text()
    script = (
        page.partition("To get nodes back without another installation")[2].partition("```sh\n")[2].partition("```")[0]
    )
    ours = {"key": "tightship.dev/draining", "value": "op", "effect": "NoSchedule"}
    soft = {"key": "tightship.dev/candidate", "value": "node-compactor", "effect": "PreferNoSchedule"}
    other = {"key": "example.com/other", "effect": "NoSchedule"}
    nodes: Mapping[str, Json] = {
        "stranded": {"unschedulable": True, "taints": [other, ours, soft]},
        "soft": {"taints": [soft]},
        "persons": {"unschedulable": True},
        "free": {},
    }

    async def work(api: Client) -> dict[str, tuple[bool, set[str], bool]]:
        for name, spec in nodes.items():
            notes = {"tightship.dev/drain": "{}"} if name == "stranded" else {}
            await api.create({"kind": "Node", "metadata": {"name": name, "annotations": notes}, "spec": spec})
        folder = find_or_installed("kubectl").parent
        path = f"{folder}:/usr/bin:/bin"
        await asyncio.to_thread(
            run, ["bash", "-eu", "-c", script], b"", {"KUBECONFIG": str(empty_plane.kubeconfig), "PATH": path}
        )
        found = {each["metadata"]["name"]: each for each in await api.list("Node")}
        return {
            name: (
                bool(found[name]["spec"].get("unschedulable")),
                {each["key"] for each in found[name]["spec"].get("taints") or []} - {UNSCHEDULABLE},
                "tightship.dev/drain" in (found[name]["metadata"].get("annotations") or {}),
            )
            for name in nodes
        }

    assert empty_plane.run(work) == {
        "stranded": (False, {"example.com/other"}, False),
        "soft": (False, set(), False),
        "persons": (True, set(), False),
        "free": (False, set(), False),
    }
