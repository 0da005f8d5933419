"""Manifests of a repository as a snapshot: what their controllers would make of them, so that the same rules judge.

Each template becomes one Ready pod, each budget gets the status that the disruption controller would compute with
every replica Ready (``pkg/controller/disruption/disruption.go``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import msgspec
import yaml
from msgspec import Struct

from tightship.cli.object_file import (
    DocumentError,
    FileError,
    files_in,
    marked_documents,
    read_bytes,
    read_objects,
    unpack,
)
from tightship.cli.snapshot_file import SNAPSHOT
from tightship.cluster import NOT_IN_FILE, ClusterState, Snapshot
from tightship.kube.resources import BY_KIND
from tightship.objects import WORKLOAD_KINDS, ObjectError, decode
from tightship.objects.meta import qualified
from tightship.objects.quoting import quoted
from tightship.objects.selectors import LabelSelector
from tightship_cli.lint.rules import RULES, Finding, count_of, found, in_order

Json = dict[str, Any]
Key = tuple[str, str, str]
"""(kind, namespace, name)."""

ALLOWED = "allowed are manifests of Kubernetes: YAML or JSON with kind and metadata.name"

_CLUSTER = re.compile(rb"""["']?kind["']?\s*:\s*["']?(?:Node|NodeList|ClusterSnapshot)["']?\s*(?:[,}\r\n]|$)""")
_OF_CLUSTERS = frozenset({"Node", SNAPSHOT})
_PERCENT = re.compile(r"(\d|[1-9]\d|100)%", re.ASCII)
_HOOK = "helm.sh/hook"
_HELM = "a template of Helm: give what `helm template` prints"
_KUSTOMIZE = frozenset({"kustomization.yaml", "kustomization.yml"})

_POD_TEMPLATE = ("spec", "template")
_TEMPLATES: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("Deployment", "Rollout.argoproj.io", "CloneSet.apps.kruise.io", *WORKLOAD_KINDS), _POD_TEMPLATE),
    "CronJob": ("spec", "jobTemplate", "spec", "template"),
}
_MADE: Mapping[str, str] = {"Deployment": "ReplicaSet", "Rollout.argoproj.io": "ReplicaSet", "CronJob": "Job"}
"""What stands between a kind and its pods."""
_JUDGED = frozenset({"Pod", "PodDisruptionBudget", "HorizontalPodAutoscaler", *_TEMPLATES})
_SCALED = frozenset({"Deployment", "Rollout.argoproj.io", "CloneSet.apps.kruise.io", "ReplicaSet", "StatefulSet"})
_SCALED |= {"ReplicationController"}
"""Kinds with replicas, by which the disruption controller computes percentages and ``maxUnavailable``."""

_REMOVED: Mapping[tuple[str, str], tuple[str, str]] = {
    ("PodDisruptionBudget", "policy/v1beta1"): ("1.25", "policy/v1"),
    ("HorizontalPodAutoscaler", "autoscaling/v2beta1"): ("1.25", "autoscaling/v2"),
    ("HorizontalPodAutoscaler", "autoscaling/v2beta2"): ("1.26", "autoscaling/v2"),
    ("CronJob", "batch/v1beta1"): ("1.25", "batch/v1"),
    **{
        (kind, version): ("1.16", "apps/v1")
        for kind in ("Deployment", "StatefulSet", "DaemonSet", "ReplicaSet")
        for version in ("extensions/v1beta1", "apps/v1beta1", "apps/v1beta2")
    },
}
"""Versions of budgets, autoscalers and workloads that are gone: (since, instead), from the deprecation guide."""


class _Written(Struct):
    """An object as written in *file*, with its *node* of YAML."""

    kind: str
    content: Json
    file: str
    node: yaml.Node


