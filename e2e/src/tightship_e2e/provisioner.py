"""An external provisioner: makes a volume for each claim that the scheduler has given a node."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from tightship_testkit.client import ApiError, Client, Json

SELECTED = "volume.kubernetes.io/selected-node"
BOUND = "pv.kubernetes.io/bind-completed"
PAUSE = 0.1


@contextlib.asynccontextmanager
async def provisioning(api: Client) -> AsyncIterator[None]:
    """Provision while the body runs."""
    task = asyncio.create_task(_provision(api))
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def unbound_claims(api: Client) -> str:
    """Return a claim that a pod on a node uses and that has yet to be bound, or nothing."""
    pods = [pod for pod in await api.list("Pod") if pod["spec"].get("nodeName")]
    used = {f"{pod['metadata']['namespace']}/{each}" for pod in pods for each in _claims(pod)}
    bound = {
        f"{each['metadata']['namespace']}/{each['metadata']['name']}"
        for each in await api.list("PersistentVolumeClaim")
        if BOUND in (each["metadata"].get("annotations") or {})
    }
    return next(iter(sorted(used - bound)), "")


def _claims(pod: Json) -> list[str]:
    name, volumes = pod["metadata"]["name"], pod["spec"].get("volumes") or []
    own = [f"{name}-{each['name']}" for each in volumes if "ephemeral" in each]
    return own + [each["persistentVolumeClaim"]["claimName"] for each in volumes if "persistentVolumeClaim" in each]


async def _provision(api: Client) -> None:
    while True:
        claims = [each for each in await api.list("PersistentVolumeClaim") if not each["spec"].get("volumeName")]
        if claims:
            classes = {each["metadata"]["name"]: each["provisioner"] for each in await api.list("StorageClass")}
            # Pods that were put on their nodes have claims that no scheduler has seen.
            placed = {each["metadata"]["uid"] for each in await api.list("Pod") if each["spec"].get("nodeName")}
            for claim in claims:
                meta = claim["metadata"]
                owners = {each["uid"] for each in meta.get("ownerReferences") or []}
                if SELECTED in (meta.get("annotations") or {}) or owners & placed:
                    with contextlib.suppress(ApiError):
                        await api.create(_volume(claim, classes[claim["spec"]["storageClassName"]]))
        await asyncio.sleep(PAUSE)


def _volume(claim: Json, driver: str) -> Json:
    meta, spec = claim["metadata"], claim["spec"]
    name = f"pvc-{meta['uid']}"
    driver = {"kubernetes.io/gce-pd": "pd.csi.storage.gke.io"}.get(driver, driver)
    reference = {"apiVersion": "v1", "kind": "PersistentVolumeClaim"}
    reference |= {key: meta[key] for key in ("namespace", "name", "uid", "resourceVersion")}
    return {
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "accessModes": spec["accessModes"],
            "capacity": spec["resources"]["requests"],
            "storageClassName": spec["storageClassName"],
            "persistentVolumeReclaimPolicy": "Retain",
            "claimRef": reference,
            "csi": {"driver": driver, "volumeHandle": name},
        },
    }
