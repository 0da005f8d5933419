"""Pseudonyms for the names in a snapshot: word by word, so that names made of other names stay made of them.

Rules compare names, cut them and put them together: a pod's claim is POD-VOLUME, a ReplicaSet is DEPLOYMENT-HASH, a
mirror pod is NAME-NODE, a machine is MACHINESET-HASH. So every word between separators has a pseudonym, the same one
everywhere. Pseudonyms sort among each other as their words do, because a plan breaks ties by name. Numbers stay, and so
do words that Kubernetes, clouds and rules gave.
All texts are replaced but those of :data:`_WORDS`, so that a field of the future leaks nothing.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from typing import Any

import msgspec

from tightship.objects import CONFIG_MAP, decode
from tightship.objects.devices import DEVICE_CLASS
from tightship.objects.storage import CSI_DRIVER
from tightship.objects.times import rfc3339
from tightship.objects.unreadable import UNREADABLE

_Say = Callable[[str], str]

_TOKEN = re.compile(
    r"(?P<uuid>[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})|ip(?:-[0-9]{1,3}){4}|(?P<set>vmss[0-9a-z]{6}\b)|[A-Za-z0-9]+"
)
_GKE = re.compile(r"gke?3?-.*-[0-9a-z]{4}")

_STAY = frozenset(
    re.findall(
        r"\w+",
        "kube system public node lease default cluster autoscaler status etcd coredns dns proxy apiserver controller "
        "manager scheduler events main karpenter tightship compactor refiner hpa scaler true false linux windows amd64 "
        "arm64 aks gke gk3 eks eksctl nodegroup NodeGroup grp vmss MachineDeployment MachineSet MachinePool "
        "Done Working Degraded Drain Draining DrainComplete Reboot Required skip Skip wait completed "
        "Helm helm Kustomize kustomize kubectl argocd flux pvc",
    )
)
"""Words of names that rules or everybody's clusters have."""

_WORDS = frozenset(
    re.findall(
        r"\w+",
        "accessModes action allocationMode apiGroup apiVersion attacher bindMountOptions capacity "
        "consolidateAfter consolidationPolicy controlledResources controlledValues creationTimestamp "
        "declaredFeatures deletionTimestamp deviceClassName driver duration effect expression "
        "extendedResourceName finalizers hostIP key kind lastScaleTime lastTransitionTime manager matchLabelKeys "
        "maxUnavailable maximumVolumeSize medium minAvailable mode nodeAffinityPolicy nodeTaintsPolicy nodes "
        "operation operator phase podReplacementPolicy protocol provisioner provisioningStrategy reason reasons "
        "resourceVersion restartPolicy schedule selectPolicy startTime status time timeAdded tolerance "
        "topologyKey topologyKeys type unhealthyPodEvictionPolicy updateMode volumeBindingMode volumeMode "
        "whenUnsatisfiable",
    )
)
"""Fields whose texts are words of an API, amounts or times."""

_AMOUNTS = frozenset(
    re.findall(
        r"\w+",
        "allocatable allocatedResources attributes capacity limits maxAllowed minAllowed overhead requests target",
    )
)
"""Fields with a mapping of amounts, or of what a device is."""

_NAMED_BY_API = frozenset({"os", "drivers", "schedulingGates"})
"""Fields whose ``name`` is no user's."""

_DOMAINS = (
    "kubernetes.io", "k8s.io", "karpenter.sh", "k8s.aws", "amazonaws.com", "google.com", "azure.com", "nvidia.com",
    "tightship.dev", "estafette.io",
)  # fmt: skip
_OF_NAMES = re.compile(
    r"name|pool|group|host|cluster|part-of|(?:^|/)instance$|component|hash|created-by|volumes$|k8s-app|owner|machine|release|chart|"
    r"template|job|service|controller|index|drain|claim|instance-id|network-?zone-id"
)
"""The keys of Kubernetes and clouds whose values are names."""

_PLAIN = re.compile(r"|true|false|-?[0-9.]+[a-zA-Z%]{0,2}|[0-9-]{10}T[0-9:.]+(?:Z|[+-][0-9:]+)")


