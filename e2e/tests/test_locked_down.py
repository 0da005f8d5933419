"""A release in a namespace with policies, quotas and a deny of all traffic: nothing of it may be left on a node."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from day import AT_NIGHT, CONTROLLERS, RELEASE, SYSTEM, Live, ShopCluster, settings
from test_release import LONG, PATIENT, held, slow, under_way

from tightship_charts.matrix import merge
from tightship_e2e import ControlPlane
from tightship_e2e.binaries import find_or_installed
from tightship_e2e.helm import SPARING, Helm, HelmError, objects, run
from tightship_e2e.providers import Values
from tightship_e2e.renderings import HOOK
from tightship_testkit.client import Client, Json

VAP = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
BINDING = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
QUOTA = f"/api/v1/namespaces/{SYSTEM}/resourcequotas"
TRAFFIC = f"/apis/networking.k8s.io/v1/namespaces/{SYSTEM}/networkpolicies"

LABELLED = "has(object.metadata.labels) && 'team' in object.metadata.labels"
"""What Kyverno's policy ``require-labels`` asks of a pod."""

ALLOWED: Values = {
    "commonLabels": {"team": "platform"},
    "resources": {"limits": {"cpu": "1"}},
    "networkPolicy": {"enabled": True},
}
"""Values of `global` by which the controllers' own pods get into the namespace."""


def policy(expression: str) -> Json:
    """A policy about the pods of the release's namespace."""
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    where = {"matchLabels": {"kubernetes.io/metadata.name": SYSTEM}}
    spec = {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [rule], "namespaceSelector": where},
        "validations": [{"expression": expression, "message": "refused by a test"}],
    }
    return {"metadata": {"name": "locked-down"}, "spec": spec}


@asynccontextmanager
async def policed(on: ShopCluster, expression: str) -> AsyncIterator[None]:
    """Have the API server refuse pods of the release's namespace unless *expression* holds, for the body's time."""
    await on.api.request("POST", "/api/v1/namespaces", body={"metadata": {"name": SYSTEM}})
    await on.api.call("POST", VAP, body=policy(expression))
    binding = {"policyName": "locked-down", "validationActions": ["Deny"]}
    await on.api.call("POST", BINDING, body={"metadata": {"name": "locked-down"}, "spec": binding})
    probe = {"metadata": {"name": "probe", "labels": {"app.kubernetes.io/name": "node-compactor-release"}}}
    probe["spec"] = {"containers": [{"name": "none", "image": "none"}]}  # type: ignore[dict-item]
    path = f"/api/v1/namespaces/{SYSTEM}/pods"

    async def obeyed() -> bool:
        status, _ = await on.api.request("POST", path, body=probe, params={"dryRun": "All"})
        return status == 422

    await on.until(obeyed, "the policy is in force")
    try:
        yield
    finally:
        for each in (BINDING, VAP):
            await on.api.request("DELETE", f"{each}/locked-down")