class Manifests(Struct, frozen=True):
    """The *snapshot* that manifests stand for, *findings* about the writing alone, and *warnings* for people."""

    snapshot: Snapshot
    findings: tuple[Finding, ...]
    warnings: tuple[str, ...]
    written: Mapping[Key, _Written]

    def located(self, findings: Sequence[Finding]) -> list[Finding]:
        """Return *findings* with file and line; advice is about the manifest, not about the running object.

        A custom resource may stand for pods that its operator makes, which a budget beside it may select.
        """
        custom = {space for kind, space, _ in self.written if "." in kind and not kind.endswith(".k8s.io")}
        elsewhere = [each for each in findings if each.rule == "PdbSelectsNothing" and each.namespace in custom]
        return in_order(self._located(each) for each in findings if each not in elsewhere)

    def _located(self, finding: Finding) -> Finding:
        known, rule = self.written.get((finding.kind, finding.namespace, finding.name)), RULES[finding.rule]
        fix = rule.help if "kubectl " in finding.fix else finding.fix
        for kind, space, name in self.written if "-1 " in fix else ():
            if space == finding.namespace:
                fix = fix.replace(f"{_MADE.get(kind)}/{name}-1 ", f"{kind.partition('.')[0]}/{name} ")
        if known is None:
            return msgspec.structs.replace(finding, fix=fix)
        lines = (_line(known.node, field.split(".")) for field in rule.fields)
        line = next((each for each in lines if each), 0) or known.node.start_mark.line + 1
        return msgspec.structs.replace(finding, fix=fix, file=known.file, line=line)


def is_cluster(raw: bytes) -> bool:
    """Whether *raw*, the bytes of a file, holds a node or a snapshot: a cluster, and no repository.

    What another object only mentions (a Node in a ConfigMap's text, a resource that defines the kind) does not count.
    """
    try:
        if _CLUSTER.search(unpack(raw)) is None:
            return False
    except DocumentError:
        return False
    # Elsewhere in a manifest the word may be that of a CustomResourceDefinition, of an owner, or of a target.
    return bool(read_objects(raw, "", lambda kind, _: kind in _OF_CLUSTERS, lambda *_: None).present)


def read_manifests(files: Sequence[tuple[bytes, str, bool]]) -> Manifests:
    """Return the manifests in *files*: the bytes, the name, and whether the file is one of a folder.

    What isn't Kubernetes' in a file of a folder is a warning, else an error. Raises :class:`FileError`.
    """
    reader = _Reader()
    for raw, name, of_folder in files:
        reader.read(raw, name, of_folder)
    if not (reader.written or reader.problems or reader.findings):
        reader.problems.append(f"{', '.join(name for _, name, _ in files[:3])}: holds no manifest; {ALLOWED}")
        reader.problems += reader.warnings
    if reader.problems:
        raise FileError(tuple(reader.problems))
    return reader.manifests()


