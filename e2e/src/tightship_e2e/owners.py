"""The owners of a file's pods: taken from the file, else inferred from the pods.

An owner is made so that the controllers find nothing to do: as many replicas as the file
has pods, and a selector that matches exactly its own pods. Revisions of templates can't
be told from a file, so StatefulSets and DaemonSets replace a pod only once it is deleted.
"""

from __future__ import annotations

import copy
import hashlib
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from tightship_e2e.selectors import matches
from tightship_e2e.source import clean
from tightship_testkit.client import RESOURCES, Json

OWNER_LABEL = "e2e.tightship.dev/owner"
KINDS = ("ReplicaSet", "ReplicationController", "StatefulSet", "DaemonSet", "Job")

# Labels that a controller sets for one pod or one revision; never part of a template.
POD_LABELS = (
    "apps.kubernetes.io/pod-index",
    "batch.kubernetes.io/controller-uid",
    "batch.kubernetes.io/job-completion-index",
    "batch.kubernetes.io/job-name",
    "controller-revision-hash",
    "controller-uid",
    "job-name",
    "pod-template-generation",
    "statefulset.kubernetes.io/pod-name",
)

Key = tuple[str, str, str]  # kind, namespace, name


@dataclass
class Owner:
    """An owner, its pods, and the manifest that makes it."""

    key: Key
    pods: list[Json] = field(default_factory=list)
    manifest: Json = field(default_factory=dict)

    @property
    def bound(self) -> int:
        return sum(1 for pod in self.pods if pod["spec"].get("nodeName"))


def plan(owned: Iterable[tuple[Key, Json]], pods: list[Json], declared: dict[Key, Json]) -> list[Owner]:
    """The owners of `owned` pods, a subset of `pods`; adds our label to pods where it must.

    `pods` are cleaned pods, `declared` the file's owners as they are there.
    """
    owners: dict[Key, Owner] = {}
    for key, pod in owned:
        owners.setdefault(key, Owner(key)).pods.append(pod)
    holders = _holders(pods)
    for owner in owners.values():
        item = declared.get(owner.key)
        selector = _selector(item) if item else _common_selector(owner)
        if not _exclusive(selector, owner, holders):
            mark = _mark(owner)
            selector = {**(selector or {}), "matchLabels": mark}
            selector.pop("matchExpressions", None)
        owner.manifest = _manifest(owner, clean(item) if item else {}, selector or {})
    return list(owners.values())


def _selector(item: Json) -> Json | None:
    selector: Json | None = item["spec"].get("selector")
    if item["kind"] == "ReplicationController":
        return {"matchLabels": selector} if selector else None
    if item["kind"] == "Job" and not item["spec"].get("manualSelector"):
        return None  # it names the uid of a Job that is no more
    return selector


def _common_labels(owner: Owner) -> dict[str, str]:
    pairs = [set(_labels(pod).items()) for pod in owner.pods]
    shared = dict(set.intersection(*pairs))
    return {key: value for key, value in sorted(shared.items()) if key not in POD_LABELS}


def _common_selector(owner: Owner) -> Json | None:
    common = _common_labels(owner)
    return {"matchLabels": common} if common else None


def _labels(pod: Json) -> dict[str, str]:
    return pod["metadata"].setdefault("labels", {})  # type: ignore[no-any-return]


def _holders(pods: list[Json]) -> dict[tuple[str, str, str], list[Json]]:
    """Pods by namespace and label pair, so that exclusiveness costs no pass over all pods."""
    holders: dict[tuple[str, str, str], list[Json]] = defaultdict(list)
    for pod in pods:
        namespace = pod["metadata"]["namespace"]
        holders[namespace, "", ""].append(pod)
        for pair in _labels(pod).items():
            holders[namespace, *pair].append(pod)
    return holders


def _exclusive(selector: Json | None, owner: Owner, holders: dict[tuple[str, str, str], list[Json]]) -> bool:
    """Whether a selector matches the owner's pods and no others of its namespace."""
    if not selector:
        return False
    namespace = owner.key[1]
    pairs = (selector.get("matchLabels") or {}).items()
    lists = [holders.get((namespace, *pair), []) for pair in pairs]
    candidates = min(lists, key=len) if lists else holders[namespace, "", ""]
    matched = {id(pod) for pod in candidates if matches(selector, _labels(pod))}
    return matched == {id(pod) for pod in owner.pods}


def _mark(owner: Owner) -> dict[str, str]:
    digest = hashlib.sha256("/".join(owner.key).encode()).hexdigest()[:12]
    for pod in owner.pods:
        _labels(pod)[OWNER_LABEL] = digest
    return {OWNER_LABEL: digest}


