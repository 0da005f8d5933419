"""The charts' policies on a control plane by themselves: entries of the ConfigMap of landings, and what pods become."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tightship_e2e import binaries, settle
from tightship_e2e.helm import SPARING, Helm
from tightship_e2e.plane import ControlPlane
from tightship_testkit.client import RESOURCES, Client, Items, Json, wait_for

LEAVING = "tightship.dev/leaving"
POLICY = "tightship.dev/landing-policy"
"""The annotation of the ConfigMap that names the policy beside it."""
REGISTRATION = "/apis/admissionregistration.k8s.io/v1"
PLURALS = tuple(
    f"{kind}admissionpolic{end}" for kind in ("mutating", "validating") for end in ("ies", "ybindings")
)  # fmt: skip
PODS = "/api/v1/namespaces/default/pods"
DEADLINE = 60.0


class Landings:
    """A release of a node controller's chart without a replica: the policies are there, and nobody who acts."""

    def __init__(self, plane: ControlPlane, charts: Path, home: Path, chart: str, namespace: str) -> None:
        self.plane = plane
        self.namespace = namespace
        self.release = f"land-{chart}"
        self.name = f"{self.release}-landings"
        self.policy = f"{self.release}.{namespace}"
        self.account = f"system:serviceaccount:{namespace}:{self.release}"
        self._chart = charts / chart
        self._helm = Helm(binaries.find("helm")["helm"], home, plane.kubeconfig)

    def install(self, steering: str, **values: Any) -> str:
        """Install or upgrade the release without its Jobs, and return what Helm said."""
        given = {"dryRun": False, "replicaCount": 0, "config": {"steering": steering}, **values}
        where = ("--namespace", self.namespace, "--create-namespace", "--no-hooks", SPARING)
        return self._helm("upgrade", "--install", self.release, self._chart, *where, values=given)

    def uninstall(self) -> None:
        """Take the release away, if it is there."""
        where = ("--namespace", self.namespace, "--no-hooks", "--ignore-not-found")
        self._helm("uninstall", self.release, *where)

    async def expect(self, api: Client, entries: Mapping[str, str] | None) -> None:
        """Have the ConfigMap hold these entries and no others, and wait until the API server's policy knows.

        The API server looks for changed policies once a second, but follows the ConfigMap at once.
        """
        path = RESOURCES["ConfigMap"].path(self.namespace, self.name)
        [now] = await api.list("ConfigMap", self.namespace, fieldSelector=f"metadata.name={self.name}")
        gone = dict.fromkeys(now.get("data") or {})
        # An entry of an owner of nothing shows what has been seen: the watch delivers versions in order.
        probe = f"probe-{now['metadata']['resourceVersion']}"
        data = {**gone, **(entries or {}), probe: "seen"}
        await api.call("PATCH", path, body={"data": data}, content_type="application/merge-patch+json")

        async def seen() -> bool:
            pod = await created(api, owned("probe", probe))
            return touched(pod)

        await wait_for(seen, DEADLINE, "the policy sees the ConfigMap")

    async def by_account(self, api: Client) -> Client:
        """Return a client with a token of the controller's account, and nothing else."""
        path = f"/api/v1/namespaces/{self.namespace}/serviceaccounts/{self.release}/token"
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
        return self.plane.client(token=(await api.call("POST", path, body=body))["status"]["token"])

    async def rights_seen(self, api: Client, *rules: Json) -> None:
        """Wait until the account may do what *rules* say."""
        await settle.rights_seen(api, self.account, "default", rules)


def owned(name: str, owner: str, *, controller: bool = True, **spec: object) -> Json:
    """Return a pod of an owner by its UID, for a request that keeps nothing."""
    reference = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "owner", "uid": owner, "controller": controller}
    meta = {"name": name, "namespace": "default", "labels": {"app": "web"}, "ownerReferences": [reference]}
    body = {"containers": [{"name": "none", "image": "none"}], **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": body}


async def created(api: Client, pod: Json) -> Json:
    """Return what would become of *pod*."""
    return await api.call("POST", PODS, body=pod, params={"dryRun": "All"})


def preferred(pod: Json) -> Items:
    """The preferred terms of a pod's node affinity."""
    affinity = pod["spec"].get("affinity") or {}
    found: Items = (affinity.get("nodeAffinity") or {}).get("preferredDuringSchedulingIgnoredDuringExecution") or []
    return found


def required(pod: Json) -> Items | None:
    """The required terms of a pod's node affinity, ``None`` if it has none."""
    found = ((pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    )
    terms: Items | None = None if found is None else found["nodeSelectorTerms"]
    return terms


def term(node: str) -> Json:
    """The term by which a hint prefers *node*."""
    return {
        "weight": 100,
        "preference": {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]},
    }


def touched(pod: Json) -> bool:
    """Whether a policy of ours has changed a pod."""
    return any("matchFields" in each["preference"] for each in preferred(pod))


async def policies(api: Client, name: str) -> set[str]:
    """The kinds of policy objects of this name that there are."""
    found = set()
    for plural in PLURALS:
        status, _ = await api.request("GET", f"{REGISTRATION}/{plural}/{name}")
        found |= {plural} if status == 200 else set()
    return found


__all__ = [
    "DEADLINE",
    "LEAVING",
    "PLURALS",
    "POLICY",
    "Landings",
    "created",
    "owned",
    "policies",
    "preferred",
    "required",
    "term",
    "touched",
]