class _Reader:
    def __init__(self) -> None:
        self.written: dict[Key, _Written] = {}
        self.problems: list[str] = []
        self._strange: dict[str, list[str]] = {}
        self._twice: list[str] = []
        self.state = ClusterState()
        self.findings: list[Finding] = []

    @property
    def warnings(self) -> list[str]:
        """What of the folders was passed over, a line for each reason."""
        found = [f"{_first(places)}: {why}" for why, places in self._strange.items()]
        return found + ([f"{_first(self._twice)}; lint each cluster alone"] if self._twice else [])

    def read(self, raw: bytes, name: str, of_folder: bool) -> None:
        """Take every object of a file."""

        def strange(place: str, why: str) -> None:
            if of_folder:
                self._strange.setdefault(why, []).append(place)
            else:
                self.problems.append(f"{place}: {why}")

        try:
            for document, node in marked_documents(unpack(raw)):
                place = f"{name}:{node.start_mark.line + 1}"
                if self._take(document, node, name):
                    continue
                if isinstance(document, dict) and "{{" in str(document.get("metadata")):
                    strange(place, _HELM)
                elif not (of_folder and (name.endswith(".json") or Path(name).name in _KUSTOMIZE)):
                    strange(place, f"not Kubernetes'; {ALLOWED}")
        except DocumentError as error:
            if str(error) == "is empty" and of_folder:
                return
            where, _, why = f"{error}".partition("; the file begins")[0].rpartition(": not YAML: ")
            if b"{{" in raw:
                strange(name, _HELM)
            elif where:
                strange(f"{name}: {where}", f"not YAML: {why}; {ALLOWED}")
            else:
                strange(name, f"{why}; {ALLOWED}")

    def _take(self, document: object, node: yaml.Node, file: str) -> bool:
        if not isinstance(document, dict) or not isinstance(document.get("kind"), str):
            return False
        if document["kind"].endswith("List") and isinstance(document.get("items", ()), list | None):
            items, within = document.get("items") or [], _child(node, "items")[1]
            kind = document["kind"].removesuffix("List")
            for each in items if kind else ():  # as the API server answers: only the list names the kind
                if isinstance(each, dict):
                    each.update({"kind": kind, "apiVersion": document.get("apiVersion", "")} | each)
            nodes = within.value if isinstance(within, yaml.SequenceNode) else [node] * len(items)
            taken = [self._take(each, at, file) for each, at in zip(items, nodes, strict=True)]
            return all(taken)
        meta = document.get("metadata")
        if not isinstance(meta, dict) or not (meta.get("name") or meta.get("generateName")):
            return False
        kind = qualified(document["kind"], str(document.get("apiVersion", "")))
        name = str(meta.get("name") or meta["generateName"])
        if "{{" in f"{name} {meta.get('namespace')}":
            return False
        key = (kind, str(meta.get("namespace") or "default"), name)
        while key in self.written and not meta.get("name"):
            key = (*key[:2], f"{key[2]}-")  # a name that is generated is no other object's
        known = self.written.get(key)
        if known is not None:
            patch = kind in _TEMPLATES and not _map(document, *_TEMPLATES[kind]).get("spec")
            if kind in _JUDGED and not patch:
                here, there = f"{file}:{node.start_mark.line + 1}", f"{known.file}:{known.node.start_mark.line + 1}"
                self._twice.append(f"{here}: {kind} {name} is in {there} too, which counts")
            return True
        if kind in _JUDGED:
            self.findings += [found("Unreadable", key, each) for each in (*_twice(node), *_refused(document))]
            if not isinstance(document.get("spec", {}), dict | None):
                return True
            document = {**document, "spec": document.get("spec") or {}}
        self.written[key] = _Written(kind, document, file, node)
        return True

    def manifests(self) -> Manifests:
        """Return what has been read as one cluster."""
        pods = [pod for key, each in self.written.items() for pod in self._pods(key, each)]
        for key, each in self.written.items():
            self._single(key, each, pods)
        present = {each.kind for each in self.written.values()} | {"ReplicaSet"} | set(WORKLOAD_KINDS)
        for kind in BY_KIND.keys() - present - {"Pod"}:
            self.state.mark_missing(kind, NOT_IN_FILE)
        snapshot = self.state.snapshot()
        return Manifests(snapshot, tuple(self.findings), tuple(self.warnings), self.written)

    def _add(self, key: Key, kind: str, content: Json) -> None:
        try:
            self.state.upsert(kind, decode(kind, msgspec.json.encode(content)))
        except ObjectError as error:
            self.findings.append(found("Unreadable", key, error.problem))

    def _pods(self, key: Key, written: _Written) -> Iterator[tuple[Json, str, int]]:
        """Add the pods of *written*, and yield each with the kind above it and how many there would be."""
        kind, namespace, name = key
        content = written.content
        since = _REMOVED.get((content["kind"], str(content.get("apiVersion", ""))))
        if since is not None:
            gone = f"{content['apiVersion']} is gone since Kubernetes {since[0]}"
            self.findings.append(found("RemovedApi", key, gone, f"write {since[1]}"))
        template = content if kind == "Pod" else _map(content, *_TEMPLATES.get(kind, ("no template",)))
        if not template or _HOOK in _map(content, "metadata", "annotations"):
            return
        replicas = self._replicas(key, content)
        meta = {**_map(template, "metadata"), "name": name, "namespace": namespace}
        if kind != "Pod":
            maker, made = _MADE.get(kind), f"{name}-1"
            owner = {"kind": kind.partition(".")[0], "name": name, "uid": name, "controller": True}
            owner["apiVersion"] = str(content.get("apiVersion", ""))
            if maker is not None:
                above = {"name": made, "namespace": namespace, "uid": made, "ownerReferences": [owner]}
                self._add(key, maker, {"metadata": above, "spec": {"replicas": replicas, "template": template}})
                owner = {"kind": maker, "name": made, "uid": made, "controller": True}
            elif kind in WORKLOAD_KINDS:
                top = {"name": name, "namespace": namespace, "uid": name}
                self._add(key, kind, {"metadata": top, "spec": {**content["spec"], "replicas": replicas}})
            meta |= {"name": f"{name}-1-1", "ownerReferences": [owner]}
        ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        pod = {"metadata": meta, "spec": self._defaulted(template.get("spec") or {}, namespace), "status": ready}
        node = _map(pod, "spec").get("nodeName")
        if node:
            self._add(key, "Node", {"metadata": {"name": str(node)}})
        self._add(key, "Pod", pod)
        yield pod, kind, replicas

    def _replicas(self, key: Key, content: Json) -> int:
        """Return how many pods there may be: an HPA's maxReplicas, else those written."""
        hpas = (each.content for each in self.written.values() if each.kind == "HorizontalPodAutoscaler")
        counts = [_map(each, "spec").get("maxReplicas") for each in hpas if _aims(each) == key]
        counts.append(_map(content, "spec").get("replicas") if key[0] in _SCALED else 1)
        return counts[0] if isinstance(counts[0], int) else 1

    def _single(self, key: Key, written: _Written, pods: list[tuple[Json, str, int]]) -> None:
        kind, namespace, name = key
        content = {**written.content, "metadata": {**written.content["metadata"], "name": name, "namespace": namespace}}
        if kind == "PodDisruptionBudget" and not any(_refused(content)):
            self._add(key, kind, {**content, "status": _status(content, pods)})
            if "unhealthyPodEvictionPolicy" not in _map(content, "spec"):
                detail = "no unhealthyPodEvictionPolicy: pods that are not Ready may keep their nodes"
                self.findings.append(found("PdbKeepsUnhealthy", key, detail))
        elif kind == "HorizontalPodAutoscaler":
            self._add(key, kind, content)
            target = self.written.get(_aims(content))
            count = None if target is None else _map(target.content, "spec").get("replicas")
            if count is not None:
                detail = f"replicas {count}, which HPA {name} sets too: each apply goes back to {count}"
                self.findings.append(found("ReplicasBesideHpa", _aims(content), detail))

    def _defaulted(self, spec: Json, namespace: str) -> Json:
        """Return *spec* with the requests that the API server makes of limits, and a LimitRange of its defaults.

        Sources: ``SetDefaults_Pod`` and ``SetDefaults_LimitRangeItem`` (pkg/apis/core/v1/defaults.go), and
        ``mergePodResourceRequirements`` (plugin/pkg/admission/limitranger).
        """
        made: Json = deepcopy(spec)
        ranges = [each.content for key, each in self.written.items() if key[:2] == ("LimitRange", namespace)]
        items = [item for of in ranges for item in _maps(_map(of, "spec"), "limits") if item.get("type") == "Container"]
        for each in (*_maps(made, "containers"), *_maps(made, "initContainers")):
            asked = {**_map(each, "resources", "limits"), **_map(each, "resources", "requests")}
            for item in items:
                for field in ("defaultRequest", "default", "max", "min"):
                    asked = {**_map(item, field), **asked}
            if asked and isinstance(each.get("resources", {}), dict | None):
                each["resources"] = {**_map(each, "resources"), "requests": asked}
        return made


