"""Loads a saved cluster into a control plane, pods under real owners.

Pods are created first, without owners and bound as the file says. Once the
controller-manager has seen them all, their owners are created and adopt them: so pods
carry the true uid of their owner, and no controller ever misses or has a pod too many.
(Stopping the controller-manager meanwhile would not do: once it goes on it may see an
owner before its pods, and make new ones.) Unbound pods come after the bound ones, so that
the scheduler, which sees pods in the order of their creation, can't give their room away.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field

from tightship_e2e import owners, priorities, settle
from tightship_e2e.owners import Key, Owner
from tightship_e2e.selectors import matches
from tightship_e2e.source import Source, clean, clean_node, clean_pod, read
from tightship_testkit.client import RESOURCES, ApiError, Client, Json, wait_while

# Kinds that are loaded as they are, beside nodes, pods, their owners and budgets.
PLAIN = (
    "StorageClass",
    "CSIDriver",
    "CSINode",
    "CSIStorageCapacity",
    "VolumeAttachment",
    "RuntimeClass",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "ConfigMap",
)
HANDLED = {*PLAIN, *owners.KINDS, "Namespace", "Node", "Pod", "PodDisruptionBudget"}
HANDLED.add("PriorityClass")
PHASE = "e2e.tightship.dev/phase"
DEADLINE = 600.0  # seconds until a loaded cluster must have come to rest
MISSED = 10.0  # seconds after which a pod that does not run is brought to kwok's notice
SYSTEM = {"default", "kube-system", "kube-public", "kube-node-lease"}


class LoadError(Exception):
    """The cluster did not become what the file says; the message names what differs."""


@dataclass
class LoadReport:
    """What was loaded, and what could not be loaded as it is in the file."""

    nodes: int = 0
    bound: int = 0
    unbound: int = 0
    finished: int = 0  # pods that had ended; they are left out
    owners: Counter[str] = field(default_factory=Counter)  # by kind
    uids: dict[Key, str] = field(default_factory=dict)  # of the owners made
    ignored: Counter[str] = field(default_factory=Counter)  # objects of kinds not loaded
    problems: list[str] = field(default_factory=list)
    seconds: float = 0.0


async def load(client: Client, source: Source, *, deadline: float = DEADLINE) -> LoadReport:
    """Load a List and wait until bound pods are Ready and owners and budgets count them.

    Pods without a node are left to the scheduler they name. `deadline` is in seconds. Raises SourceError for what is no
    List, ApiError for an object that the API refuses, TimeoutError when the cluster does not come to rest, and
    LoadError when it rests differently. The plane must run the controller-manager and kwok.
    """
    return await _Load(client, read(source), deadline).run()


class _Load:
    def __init__(self, client: Client, kinds: dict[str, list[Json]], deadline: float) -> None:
        self.client = client
        self.kinds = kinds
        self.deadline = deadline
        self.report = LoadReport()
        self.pods: list[Json] = []
        self.owners: list[Owner] = []
        self.budgets = [clean(item) for item in kinds.get("PodDisruptionBudget", [])]

    async def run(self) -> LoadReport:
        begin = time.monotonic()
        items = self.kinds.items()
        self.report.ignored.update({k: len(v) for k, v in items if k not in HANDLED})
        nodes = await self.create_surroundings()
        owned = await self.sort_pods(nodes)
        declared = {_key(kind, item): item for kind in owners.KINDS for item in self.kinds.get(kind, [])}
        self.owners = owners.plan(owned, self.pods, declared)
        self.check_owners()
        classes = priorities.assign(self.pods, self.kinds.get("PriorityClass", []))
        await self.client.each(self.client.create, classes)
        values = {item["metadata"]["name"]: item["value"] for item in classes}
        await settle.priorities_seen(self.client, values)
        bound = [pod for pod in self.pods if pod["spec"].get("nodeName")]
        unbound = [pod for pod in self.pods if not pod["spec"].get("nodeName")]
        self.report.bound, self.report.unbound = len(bound), len(unbound)
        await self.client.each(self.client.create, bound)
        await self.client.each(self.client.create, unbound)
        if self.owners:
            await settle.pods_seen(self.client)
        await self.client.each(self.create_owner, self.owners)
        await self.client.each(self.client.create, self.budgets)
        await self.rest(bound)
        self.report.seconds = time.monotonic() - begin
        return self.report

    async def create_surroundings(self) -> dict[str, str]:
        """Create what pods need; returns the true uid of every node by name."""
        names = {item["metadata"]["name"] for item in self.kinds.get("Namespace", [])}
        for kind, items in self.kinds.items():
            if kind in HANDLED and RESOURCES[kind].namespaced:
                names |= {item["metadata"].get("namespace", "default") for item in items}
        given = {item["metadata"]["name"]: clean(item) for item in self.kinds.get("Namespace", [])}
        blank = [{"kind": "Namespace", "metadata": {"name": name}} for name in names - set(given)]
        await self.client.each(self.create_namespace, [*given.values(), *blank])
        plain = [clean(item) for kind in PLAIN for item in self.kinds.get(kind, [])]
        await self.client.each(self.create_unless_there, plain)
        uids: dict[str, str] = {}

        async def create_node(item: Json) -> None:
            made = await self.client.create(clean_node(item))
            uids[made["metadata"]["name"]] = made["metadata"]["uid"]

        await self.client.each(create_node, self.kinds.get("Node", []))
        self.report.nodes = len(uids)
        return uids

    async def create_namespace(self, manifest: Json) -> None:
        """Create a namespace, or give one that is there the labels and notes of the file."""
        manifest.pop("spec", None)
        metadata = manifest["metadata"]
        if metadata["name"] not in SYSTEM:
            try:
                await self.client.create(manifest)
            except ApiError as error:
                if error.reason != "AlreadyExists":
                    raise
            else:
                return
        if metadata.get("labels") or metadata.get("annotations"):
            await self.client.patch("Namespace", metadata["name"], {"metadata": metadata})

    async def create_unless_there(self, manifest: Json) -> None:
        try:
            await self.client.create(manifest)
        except ApiError as error:
            # Such as kube-root-ca.crt, which a controller puts into every namespace.
            if error.reason != "AlreadyExists":
                raise

    async def sort_pods(self, nodes: dict[str, str]) -> list[tuple[Key, Json]]:
        """Choose and clean the pods; returns those to be owned, with their owner's key."""
        groups = await self.client.call("GET", "/apis")
        served = {"", *(group["name"] for group in groups["groups"])}
        owned: list[tuple[Key, Json]] = []
        for item in self.kinds.get("Pod", []):
            if (item.get("status") or {}).get("phase") in {"Succeeded", "Failed"}:
                self.report.finished += 1
                continue
            pod = clean_pod(item)
            name = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
            node = pod["spec"].get("nodeName")
            if node and node not in nodes:
                self.problem(f"pod {name} is left out: its node {node} is not in the file")
                continue
            self.pods.append(pod)
            for reference in item["metadata"].get("ownerReferences") or []:
                kind = reference["kind"]
                group = reference["apiVersion"].rpartition("/")[0]
                if kind in owners.KINDS and group in served and reference.get("controller"):
                    key = (kind, pod["metadata"]["namespace"], reference["name"])
                    owned.append((key, pod))
                elif kind == "Node" and reference["name"] in nodes:
                    true = {**reference, "uid": nodes[reference["name"]]}
                    pod["metadata"].setdefault("ownerReferences", []).append(true)
                elif group not in served:
                    # Nobody here can look such an owner up, so the garbage collector waits.
                    pod["metadata"].setdefault("ownerReferences", []).append(reference)
                else:
                    self.problem(f"pod {name} loses its owner {kind} {reference['name']}")
        return owned

    def check_owners(self) -> None:
        for owner in self.owners:
            kind, namespace, name = owner.key
            ordinals = owners.ordinals_of(owner) if kind == "StatefulSet" else []
            if ordinals and ordinals != list(range(ordinals[0], ordinals[0] + len(owner.pods))):
                self.problem(f"{kind} {namespace}/{name} has gaps: ordinals {ordinals}")
            if kind == "DaemonSet":
                nodes = Counter(owners.daemon_node(pod) for pod in owner.pods)
                twice = [node for node, count in nodes.items() if count > 1]
                if twice:
                    self.problem(f"{kind} {namespace}/{name} has two pods on {twice}")

    async def create_owner(self, owner: Owner) -> None:
        made = await self.client.create(owner.manifest)
        self.report.uids[owner.key] = made["metadata"]["uid"]
        self.report.owners[owner.key[0]] += 1

    def problem(self, text: str) -> None:
        self.report.problems.append(text)

    async def rest(self, bound: list[Json]) -> None:
        """Wait until the cluster has come to rest, then compare it with the file."""
        running = {_key("Pod", pod) for pod in bound if PHASE not in _annotations(pod)}
        # One that is not to be Ready runs too: until then no budget would keep it.
        started = running | {_key("Pod", pod) for pod in bound if _annotations(pod).get(PHASE) == "Unready"}
        until = time.monotonic() + self.deadline
        missed = time.monotonic() + MISSED

        async def not_running() -> str:
            nonlocal missed
            field_selector = "status.phase!=Running"
            async for page in self.client.pages("Pod", page=200, fieldSelector=field_selector):
                if found := [pod for pod in page if _key("Pod", pod) in started]:
                    if time.monotonic() > missed:
                        # kwok may never take notice of a pod that it met before the pod's node.
                        await self.client.each(self.touch, found)
                        missed = time.monotonic() + MISSED
                    return f"{found[0]['metadata']['name']} is {found[0]['status'].get('phase')}"
            return ""

        async def uncounted() -> str:
            for kind in self.report.owners:
                wanted = {owner.key: owner for owner in self.owners if owner.key[0] == kind}
                for item in await self.client.list(kind):
                    owner = wanted.get(_key(kind, item))
                    status = item.get("status") or {}
                    if owner and not _counted(owner, status):
                        return f"{'/'.join(owner.key)} says {status}, has {len(owner.pods)} pods"
            return await self.uncounted_budget()

        await wait_while(not_running, self.deadline, "loaded pods run")
        left = max(1.0, until - time.monotonic())
        await wait_while(uncounted, left, "owners and budgets count their pods")
        await self.compare(running)

    async def touch(self, pod: Json) -> None:
        await settle.touch(self.client, pod["metadata"]["name"], pod["metadata"]["namespace"])

    async def uncounted_budget(self) -> str:
        if not self.budgets:
            return ""
        wanted = {_key("PodDisruptionBudget", item): item for item in self.budgets}
        for item in await self.client.list("PodDisruptionBudget"):
            budget = wanted.get(_key("PodDisruptionBudget", item))
            if budget and not self.budget_counted(budget, item):
                return f"budget {item['metadata']['name']} says {item.get('status')}"
        return ""

    def budget_counted(self, budget: Json, live: Json) -> bool:
        namespace = live["metadata"]["namespace"]
        matched = [
            pod
            for pod in self.pods
            if pod["metadata"]["namespace"] == namespace
            and matches(budget["spec"].get("selector"), pod["metadata"].get("labels") or {})
        ]
        status = live.get("status") or {}
        healthy = sum(1 for pod in matched if pod["spec"].get("nodeName") and PHASE not in _annotations(pod))
        mine = {id(pod) for owner in self.owners for pod in owner.pods}
        owned = sum(id(pod) in mine for pod in matched)
        # What it says before pods are adopted lasts until they are: a share of none, of which none may go.
        counted = status.get("currentHealthy", 0) >= healthy and status.get("expectedPods", 0) >= owned
        if status.get("observedGeneration") and counted:
            return True
        # A share of pods without a known scale can't be computed; that is its final state.
        failed = any(c.get("reason") == "SyncFailed" for c in status.get("conditions") or [])
        return failed and owned < len(matched)

    async def compare(self, running: set[Key]) -> None:
        """Raise LoadError unless each pod is Ready and has its owner's uid."""
        uid_of = {_key("Pod", pod): self.report.uids[owner.key] for owner in self.owners for pod in owner.pods}
        wrong: list[str] = []
        absent = set(running)
        async for page in self.client.pages("Pod"):
            for pod in page:
                key = _key("Pod", pod)
                absent.discard(key)
                references = pod["metadata"].get("ownerReferences") or []
                uids = {reference["uid"] for reference in references}
                if key in running and not _ready(pod):
                    wrong.append(f"{key[1]}/{key[2]} is not Ready")
                if key in uid_of and uid_of[key] not in uids:
                    wrong.append(f"{key[1]}/{key[2]} is not owned by {uid_of[key]}")
        wrong += [f"{namespace}/{name} is gone" for _, namespace, name in absent]
        if wrong:
            raise LoadError(f"{len(wrong)} pods differ: {'; '.join(sorted(wrong)[:10])}")


def _key(kind: str, item: Json) -> Key:
    return kind, item["metadata"].get("namespace", "default"), item["metadata"]["name"]


def _annotations(pod: Json) -> Json:
    return pod["metadata"].get("annotations") or {}


def _ready(pod: Json) -> bool:
    conditions = pod["status"].get("conditions") or []
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def _counted(owner: Owner, status: Json) -> bool:
    """Whether the owner's status counts all its pods, and as Ready all that are to be."""
    count = len(owner.pods)
    ready = sum(1 for pod in owner.pods if pod["spec"].get("nodeName") and PHASE not in _annotations(pod))
    match owner.key[0]:
        case "DaemonSet":
            return status.get("desiredNumberScheduled") == count and status.get("numberReady", 0) >= ready
        case "Job":
            return status.get("active") == count and status.get("ready", 0) >= ready
        case _:
            return status.get("replicas") == count and status.get("readyReplicas", 0) >= ready