@asynccontextmanager
async def locked_down(on: ShopCluster) -> AsyncIterator[None]:
    """A namespace with Pod Security *restricted*, a quota of limits, no traffic, and a label that pods need."""
    async with policed(on, LABELLED):
        secure = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn")}
        await on.api.patch("Namespace", SYSTEM, {"metadata": {"labels": secure}})
        hard = {"limits.cpu": "20", "limits.memory": "20Gi", "requests.cpu": "20", "requests.memory": "20Gi"}
        await on.api.call("POST", QUOTA, body={"metadata": {"name": "locked-down"}, "spec": {"hard": hard}})
        deny = {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
        await on.api.call("POST", TRAFFIC, body={"metadata": {"name": "locked-down"}, "spec": deny})
        try:
            yield
        finally:
            for each in (QUOTA, TRAFFIC):
                await on.api.request("DELETE", f"{each}/locked-down")
            await on.api.patch("Namespace", SYSTEM, {"metadata": {"labels": dict.fromkeys(secure)}})


async def install(on: ShopCluster, everywhere: Values, **more: Values) -> None:
    """Install or upgrade the umbrella with values of `global`, and *more* by controller."""
    given = {name: merge(settings(name, on.metrics.url), dict(more.get(name, {}))) for name in CONTROLLERS}
    await on.provider.install(RELEASE, on.charts / "tightship", SYSTEM, {**given, "global": everywhere})


async def hooks(on: ShopCluster) -> Sequence[Json]:
    """Return the hooks of the release's current revision."""
    return objects(await asyncio.to_thread(as_administrator(on), "get", "hooks", RELEASE, "--namespace", SYSTEM))


def as_administrator(on: ShopCluster) -> Helm:
    return Helm(find_or_installed("helm"), on.provider.kubeconfig.parent / "helm", on.provider.kubeconfig)  # type: ignore[attr-defined]


def lets_out(items: Sequence[Json], labels: Mapping[str, str]) -> bool:
    """Whether a NetworkPolicy of *items* is about pods with *labels*, and lets them out."""
    found = [each["spec"] for each in items if each["kind"] == "NetworkPolicy"]
    return any(each["podSelector"]["matchLabels"].items() <= labels.items() and each["egress"] for each in found)


@pytest.mark.takes(60)
def test_an_uninstall_of_a_locked_down_namespace_leaves_nothing_cordoned(on_shop_cluster: Live) -> None:
    async def work(on: ShopCluster) -> None:
        await slow(on, LONG)
        async with locked_down(on):
            await install(on, ALLOWED, **PATIENT)
            await on.until_led()
            made = await hooks(on)
            pods = [each["spec"]["template"] for each in made if each["kind"] == "Job"]
            pods += [each for each in made if each["kind"] == "Pod"]
            assert len(pods) == len(PATIENT) + len(CONTROLLERS)
            # No CNI enforces policies here: whom they let out is read.
            assert [each for each in pods if not lets_out(made, each["metadata"]["labels"])] == []
            for each in made:
                if each["kind"] == "Pod":
                    each["metadata"].pop("namespace")
                    await on.api.call("POST", f"/api/v1/namespaces/{SYSTEM}/pods", body=each, params={"dryRun": "All"})
            await under_way(on)
            await on.provider.uninstall(RELEASE, SYSTEM)
            assert await held(on) == []

    on_shop_cluster(work, by_night=True)


@pytest.mark.takes(20)
def test_a_dry_run_that_stays_one_is_upgraded_without_a_job(
    empty_plane: ControlPlane, charts: Path, tmp_path: Path
) -> None:
    """So no policy about pods can fail its upgrade. What was live before runs the Job, and runs it again if it failed.

    Nothing runs a pod here: an upgrade that waited for a Job would fail.
    """
    command = Helm(find_or_installed("helm"), tmp_path, empty_plane.kubeconfig)
    where = ("--namespace", "default")
    release: tuple[str | Path, ...] = ("upgrade", "--install", "rel", charts / "tightship", *where, SPARING)

    def events(*flags: str, **values: Values) -> dict[str, str]:
        """Upgrade, and return when the Jobs of the new revision run, by controller."""
        # Without any value an upgrade would keep those that it finds.
        command(*release, *flags, values={"hpa-scaler": {}, "x-any": True, **values})
        made = objects(command("get", "hooks", "rel", *where))
        jobs = [each["metadata"] for each in made if each["kind"] == "Job"]
        return {each["labels"]["app.kubernetes.io/component"]: each["annotations"][HOOK] for each in jobs}

    live: Values = {"dryRun": False}
    rolled, both = "post-rollback", "post-upgrade,post-rollback"
    events()
    assert events("--timeout", "5s", **{"global": {"podLabels": {"a": "b"}}}) == dict.fromkeys(PATIENT, rolled)
    assert events("--no-hooks", **{"node-refiner": live}) == {"node-compactor": rolled, "node-refiner": "post-delete"}
    assert events("--no-hooks") == {"node-compactor": rolled, "node-refiner": both}
    assert events("--no-hooks", **{"node-refiner": {"enabled": False}}) == {"node-compactor": rolled}
    assert events("--no-hooks", **{"node-refiner": live})
    assert events("--no-hooks", **{"node-refiner": {"enabled": False}})["node-refiner"] == both

    async def failed(api: Client) -> None:
        pod = {"restartPolicy": "Never", "containers": [{"name": "release", "image": "none"}]}
        meta = {"name": "rel-node-compactor-release", "namespace": "default"}
        await api.create({"kind": "Job", "metadata": meta, "spec": {"template": {"spec": pod}}})

    empty_plane.run(failed)
    assert events("--no-hooks")["node-compactor"] == both
    command("uninstall", "rel", *where, "--no-hooks")


@pytest.mark.takes(60)
def test_a_job_that_cannot_start_keeps_no_other_from_giving_nodes_back(on_shop_cluster: Live) -> None:
    async def work(on: ShopCluster) -> None:
        await slow(on, LONG)
        off: Values = {"config": {"nodePools": {"general": {"enabled": False}}}}
        await on.install(**{"node-compactor": off, "node-refiner": PATIENT["node-refiner"]})
        await under_way(on)
        refused = "object.metadata.labels[?'app.kubernetes.io/name'].orValue('') != 'node-compactor-release'"
        async with policed(on, refused):
            command = ("uninstall", RELEASE, "--namespace", SYSTEM, "--timeout", "60s")
            with pytest.raises(HelmError, match="node-compactor-release"):
                await asyncio.to_thread(as_administrator(on), *command)
            assert await held(on) == []
        await on.provider.command("kubectl", "delete", "jobs", "--all", "-n", SYSTEM)
        await on.until_ready(AT_NIGHT)

    on_shop_cluster(work, by_night=True)


@pytest.mark.takes(3)
def test_the_job_says_what_to_type_in_its_place(empty_plane: ControlPlane, helm: Helm, charts: Path) -> None:
    text = helm.template(charts / "node-compactor", {"dryRun": False})
    [job] = [each for each in text if each["kind"] == "Job"]
    said = job["metadata"]["annotations"]["tightship.dev/if-this-job-fails"]
    command = said.partition("this frees them: ")[2]
    page = Path(__file__).resolve().parents[2] / "docs" / "operations.md"
    assert command in page.read_text()
    ours = {"key": "tightship.dev/draining", "value": "op", "effect": "NoSchedule"}
    other = {"key": "example.com/other", "effect": "NoSchedule"}
    nodes: Mapping[str, Json] = {
        "stranded": {"unschedulable": True, "taints": [other, ours]},
        "too": {"unschedulable": True, "taints": [ours]},
        "persons": {"unschedulable": True},
    }

    async def work(api: Client) -> dict[str, tuple[bool, set[str]]]:
        for name, spec in nodes.items():
            await api.create({"kind": "Node", "metadata": {"name": name}, "spec": spec})
        path = f"{find_or_installed('kubectl').parent}:/usr/bin:/bin"
        environment = {"KUBECONFIG": str(empty_plane.kubeconfig), "PATH": path}
        await asyncio.to_thread(run, ["bash", "-eu", "-o", "pipefail", "-c", command], b"", environment)
        return {
            each["metadata"]["name"]: (
                bool(each["spec"].get("unschedulable")),
                {taint["key"] for taint in each["spec"].get("taints") or [] if "unschedulable" not in taint["key"]},
            )
            for each in await api.list("Node")
        }

    assert empty_plane.run(work) == {
        "stranded": (False, {"example.com/other"}),
        "too": (False, set()),
        "persons": (True, set()),
    }
