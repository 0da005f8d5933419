"""The drain machine against a small model of a node and who acts on it, and each of its transitions by name."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tightship.drain.machine import (
    DrainRules,
    Evict,
    Findings,
    Look,
    NodeChange,
    Over,
    Step,
    Wait,
    Write,
    advance,
    claimed,
)
from tightship.draining.writing import LiveNode, NodePatch, claim_patch, record_patch
from tightship.objects import Pod
from tightship.objects.drain_record import (
    DRAIN_ANNOTATION,
    FIELD_MANAGER,
    DrainRecord,
    Ending,
    Phase,
    decode_record,
    encode_record,
)
from tightship.objects.pod import DRAINING
from tightship.objects.reasons import Reason, Refusal
from tightship.rules.nodes import TO_BE_DELETED
from tightship_testkit import builders
from tightship_testkit.builders import NOW

Json = dict[str, Any]

OP = "op-1"
OTHERS = {"key": "dedicated", "value": "db", "effect": "NoSchedule"}
CA = {"key": TO_BE_DELETED, "value": "1", "effect": "NoSchedule"}
RULES = DrainRules(await_timeout=600.0)
_POD: Pod = builders.decoded(builders.pod())


def pod_named(name: str, **changes: Any) -> Pod:
    return msgspec.structs.replace(_POD, name=name, uid=f"uid-{name}", **changes)


def apply(raw: Json, patch: NodePatch) -> None:
    """What the API server makes of the patch."""
    for key, text in patch.annotations.items():
        if text is None:
            raw["metadata"]["annotations"].pop(key, None)
        else:
            raw["metadata"]["annotations"][key] = text
    if patch.taints is not None:
        raw["spec"]["taints"] = [dict(taint) for taint in patch.taints]
    if patch.unschedulable is not None:
        cordon(raw, patch.unschedulable, FIELD_MANAGER)


def cordon(raw: Json, on: bool, manager: str) -> None:
    """Who changes the value owns it from then on."""
    if bool(raw["spec"].get("unschedulable")) != on:
        owned = {"manager": manager, "fieldsV1": {"f:spec": {"f:unschedulable": {}}}}
        raw["spec"]["unschedulable"] = on
        raw["metadata"]["managedFields"] = [owned] if on else []


class DrainModel(RuleBasedStateMachine):
    """One node, what may happen to it, and a controller that sees it as it is."""

    drain_rules = RULES

    @initialize(cordoned=st.booleans(), count=st.integers(0, 3), rules=st.sampled_from([
        RULES,
        msgspec.structs.replace(RULES, keep_drained=True),
    ]))  # fmt: skip
    def begin(self, cordoned: bool, count: int, rules: DrainRules) -> None:
        self.drain_rules = rules
        self.now = NOW
        self.node: Json | None = builders.node(taints=[OTHERS])
        cordon(self.node, cordoned, "kubectl")
        self.wants_cordon = cordoned
        self.pods: dict[str, Pod] = {}
        self.stuck: set[str] = set()
        self.awaited: set[str] = set()
        self.names = 0
        self.ops = 0
        self.reset = False
        self.no_place = False
        self.budget = True
        self.pending: tuple[Pod, ...] = ()
        self.stopping = False
        self.ended: Ending | None = None
        self.start_over()
        for _ in range(count):
            self.bind()
        self.claim()

    def start_over(self) -> None:
        self.fresh = False
        self.progress = self.now
        self.not_ready_since: float | None = None
        self.stopping = False
        self.ended = None

    def claim(self) -> None:
        self.ops += 1
        self.op = f"op-{self.ops}"
        live = self.live
        record = claimed(
            live.node, self.record, op=self.op, controller="c", holder="h", epoch=1, plan_hash="p", now=self.now
        )
        self.save(claim_patch(live, record), record)
        self.start_over()

    # What there is.

    @property
    def raw(self) -> Json:
        assert self.node is not None
        return self.node

    @property
    def live(self) -> LiveNode:
        return LiveNode(builders.decoded(self.raw), "1", tuple(self.raw["spec"].get("taints") or ()))

    @property
    def record(self) -> DrainRecord | None:
        text = None if self.node is None else self.node["metadata"]["annotations"].get(DRAIN_ANNOTATION)
        return None if text is None else decode_record(text)

    @property
    def owned(self) -> bool:
        record = self.record
        return record is not None and record.owns_node

    def save(self, patch: NodePatch, record: DrainRecord | None) -> None:
        apply(self.raw, patch)
        assert self.record == record, "what is written is read back"

    def taint(self, taint: Json) -> None:
        self.raw["spec"]["taints"] = [*self.raw["spec"].get("taints", []), taint]

    def untaint(self, key: str) -> None:
        self.raw["spec"]["taints"] = [each for each in self.raw["spec"].get("taints", []) if each["key"] != key]

    def has(self, key: str) -> bool:
        return any(each["key"] == key for each in self.raw["spec"].get("taints", []))

    def ready(self, status: str) -> None:
        self.raw["status"]["conditions"][0]["status"] = status

    # What happens.

    @rule()
    def bind(self) -> None:
        """The API server lets pods be bound to a cordoned node."""
        self.names += 1
        pod = pod_named(f"web-{self.names}")
        self.pods[pod.uid] = pod

    @rule()
    def bind_a_job(self) -> None:
        self.bind()
        self.awaited.add(f"uid-web-{self.names}")

    @rule()
    def a_job_ends(self) -> None:
        for uid in self.awaited:
            self.pods.pop(uid, None)
        self.awaited.clear()

    @precondition(lambda self: self.pods)
    @rule(data=st.data())
    def a_pod_gets_stuck(self, data: st.DataObject) -> None:
        self.stuck.add(data.draw(st.sampled_from(sorted(self.pods))))

    @rule()
    def stuck_pods_get_loose(self) -> None:
        self.stuck.clear()

    @rule(allows=st.booleans())
    def a_budget_changes(self, allows: bool) -> None:
        self.budget = allows

    @rule(full=st.booleans())
    def room_elsewhere_changes(self, full: bool) -> None:
        self.no_place = full

    @rule()
    def a_replacement_is_pending(self) -> None:
        self.pending = (pod_named("new", created=int(self.now), node=""),)

    @rule()
    def it_is_bound(self) -> None:
        self.pending = ()

    @precondition(lambda self: self.node is not None and self.ended is None)
    @rule(
        what=st.sampled_from(
            [
                "a_person_uncordons",
                "somebody_removes_the_taint",
                "a_person_deletes_the_annotation",
                "the_autoscaler_takes_it",
                "the_node_is_deleted",
            ]
        )
    )
    def somebody_interferes(self, what: str) -> None:
        getattr(self, what)()

    def a_person_uncordons(self) -> None:
        cordon(self.raw, False, "kubectl")
        self.wants_cordon = False

    @precondition(lambda self: self.node is not None)
    @rule()
    def a_person_cordons(self) -> None:
        """Kubectl writes nothing on a node that is cordoned."""
        self.wants_cordon = self.wants_cordon or not self.raw["spec"].get("unschedulable")
        cordon(self.raw, True, "kubectl")

    def somebody_removes_the_taint(self) -> None:
        self.untaint(DRAINING.key)

    def a_person_deletes_the_annotation(self) -> None:
        self.reset = self.reset or self.owned
        self.raw["metadata"]["annotations"].pop(DRAIN_ANNOTATION, None)

    def the_autoscaler_takes_it(self) -> None:
        self.untaint(TO_BE_DELETED)
        self.taint(CA)

    @precondition(lambda self: self.node is not None and self.has(TO_BE_DELETED))
    @rule(uncordons=st.booleans())
    def the_autoscaler_rolls_back(self, uncordons: bool) -> None:
        self.untaint(TO_BE_DELETED)
        if uncordons:
            self.a_person_uncordons()

    @precondition(lambda self: self.node is not None)
    @rule(status=st.sampled_from(["True", "False", "Unknown"]))
    def readiness_changes(self, status: str) -> None:
        self.ready(status)

    def the_node_is_deleted(self) -> None:
        self.node = None
        self.pods.clear()

    @rule()
    def crash(self) -> None:
        self.start_over()

    @rule()
    def stop(self) -> None:
        self.stopping = True

    @rule(seconds=st.sampled_from([1.0, 5.0, 61.0, 599.0, 1800.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        gone = [uid for uid, pod in self.pods.items() if pod.deletion is not None and pod.deletion <= self.now]
        for uid in gone:
            if uid not in self.stuck:
                del self.pods[uid]

    @precondition(lambda self: self.ended is not None and (self.node is None or self.reset))
    @rule()
    def a_new_node_comes(self) -> None:
        self.node = builders.node(taints=[OTHERS])
        self.wants_cordon = self.reset = False
        self.pods.clear()
        self.claim()

    @precondition(lambda self: self.can_claim_again)
    @rule()
    def it_is_claimed_again(self) -> None:
        self.claim()

    @property
    def can_claim_again(self) -> bool:
        if self.node is None or self.node["spec"].get("unschedulable") or self.has(TO_BE_DELETED) or self.reset:
            return False
        record = self.record
        return record is not None and not record.owns_node and self.now >= (record.next_try or 0.0)

    # What the controller does.

    def seen(self) -> Findings:
        node = None if self.node is None else self.live.node
        if node is not None:
            self.not_ready_since = None if node.ready else (self.not_ready_since or self.now)
        leaving = tuple(pod for pod in self.pods.values() if pod.deletion is not None)
        staying = [pod for pod in self.pods.values() if pod.deletion is None]
        awaits = tuple(pod for pod in staying if pod.uid in self.awaited)
        evict = tuple(pod for pod in staying if pod.uid not in self.awaited)
        record = self.record
        began = 0.0 if record is None else record.entered(Phase.EVICTING) or 0.0
        if leaving or awaits or (node is not None and not node.ready):
            self.progress = self.now
        late = self.now >= max(began, self.progress) + self.drain_rules.pod_timeout
        return Findings(
            node=node,
            evict=evict,
            awaits=awaits,
            leaving=leaving,
            next=evict if self.budget else (),
            against=(Refusal(Reason.NO_PLACE, "shop/web-1"),) if self.no_place and evict else (),
            late=tuple(Refusal(Reason.PDB_EXHAUSTED, pod.key) for pod in evict if late and not self.budget),
            pending=self.pending,
            fresh=self.fresh,
            judged=self.fresh,
            stopping=self.stopping,
            not_ready_since=self.not_ready_since,
        )

    @precondition(lambda self: self.ended is None)
    @rule()
    def the_controller_goes_on(self) -> None:
        self.go_on()

    @rule(steps=st.integers(2, 8))
    def nothing_disturbs_it(self, steps: int) -> None:
        for _ in range(steps):
            if self.ended is not None:
                return
            step = self.go_on()
            if isinstance(step, Wait):
                self.time_passes(step.until - self.now)

    def go_on(self) -> Step:
        record, seen = self.record, self.seen()
        step = advance(self.op, record, seen, self.drain_rules, self.now)
        self.fresh = False
        match step:
            case Look():
                self.fresh = True
            case Evict(pods=pods):
                self.check_eviction(record, seen, pods)
                for pod in pods:
                    self.pods[pod.uid] = msgspec.structs.replace(pod, deletion=int(self.now) + 30)
            case Write():
                self.check_write(record, seen, step)
                self.save(record_patch(self.live, step.record, step.change), step.record)
            case Over(ending=ending):
                self.ended = ending
                assert (ending is Ending.PARKED) <= self.stopping
            case Wait(until=until):
                assert until > self.now, "waiting for the past is a busy loop"
        return step

    def check_eviction(self, record: DrainRecord | None, seen: Findings, pods: tuple[Pod, ...]) -> None:
        assert record is not None
        assert record.phase is Phase.EVICTING
        assert self.now >= record.since["Claimed"] + self.drain_rules.settle
        assert not self.stopping
        assert not self.has(TO_BE_DELETED)
        assert self.has(DRAINING.key)
        assert self.raw["spec"]["unschedulable"]
        assert not self.wants_cordon
        assert self.raw["status"]["conditions"][0]["status"] == "True"
        assert not seen.awaits
        assert pods
        assert all(self.pods[pod.uid].deletion is None for pod in pods)

    def check_write(self, record: DrainRecord | None, seen: Findings, step: Write) -> None:
        after = step.record
        assert record is not None
        assert after is not None
        assert record.owns_node, "a node that is not ours is not written on"
        if record.phase is Phase.CLAIMED and after.phase is Phase.EVICTING:
            assert seen.fresh
            assert seen.judged
            assert not seen.against
        if after.phase is Phase.DRAINED and record.phase is not Phase.DRAINED:
            assert seen.fresh
            assert not seen.evict
            assert not seen.awaits
        if record.phase is Phase.RESTORING and after.phase is Phase.BACKOFF:
            assert after.attempts == record.attempts + 1
            pause = min(self.drain_rules.backoff_limit, self.drain_rules.backoff * 2 ** (after.attempts - 1))
            assert after.next_try == self.now + pause
        if after.phase in (Phase.RESTORING, Phase.YIELDED):
            assert after.reason
            assert step.change is NodeChange.NOTHING
        if after.phase is Phase.BACKOFF and record.phase is not Phase.RESTORING:
            assert after.next_try == self.now + self.drain_rules.hold_off
            assert after.attempts == record.attempts

    # What must hold at all times.

    @invariant()
    def what_is_ours_is_written_down(self) -> None:
        if self.node is None or self.reset:
            return
        if self.has(DRAINING.key):
            assert self.owned
        if self.raw["spec"].get("unschedulable") and not self.wants_cordon:
            assert self.owned

    @invariant()
    def what_is_not_ours_is_left_alone(self) -> None:
        if self.node is None:
            return
        assert OTHERS in self.raw["spec"]["taints"]
        if self.wants_cordon:
            assert self.raw["spec"]["unschedulable"]

    @invariant()
    def a_record_fits_its_annotation(self) -> None:
        record = self.record
        if record is not None:
            assert decode_record(encode_record(record)) == record
            assert len(encode_record(record).encode()) < 2048

    def teardown(self) -> None:
        """Whatever has happened, a controller that is left in peace brings the drain to its end."""
        if not hasattr(self, "now"):
            return
        if self.ended is Ending.PARKED or self.stopping:
            self.start_over()
        self.a_job_ends()
        for _ in range(1000):
            if self.ended is not None:
                break
            step = self.go_on()
            if isinstance(step, Wait):
                self.time_passes(step.until - self.now)
        record = self.record
        match self.ended:
            case None:
                assert self.node is not None
                kept = self.drain_rules.keep_drained and record is not None and record.phase is Phase.DRAINED
                assert self.has(TO_BE_DELETED) or kept, f"a drain that never ends: {record}"
                assert record is not None
                assert record.phase in (Phase.YIELDED, Phase.DRAINED)
            case Ending.HANDED_OVER | Ending.NODE_GONE:
                assert self.node is None
            case Ending.RESTORED if self.node is not None:
                assert record is None or record.phase is Phase.BACKOFF
                assert not self.has(DRAINING.key)
                assert bool(self.raw["spec"].get("unschedulable")) == self.wants_cordon
            case _:
                assert self.ended in (Ending.NOT_OURS, Ending.RESTORED)
                assert record is None or record.op != self.op


TestDrainModel = DrainModel.TestCase
TestDrainModel.settings = settings(
    max_examples=300, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