def _twice(node: yaml.Node | None, path: str = "") -> Iterator[str]:
    """Yield the keys that are there twice, which kubectl refuses (``fieldValidation=Strict``)."""
    if isinstance(node, yaml.SequenceNode):
        for at, each in enumerate(node.value):
            yield from _twice(each, f"{path}[{at}]")
    elif isinstance(node, yaml.MappingNode):
        names = [str(name.value) for name, _ in node.value]
        for name, (_, value) in zip(names, node.value, strict=True):
            yield from _twice(value, f"{path}.{name}".lstrip("."))
        for name in dict.fromkeys(each for each in names if names.count(each) > 1 and each != "<<"):
            yield f"{path}.{name}: is there {names.count(name)} times; allowed is once".lstrip(".")


def _refused(content: Json) -> Iterator[str]:
    """Yield what the API server refuses in the numbers of budgets, workloads and HPAs.

    Sources: ``ValidatePodDisruptionBudgetSpec`` (pkg/apis/policy/validation), ``ValidateDeploymentSpec`` (apps),
    ``validateHorizontalPodAutoscalerSpec`` (autoscaling). What a tool fills in later (``${REPLICAS}``) is no
    number yet.
    """
    spec = content.get("spec")
    if not isinstance(spec, dict):
        yield from () if spec is None else (f"spec: {quoted(str(spec))} is not a mapping",)
        return
    for field in ("minAvailable", "maxUnavailable", "replicas", "minReplicas", "maxReplicas"):
        value = spec.get(field)
        if value is None or (isinstance(value, str) and "{" in value):
            continue
        share = field.endswith("able") and isinstance(value, str) and _PERCENT.fullmatch(value)
        if not share and not (type(value) is int and (field == "maxReplicas") <= value < 1 << 31):
            allowed = "a whole number, or a percentage up to 100%" if field.endswith("able") else "a whole number"
            yield f"spec.{field}: {quoted(str(value))}; allowed is {allowed}"
    if spec.get("minAvailable") is not None and spec.get("maxUnavailable") is not None:
        yield "spec: has minAvailable and maxUnavailable; allowed is one of them"