def anonymous(lists: dict[tuple[str, str], list[bytes]]) -> None:
    """Replace the names in *lists*, objects as JSON by kind and ``apiVersion``, in place."""
    found: set[str] = set()
    kept: set[str] = set()

    def note(text: str) -> str:
        found.update(each[0] for each in _TOKEN.finditer(text))
        if _GKE.fullmatch(text):
            # The instance group of a machine is known by the random end of the machine's name.
            kept.add(text[-4:])
        return text

    for (kind, _), things in lists.items():
        for each in things:
            _renamed(kind, each, note)
    stay = kept | _STAY
    words = sorted(each for each in found if not (each.isdecimal() or each in stay))
    width = len(str(len(words)))
    pseudonyms = {each: f"w{number:0{width}d}" for number, each in enumerate(words, 1)}

    def say(text: str) -> str:
        return _TOKEN.sub(
            lambda each: each[0] if each["uuid"] or each["set"] else pseudonyms.get(each[0], each[0]), text
        )

    for (kind, _), things in lists.items():
        things[:] = (_renamed(kind, each, say) for each in things)


def _renamed(kind: str, raw: bytes, say: _Say) -> bytes:
    if kind in (CSI_DRIVER, DEVICE_CLASS):
        return raw  # names of products
    thing = msgspec.json.decode(raw)
    if kind == CONFIG_MAP:
        status = decode(kind, raw)
        groups, updated = getattr(status, "groups", ()), getattr(status, "updated", 0)
        sizes = [
            f"- name: {each.name}\n  health:\n    minSize: {'' if each.problem else each.minimum}\n" for each in groups
        ]
        lines = [
            line if number % 3 else say(line) for number, line in enumerate("".join(sizes).splitlines(keepends=True))
        ]
        time = f"time: {rfc3339(updated).translate({ord('T'): ' ', ord('Z'): ' +0000'})} UTC\n" if updated else ""
        thing["data"] = {"status": f"{time}nodeGroups:\n{''.join(lines)}"}
        return msgspec.json.encode({**thing, "metadata": _walk(thing["metadata"], "", say)})
    return msgspec.json.encode(_walk(thing, "", say))


def _walk(value: Any, field: str, say: _Say) -> Any:
    """Return *value*, which stands in *field*, with names replaced."""
    if isinstance(value, str):
        return value if _PLAIN.fullmatch(value) else say(value)
    if isinstance(value, list):
        return [_walk(each, field, say) for each in value]
    if not isinstance(value, dict):
        return value
    if field in ("labels", "matchLabels", "nodeSelector", "annotations"):
        return {key: _of_key(key, each, say) for key, each in value.items()}
    # A requirement, a taint or a toleration: the key says what the values are.
    key = str(value.get("key", ""))
    about = ("value", "values") if key else ()
    done = {}
    for name, each in value.items():
        if name in about:
            done[name] = [_of_key(key, one, say) for one in each] if isinstance(each, list) else _of_key(key, each, say)
        elif name == "uid" and isinstance(each, str):
            done[name] = hashlib.sha256(each.encode()).hexdigest()[:32]
        elif isinstance(each, dict):
            done[name] = each if name in _AMOUNTS else _walk(each, name, say)
        elif isinstance(each, list) and any(isinstance(one, dict) for one in each):
            done[name] = _walk(each, name, say)
        elif name in _WORDS or (name == "name" and field in _NAMED_BY_API):
            done[name] = each
        else:
            done[name] = _walk(each, name, say)
    return done


def _of_key(key: str, value: Any, say: _Say) -> Any:
    """Return the *value* of a label, an annotation or a taint with *key*."""
    if not isinstance(value, str) or _PLAIN.fullmatch(value):
        return value
    domain, slash, rest = key.partition("/")
    known = bool(slash) and f".{domain}".endswith(tuple(f".{each}" for each in _DOMAINS))
    if known and not _OF_NAMES.search(rest):
        return value
    if value.startswith(("{", "[")):
        try:
            return msgspec.json.encode(_walk(msgspec.json.decode(value), "", say)).decode()
        except UNREADABLE:
            pass
    return say(value)
