"""Gangs: groups of pods that run together or not at all, so that one eviction breaks the whole group. Pure.

A pod names its PodGroup in its spec. LeaderWorkerSet, JobSet, Kueue and Volcano mark the pods of a group with labels or
annotations. By default no pod of a gang is evicted. The owner of a gang may allow that it goes as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import Struct

from tightship.cluster import Snapshot
from tightship.cluster.owners import annotating
from tightship.objects import LEADER_WORKER_SET, POD_GROUP, Pod, PodTemplate
from tightship.objects.counting import counted, some
from tightship.objects.drain_record import DRAIN_ANNOTATION, Phase, decode_record
from tightship.objects.groups import GroupRule
from tightship.objects.reasons import Reason, Refusal

EVICT_TOGETHER = "tightship.dev/evict-together"
"""``true`` on the pods of a gang: a drain of the one node where all of them run may evict them all."""

LEADER_WORKER_SET_NAME = "leaderworkerset.sigs.k8s.io/name"
LEADER_WORKER_SET_GROUP = "leaderworkerset.sigs.k8s.io/group-index"
JOB_SET_NAME = "jobset.sigs.k8s.io/jobset-name"
KUEUE_GROUP = "kueue.x-k8s.io/pod-group-name"
KUEUE_SERVING = "kueue.x-k8s.io/pod-group-serving"
"""Kueue's mark of groups whose pods serve on their own."""
COSCHEDULING = (
    "scheduling.x-k8s.io/pod-group",
    "pod-group.scheduling.sigs.k8s.io",
    "pod-group.scheduling.sigs.k8s.io/name",
)
"""Labels of the coscheduling plugin (scheduler-plugins, ``pkg/util/constants.go``): today's, and two older ones, which
Koordinator reads too."""
VOLCANO_GROUPS = ("scheduling.volcano.sh/group-name", "scheduling.k8s.io/group-name")
VOLCANO_LEAST = "scheduling.volcano.sh/group-min-member"
VOLCANO_JOB = "volcano.sh/job-name"

_BROKEN = "which can't be read: "

SHOWN = 3
"""Nodes that a refusal names."""


class Gang(Struct, frozen=True):
    """A group as its pods name it: *group* of the *owner* (kind and name), or the owner itself if *group* is empty."""

    kind: str
    namespace: str
    owner: str
    group: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.owner}{f', group {self.group}' if self.group else ''}"