def _map(of: object, *path: str) -> Json:
    """Return the mapping at *path*, an empty one where there is none: reading the object says what is wrong there."""
    for step in path:
        of = of.get(step) if isinstance(of, dict) else None
    return of if isinstance(of, dict) else {}


def _maps(of: object, field: str) -> list[Json]:
    found = of.get(field) if isinstance(of, dict) else None
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def _first(places: Sequence[str]) -> str:
    return places[0] + (f" and {len(places) - 1:,} more" if len(places) > 1 else "")


def _aims(hpa: Json) -> Key:
    reference = _map(hpa, "spec", "scaleTargetRef")
    kind = qualified(str(reference.get("kind", "")), str(reference.get("apiVersion", "")))
    return kind, str(hpa["metadata"].get("namespace") or "default"), str(reference.get("name", ""))


def _status(budget: Json, pods: list[tuple[Json, str, int]]) -> Json:
    """Return the status of *budget* with every replica Ready."""
    spec = _map(budget, "spec")
    least, most = spec.get("minAvailable", 1), spec.get("maxUnavailable")
    try:
        selector = msgspec.convert(spec.get("selector"), LabelSelector | None)
    except msgspec.ValidationError:
        return {}  # the object is unreadable, which is said already
    expected, unscaled = 0, ""
    for pod, kind, replicas in pods:
        meta = pod["metadata"]
        if meta["namespace"] != budget["metadata"]["namespace"] or selector is None:
            continue
        if selector.matches(_map(meta, "labels")):
            expected += replicas
            unscaled = unscaled or ("" if kind in _SCALED else f"{kind} {meta['name']}")
    if unscaled and (most is not None or not isinstance(least, int)):
        why = {"type": "DisruptionAllowed", "status": "False", "reason": "SyncFailed"}
        return {"conditions": [{**why, "message": f"{unscaled} has no replicas to count by"}], "expectedPods": expected}
    wanted = count_of(least, expected) if most is None else max(0, expected - count_of(most, expected))
    allowed = max(0, expected - wanted)
    health = {"currentHealthy": expected, "desiredHealthy": wanted, "expectedPods": expected}
    return {"disruptionsAllowed": allowed, **health, "observedGeneration": 1 << 30}


def _child(node: yaml.Node | None, key: str) -> tuple[yaml.Node, yaml.Node] | tuple[None, None]:
    """Return the key and the value of the field *key* of *node*, if it is there."""
    pairs = node.value if isinstance(node, yaml.MappingNode) else []
    return next(((name, value) for name, value in pairs if getattr(name, "value", None) == key), (None, None))


def _line(node: yaml.Node, path: Sequence[str]) -> int:
    """Return the line of the field *path* below *node*, 0 if it is not there."""
    found: tuple[yaml.Node | None, yaml.Node | None] = (None, node)
    for step in path:
        found = _child(found[1], step)
    name = found[0]
    return 0 if name is None else name.start_mark.line + 1


def read_paths(paths: Sequence[str]) -> list[tuple[bytes, str, bool]]:
    """Return the bytes of the files at *paths*, the name of each, and whether it came with a folder.

    Hidden folders are left out.
    """
    files: list[tuple[bytes, str, bool]] = []
    for path in paths:
        for each in files_in(path):
            folders = Path(each).relative_to(path).parts[:-1]
            if not any(part.startswith(".") or part == "node_modules" for part in folders):
                # A link to nothing in a folder has no bytes, and so no manifest.
                nothing = each != path and not Path(each).exists()
                files.append((b"", each, True) if nothing else (*read_bytes(each), each != path))
    return files
