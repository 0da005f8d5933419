"""Reads a cluster from what `kubectl get ... -o json` printed, and strips what servers own."""

from __future__ import annotations

import gzip
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import yaml

from tightship_testkit.client import Json

Source = Mapping[str, object] | Sequence[Json] | str | Path

# Annotations by which controllers remember what they did to an object that is no more.
STALE_ANNOTATIONS = (
    "pv.kubernetes.io/bind-completed",
    "pv.kubernetes.io/bound-by-controller",
    "deprecated.daemonset.template.generation",
)


class SourceError(Exception):
    """The input is no Kubernetes List; the message names the file and what was found."""


def read(source: Source) -> dict[str, list[Json]]:
    """Objects by kind, from a List, a sequence of objects or a .json/.yaml(.gz) file."""
    where = "the given object"
    if isinstance(source, (str, Path)):
        where = str(source)
        source = _parse(Path(source))
    if isinstance(source, Mapping):
        kind = str(source.get("kind", ""))
        items = source.get("items")
        if not kind.endswith("List") or not isinstance(items, list):
            raise SourceError(f"{where} is no Kubernetes List: kind {kind or 'missing'}")
        # The items of a PodList don't say that they are pods.
        items = [{"kind": kind.removesuffix("List"), **item} for item in items]
    else:
        items = list(source)
    kinds: dict[str, list[Json]] = defaultdict(list)
    for item in items:
        kinds[item["kind"]].append(item)
    return kinds


def _parse(path: Path) -> Mapping[str, object]:
    data = path.read_bytes()
    suffixes = path.suffixes
    if suffixes and suffixes[-1] == ".gz":
        data = gzip.decompress(data)
        suffixes = suffixes[:-1]
    if suffixes and suffixes[-1] in {".yaml", ".yml"}:
        # The same safe loader in C is ten times faster, where it was compiled.
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        parsed = yaml.load(data, Loader=loader)  # noqa: S506 - both are safe
    else:
        parsed = msgspec.json.decode(data)
    if not isinstance(parsed, dict):
        raise SourceError(f"{path} is no Kubernetes List")
    return parsed


def clean_metadata(item: Json) -> Json:
    """Metadata with only what a client may set: no uid, owners, finalizers or times."""
    given = item.get("metadata", {})
    kept = {key: given[key] for key in ("name", "namespace", "labels") if given.get(key)}
    annotations = dict(given.get("annotations") or {})
    for stale in STALE_ANNOTATIONS:
        annotations.pop(stale, None)
    return {**kept, "annotations": annotations} if annotations else kept


def clean(item: Json) -> Json:
    """A manifest to create the object anew: no status, no server-owned metadata."""
    kept = {key: value for key, value in item.items() if key not in {"status", "metadata"}}
    kept["metadata"] = clean_metadata(item)
    claim = (kept.get("spec") or {}).get("claimRef")
    if claim:
        names = {key: claim[key] for key in ("namespace", "name") if key in claim}
        kept["spec"] = {**kept["spec"], "claimRef": names}
    return kept


def clean_node(item: Json) -> Json:
    """A node with the status of the file; without a Ready condition it is Ready."""
    node = clean(item)
    status = dict(item.get("status") or {})
    for gone in ("volumesInUse", "volumesAttached", "config"):
        status.pop(gone, None)
    status.setdefault("allocatable", status.get("capacity", {}))
    conditions = list(status.get("conditions") or [])
    if not any(condition["type"] == "Ready" for condition in conditions):
        conditions.append({"type": "Ready", "status": "True", "reason": "KubeletReady"})
    node["status"] = {**status, "conditions": conditions}
    return node


def clean_pod(item: Json) -> Json:
    """A pod as a client may create it; a bound one without scheduling gates."""
    pod = clean(item)
    spec = dict(pod["spec"])
    # Neither may be given at creation; the second is the old name of serviceAccountName.
    for gone in ("ephemeralContainers", "serviceAccount"):
        spec.pop(gone, None)
    if spec.get("nodeName"):
        spec.pop("schedulingGates", None)
    pod["spec"] = spec
    pod["metadata"].setdefault("namespace", "default")
    return pod