class Gangs:
    """The gangs of one snapshot."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._named: dict[PodTemplate, tuple[Gang, ...]] = {}
        self._members: Mapping[Gang, list[Pod]] | None = None

    def marked(self, template: PodTemplate) -> bool:
        """Whether pods of *template* name a group in their spec or labels."""
        return bool(self._of_template(template))

    def names(self, pod: Pod) -> bool:
        """Whether *pod* names a group."""
        return any(True for _ in self._named_by(pod))

    def refusal(self, pod: Pod) -> Refusal | None:
        """Return why evicting *pod* would break its gang, ``None`` if it would not."""
        for gang in self._named_by(pod):
            why = self._why(gang)
            if why:
                return self._judged(pod, gang, why)
        return None

    def _judged(self, pod: Pod, gang: Gang, why: str) -> Refusal | None:
        members = self._all().get(gang, [])
        elsewhere = sorted({each.node for each in members} - {pod.node})
        agreed = all(each.annotations.get(EVICT_TOGETHER) == "true" for each in members if each.node == pod.node)
        if len(members) < 2 or (agreed and (not elsewhere or self._begun(pod.node))):
            return None
        others = counted(len(members) - 1, "other pod")
        named = some([name or "none yet" for name in elsewhere], SHOWN)
        where = f"also on {counted(len(elsewhere), 'other node')}: {named}" if elsewhere else "all on this node"
        detail = f"runs together with {others} of {gang} ({why}), {where}"
        fix = self._fix(gang, why) if elsewhere else annotating(self._snapshot, pod, EVICT_TOGETHER, "true")
        return Refusal(Reason.GANG_WOULD_BREAK, pod.key, detail, fix)

    def _begun(self, node: str) -> bool:
        """Whether a drain of *node* evicts already: then replacements of the gang's first pods run elsewhere."""
        view = self._snapshot.nodes.get(node)
        text = None if view is None else view.node.annotations.get(DRAIN_ANNOTATION)
        record = None if text is None else decode_record(text)
        return record is not None and record.owns_node and record.phase is not Phase.CLAIMED

    def _why(self, gang: Gang) -> str:
        """Return why pods of *gang* can't go one by one, or an empty string if they can, or nothing is known of it."""
        if gang.kind not in (POD_GROUP, LEADER_WORKER_SET):
            return "all or none of them run"
        rules: Mapping[str, GroupRule] = (
            self._snapshot.pod_groups if gang.kind == POD_GROUP else self._snapshot.leader_worker_sets
        )
        rule = rules.get(f"{gang.namespace}/{gang.owner}")
        if rule is None:
            unreadable = (each for each in self._snapshot.unreadable if each.kind == gang.kind)
            broken = (each for each in unreadable if (each.namespace, each.name) == (gang.namespace, gang.owner))
            return next((f"{_BROKEN}{each.problem}" for each in broken), "")
        return f"{_BROKEN}{rule.problem}" if rule.problem else rule.together

    def _fix(self, gang: Gang, why: str) -> str:
        if why.startswith(_BROKEN):
            return f"fix {gang.kind} {gang.namespace}/{gang.owner}"
        if gang.kind == LEADER_WORKER_SET:
            patch = '{"spec":{"leaderWorkerTemplate":{"restartPolicy":"None"}}}'
            return f"kubectl -n {gang.namespace} patch leaderworkerset {gang.owner} --type merge -p '{patch}'"
        if gang.kind == POD_GROUP:
            return f"create {gang} anew with disruptionMode single, if its pods can go one by one"
        return f"wait until {gang} has ended"

    def _all(self) -> Mapping[Gang, list[Pod]]:
        if self._members is None:
            found: dict[Gang, list[Pod]] = {}
            views = (view.pods for view in self._snapshot.nodes.values())
            for pods in (*views, self._snapshot.unscheduled):
                for pod in pods:
                    for gang in self._named_by(pod):
                        found.setdefault(gang, []).append(pod)
            self._members = found
        return self._members

    def _named_by(self, pod: Pod) -> Iterator[Gang]:
        """Yield the groups that *pod* names."""
        notes = pod.annotations
        for gang in self._of_template(pod.template):
            if gang.kind != "Kueue pod group" or notes.get(KUEUE_SERVING) != "true":
                yield gang
        if not notes:
            return
        name = next((notes[key] for key in VOLCANO_GROUPS if notes.get(key)), "")
        if name and (VOLCANO_JOB in notes or notes.get(VOLCANO_LEAST, "") not in ("", "0", "1")):
            yield Gang("Volcano pod group", pod.namespace, name)

    def _of_template(self, template: PodTemplate) -> tuple[Gang, ...]:
        found = self._named.get(template)
        if found is None:
            labels, namespace = template.labels, template.namespace
            leaders, number = labels.get(LEADER_WORKER_SET_NAME, ""), labels.get(LEADER_WORKER_SET_GROUP, "")
            gangs = (
                (LEADER_WORKER_SET, leaders, number),
                (POD_GROUP, template.spec.pod_group, ""),
                ("JobSet", labels.get(JOB_SET_NAME, ""), ""),
                ("Kueue pod group", labels.get(KUEUE_GROUP, ""), ""),
                ("pod group", next((labels[key] for key in COSCHEDULING if key in labels), ""), ""),
            )
            found = tuple([Gang(kind, namespace, owner, group) for kind, owner, group in gangs if owner])
            self._named[template] = found
        return found