def _manifest(owner: Owner, declared: Json, selector: Json) -> Json:
    kind, namespace, name = owner.key
    spec = dict(declared.get("spec") or {})
    template = copy.deepcopy(spec.get("template")) or _template(owner)
    labels = template.setdefault("metadata", {}).setdefault("labels", {})
    for label in POD_LABELS:
        labels.pop(label, None)
    labels |= selector.get("matchLabels") or {}
    if not matches(selector, labels):
        labels |= _common_labels(owner)
    count = len(owner.pods)
    spec |= {"template": template, "selector": selector}
    match kind:
        case "ReplicationController":
            spec |= {"replicas": count, "selector": selector["matchLabels"]}
        case "ReplicaSet":
            spec |= {"replicas": count}
        case "StatefulSet":
            spec |= _stateful(owner, spec)
        case "DaemonSet":
            spec |= {"updateStrategy": {"type": "OnDelete"}, "template": _pinned(owner, template)}
        case "Job":
            spec = {
                "template": template,
                "selector": selector,
                "manualSelector": True,
                "parallelism": count,
                "completions": count,
                "backoffLimit": 1_000_000,
            }
    metadata = {**declared.get("metadata", {}), "namespace": namespace, "name": name}
    return {
        "apiVersion": RESOURCES[kind].group_version,
        "kind": kind,
        "metadata": metadata,
        "spec": spec,
    }


def _template(owner: Owner) -> Json:
    """A template from the owner's first pod, without what belongs to that pod alone."""
    first = owner.pods[0]
    spec = copy.deepcopy(first["spec"])
    for gone in ("nodeName", "hostname", "priority", "preemptionPolicy", "schedulingGates"):
        spec.pop(gone, None)
    if owner.key[0] == "StatefulSet":
        _drop_own_claims(spec, first["metadata"]["name"])
    if owner.key[0] == "Job" and spec.get("restartPolicy", "Always") == "Always":
        spec["restartPolicy"] = "OnFailure"
    return {"metadata": {"labels": dict(_common_labels(owner))}, "spec": spec}


def _drop_own_claims(spec: Json, pod: str) -> None:
    """Drop volumes on claims of one StatefulSet pod, which end in its name."""
    volumes = spec.get("volumes") or []
    own = {
        volume["name"]
        for volume in volumes
        if (volume.get("persistentVolumeClaim") or {}).get("claimName", "").endswith(f"-{pod}")
    }
    spec["volumes"] = [volume for volume in volumes if volume["name"] not in own]
    for container in [*spec["containers"], *(spec.get("initContainers") or [])]:
        mounts = container.get("volumeMounts") or []
        container["volumeMounts"] = [mount for mount in mounts if mount["name"] not in own]


def _stateful(owner: Owner, spec: Json) -> Json:
    ordinals = ordinals_of(owner)
    name = owner.key[2]
    changed: Json = {
        "replicas": len(owner.pods),
        "ordinals": {"start": min(ordinals, default=0)},
        "serviceName": spec.get("serviceName") or name,
        "updateStrategy": {"type": "OnDelete"},
        "podManagementPolicy": spec.get("podManagementPolicy", "Parallel"),
    }
    templates = spec.get("volumeClaimTemplates")
    claimed = {
        (volume.get("persistentVolumeClaim") or {}).get("claimName")
        for pod in owner.pods
        for volume in pod["spec"].get("volumes") or []
    }
    # Pods that do not use the claims of these templates would be taken for broken ones.
    if templates and not all(
        f"{template['metadata']['name']}-{name}-{ordinal}" in claimed for template in templates for ordinal in ordinals
    ):
        changed["volumeClaimTemplates"] = []
    return changed


def ordinals_of(owner: Owner) -> list[int]:
    """The ordinals in the names of a StatefulSet's pods, sorted."""
    tails = [pod["metadata"]["name"].rpartition("-")[2] for pod in owner.pods]
    return sorted(int(tail) for tail in tails if tail.isdigit())


def daemon_node(pod: Json) -> str | None:
    """The node of a DaemonSet's pod: where it is bound, else where its affinity sends it."""
    if pod["spec"].get("nodeName"):
        return str(pod["spec"]["nodeName"])
    affinity = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    for term in required.get("nodeSelectorTerms") or []:
        for match in term.get("matchFields") or []:
            if match["key"] == "metadata.name":
                return str(match["values"][0])
    return None


def _pinned(owner: Owner, template: Json) -> Json:
    """A DaemonSet's template that wants exactly the nodes where the file has its pods.

    The template of the file would start pods on nodes that had none when it was saved.
    """
    nodes = sorted({node for pod in owner.pods if (node := daemon_node(pod))})
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]} for node in nodes]
    required = {"nodeSelectorTerms": terms}
    spec = template["spec"]
    spec.pop("nodeSelector", None)
    affinity = dict(spec.get("affinity") or {})
    affinity["nodeAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": required}
    spec["affinity"] = affinity
    spec["tolerations"] = [{"operator": "Exists"}]
    return template
