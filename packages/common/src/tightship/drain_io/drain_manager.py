"""Manages all drains of one controller: claims new ones within the budget, and takes over those that it finds.

Every claim is first an entry in the cluster-wide ledger (:mod:`tightship.drain_io.claims`) and then one
compare-and-swap patch of the node. A crash in between leaves an entry without a claim; a crash afterwards leaves a
claim that nobody drives. :meth:`Drainer.adopt` finds and repairs both at the start of every loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from tightship.core.api_errors import Conflict, KubeError, NotFound, one_line
from tightship.core.drain_record import UNPRICED, DrainRecord, Ending, Finished, Phase, Price
from tightship.core.objects import Node
from tightship.core.reasons import Reason, Refusal
from tightship.drain.events import DrainEvent, EventKind
from tightship.drain.machine import claimed, inherited, mended
from tightship.drain.requests import forsaken
from tightship.drain.steps import NodeChange
from tightship.drain_io.claims import Allows, Claim, ClaimLedger
from tightship.drain_io.drain_task import Drive
from tightship.drain_io.history import DrainHistory
from tightship.drain_io.installations import Installations
from tightship.drain_io.lost_records import LostRecords
from tightship.drain_io.orphans import Others
from tightship.drain_io.requesting import withdraw_all
from tightship.drain_io.tools import Tools, collected
from tightship.drain_io.writing import LiveNode, claim_patch, read_node, record_patch
from tightship.kube.host import token
from tightship.planning.cluster import Snapshot
from tightship.planning.installations import Beside
from tightship.planning.nodes import drain_record, owner_elsewhere

_log = logging.getLogger(__name__)


class _Driven(NamedTuple):
    """A drain that this replica drives, and its claim."""

    drive: Drive
    task: asyncio.Task[None]
    claim: Claim


class Drainer:
    """Drains nodes for *controller*; *holder* names this replica, *epoch* its term of leadership by the Lease *lease*.

    Drains under another Lease are another installation's. They are left alone while *installations* has it alive, and
    while ``Tools.releasing`` is true. Then, unless *unnamed* is true, so are those without a Lease. Only the leader
    calls methods, one at a time.
    """

    def __init__(
        self,
        tools: Tools,
        ledger: ClaimLedger,
        history: DrainHistory,
        *,
        controller: str,
        holder: str,
        epoch: Callable[[], int],
        pool_of: Callable[[Node], str],
        price_of: Callable[[Node], Price] = lambda _: UNPRICED,
        lease: str = "",
        unnamed: bool = False,
        installations: Installations | None = None,
    ) -> None:
        self._tools = tools
        self._ledger = ledger
        self._history = history
        self._pool_of = pool_of
        self._price_of = price_of
        self._controller = controller
        self._holder = holder
        self._epoch = epoch
        self._lease = lease
        self._installations = installations
        self._others = Others(
            controller,
            lease,
            beside=lambda: Beside(controller) if installations is None else installations.beside,
            releasing=tools.releasing,
            released=frozenset({lease, ""} if unnamed else {lease}),
        )
        self._drives: dict[str, _Driven] = {}
        self._lost = LostRecords()
        self.pauses = self._lost.refusal

    @property
    def driving(self) -> frozenset[str]:
        """The names of the nodes whose drains this replica drives."""
        return frozenset(self._drives)

    @property
    def problems(self) -> Sequence[str]:
        """Whole sentences about what keeps drains from beginning, or their history from being kept."""
        return tuple(each for each in (self._history.problem, self._lost.problem) if each)

    @property
    def elsewhere(self) -> Sequence[tuple[str, str]]:
        """Nodes in drain by a controller that keeps its claims elsewhere, each with that controller's name."""
        return self._others.elsewhere

    def held(self, snapshot: Snapshot) -> Sequence[str]:
        """Return the names of the nodes that this controller's drains hold."""
        found = {name for name, view in snapshot.nodes.items() if self._others.owns(view.node)}
        return sorted(found | set(self._drives))

    def landings(self, snapshot: Snapshot) -> Mapping[str, str]:
        """Return the nodes where pods should land, by uid: those still to be evicted, and replacements on their way."""
        pilot = self._tools.pilot
        if pilot is None or not pilot.available:
            return {}
        found = dict(pilot.targets())
        for name, each in self._drives.items():
            wanted, view = each.drive.guided.targets, snapshot.nodes.get(name)
            if wanted and view is not None:
                found |= {
                    each.uid: wanted[each.uid]
                    for each in view.pods
                    if each.uid in wanted and not snapshot.replaced(each)
                }
        return found

    async def unfinished(self, snapshot: Snapshot) -> bool:
        """Return whether a drain of this controller is under way: driven here, recorded on a node, or in the ledger.

        Writes nothing. Raises :class:`~tightship.core.api_errors.KubeError`.
        """
        if self.held(snapshot):
            return True
        return any(self._others.owns_claim(each) for each in await self._ledger.read())

    async def claim(
        self, node: Node, *, pool: str, plan_hash: str, allows: Allows, targets: Mapping[str, str] = {}
    ) -> Refusal | None:
        """Claim *node* (as it was judged) and start its drain. Return ``None`` if the drain has started, else why not.

        *targets* are the plan's nodes for the node's pods, by uid. *allows* gets all claims of the cluster except this
        one. Raises :class:`~tightship.core.api_errors.KubeError` if the server does not report the outcome. The entry
        then stays, and :meth:`adopt` checks the node.
        """
        if (paused := self.pauses(node.name)) is not None:
            return paused
        op = token(16)
        claim = self._entry(node, op, pool, self._tools.clock())
        known = self._installations
        refusal = await self._ledger.take(
            claim,
            allows,
            lambda: [each.claim for each in self._drives.values()],
            lambda lease: None if known is None else known.refuses(node, lease),
        )
        if refusal is not None:
            return refusal
        refusal = await self._claim_node(node, op, plan_hash, targets)
        if refusal is not None:
            await self._ledger.drop(node.name, op)
        return refusal

    async def _claim_node(self, node: Node, op: str, plan_hash: str, targets: Mapping[str, str]) -> Refusal | None:
        live = await read_node(self._tools.connection, node.name)
        if live is None or live.node.uid != node.uid:
            return Refusal(Reason.NODE_TERMINATING, node.name, "the node is gone")
        keeps = self._tools.settings().keeps(self._tools.cache.snapshot(), live.node)
        refusal = owner_elsewhere(live.node) or min(keeps, default=None)
        if refusal is not None:
            return refusal
        previous = drain_record(live.node)
        if live.node.unschedulable or (previous is not None and previous.owns_node):
            return Refusal(Reason.CORDONED, node.name, "somebody else has taken the node since it was judged")
        changed = live.node.annotations != node.annotations or live.node.labels != node.labels
        if changed or not self._tools.leading():
            why = "the node has changed and must be judged again first" if changed else "leadership has ended"
            return Refusal(Reason.COOL_DOWN, node.name, why)
        record = claimed(
            live.node,
            previous,
            op=op,
            controller=self._controller,
            holder=self._holder,
            epoch=self._epoch(),
            lease=self._lease,
            plan_hash=plan_hash,
            now=self._tools.clock(),
        )
        try:
            after = await self._tools.patch(live, claim_patch(live, record))
        except NotFound:
            return Refusal(Reason.NODE_TERMINATING, node.name, "the node is gone")
        except Conflict:
            return Refusal(Reason.COOL_DOWN, node.name, "the node has changed and must be judged again first")
        if drain_record(after.node) is None:
            self._lost.lost(node.name)  # the claim was one write, so that cordon and taint are ours
            await self._tools.patch(after, record_patch(after, None, NodeChange.RESTORE))
            return self.pauses(node.name)
        self._tools.tell(DrainEvent(EventKind.CLAIMED, after.node, record))
        self._drive(after.node, record, targets)
        return None

    async def adopt(self, snapshot: Snapshot, *, others: bool = True, ledger: bool = True) -> None:
        """Take over drains that nobody drives, and repair what a crash left, on nodes and in the *ledger*.

        Without *others*, only this controller's drains count: a controller that is switched off ends just its own. An
        annotation that nobody can read is anybody's to repair, but a dry run, which has no *ledger*, leaves it.
        Raises :class:`~tightship.core.api_errors.KubeError`; the next call repairs the rest.
        """
        troubles: list[KubeError] = []
        self._lost.look(snapshot)
        nodes = [view.node for view in snapshot.nodes.values()]
        theirs = [node for node in nodes if self._others.hold(node)]
        self._others.see_drains(theirs)
        for name, view in snapshot.nodes.items():
            if self._may_adopt(name) and self._suspicious(view.node, others, unreadable=ledger):
                await collected(self._adopt_node(name, others, unreadable=ledger), troubles)
        driven = {*self._drives, *(node.name for node in theirs)}
        troubles += await withdraw_all(self._tools, forsaken(snapshot, self._controller, driven))
        for entry in await self._read_claims(snapshot) if ledger else ():
            if self._may_adopt(entry.node) and self._others.forsaken(entry, self._tools.clock(), others=others):
                await collected(self._mend_entry(entry), troubles)
        if troubles:
            raise troubles[0]

    def _may_adopt(self, name: str) -> bool:
        return name not in self._drives and self._tools.leading()

    async def _read_claims(self, snapshot: Snapshot) -> Sequence[Claim]:
        claims = await self._ledger.read()
        self._others.see_claims(claims, snapshot)
        return claims

    def _suspicious(self, node: Node, others: bool, *, unreadable: bool) -> bool:
        return self._others.suspicious(node, self._tools.clock(), others=others, unreadable=unreadable)

    async def _adopt_node(self, name: str, others: bool, *, unreadable: bool) -> None:
        live = await read_node(self._tools.connection, name)
        if live is None or not self._suspicious(live.node, others, unreadable=unreadable) or not self._tools.leading():
            return
        record = drain_record(live.node)
        if record is None or record.phase is Phase.UNKNOWN or not record.owns_node:
            await self._mend_orphan(live, record)
            return
        epoch = max(self._epoch(), record.epoch + 1)
        taken = msgspec.structs.replace(record, holder=self._holder, epoch=epoch, lease=self._lease)
        because: Refusal | None = None
        if record.controller != self._controller:
            taken, because = inherited(taken, live.node, self._controller, self._tools.clock())
        after = await self._tools.patch(live, record_patch(live, taken, NodeChange.NOTHING))
        event = DrainEvent(EventKind.TAKEN_OVER, after.node, taken, before=record.phase, because=because)
        self._tools.tell(event)
        self._drive(after.node, taken)

    async def _mend_orphan(self, live: LiveNode, record: DrainRecord | None) -> None:
        """Repair a node with our taint, or with an unreadable annotation.

        A node that an autoscaler has taken meanwhile stays as it is until the autoscaler gives it back.
        """
        if owner_elsewhere(live.node) is not None:
            return
        mend = mended(live.node, record, self._controller, self._tools.settings().rules, self._tools.clock())
        after = await self._tools.patch(live, record_patch(live, mend.record, mend.change))
        self._tools.tell(DrainEvent(EventKind.PHASE, after.node, mend.record, because=mend.because))

    async def _mend_entry(self, entry: Claim) -> None:
        """Drop an entry whose node no longer carries that drain.

        The entry may belong to a claim whose patch is still on its way from a replica that was stopped. So this method
        writes the node first, and such a patch then meets another version and fails.
        """
        live = await read_node(self._tools.connection, entry.node)
        record = drain_record(live.node) if live is not None else None
        if record is not None and record.owns_node and record.op in (entry.op, ""):
            return  # the next adopt() takes it over, or mends it
        if live is not None and (record is None or (not record.owns_node and record.op != entry.op)):
            reason = str(Refusal(Reason.ORPHANED, entry.node, "the claim was never written on the node"))
            note = record or DrainRecord(phase=Phase.BACKOFF, controller=self._controller, reason=reason)
            note = msgspec.structs.replace(note, op=entry.op)
            await self._tools.patch(live, record_patch(live, note, NodeChange.NOTHING))
        elif entry.controller == self._controller:
            await self._history.catch_up(entry, record, self._tools.clock())
        await self._ledger.drop(entry.node, entry.op)

    def _drive(self, node: Node, record: DrainRecord, targets: Mapping[str, str] = {}) -> None:
        drive = Drive(self._tools, node, record, targets)
        task = asyncio.create_task(self._run(drive, node, record), name=f"drain of {node.name}")
        since = record.entered(Phase.CLAIMED) or self._tools.clock()
        self._drives[node.name] = _Driven(drive, task, self._entry(node, record.op, self._pool_of(node), since))

    def _entry(self, node: Node, op: str, pool: str, since: float) -> Claim:
        return Claim(
            node=node.name,
            op=op,
            controller=self._controller,
            holder=self._holder,
            pool=pool,
            lease=self._lease,
            since=since,
        )

    async def _run(self, drive: Drive, node: Node, record: DrainRecord) -> None:
        try:
            ending = await drive.run()
            self._lost.ended(node.name, lost=drive.lost, backoff=drive.backoff)
            if ending is not Ending.PARKED:
                # History first: a crash in between leaves a claim, which counts, rather than a forgotten drain.
                finished = Finished(
                    node.name,
                    self._pool_of(node),
                    self._controller,
                    ending.value,
                    self._tools.clock(),
                    drive.reason,
                    record.entered(Phase.CLAIMED),
                    displaced=drive.displaced,
                    price=self._price_of(node),
                )
                await self._history.add(finished)
                await self._ledger.drop(node.name, record.op)
        except KubeError as error:
            # The entry stays: adopt() drops it.
            _log.warning("claim of node %s not dropped yet: %s", node.name, one_line(error))
        except Exception:
            _log.exception("drain of node %s broke off; it resumes from the annotation on the node", node.name)
        finally:
            self._drives.pop(node.name, None)

    def wake(self) -> None:
        """Make all drains look again now: settings changed, or the controller stops."""
        for each in self._drives.values():
            each.drive.wake.set()

    async def stop(self, timeout: float) -> Mapping[str, str]:  # noqa: ASYNC109 - its end is a value
        """Let every drain finish what it must, or park. Return the drains that still run after *timeout* seconds.

        The caller first makes ``Tools.stopping`` true.
        """
        self.wake()
        tasks = {each.task: name for name, each in self._drives.items()}
        if not tasks:
            return {}
        _, left = await asyncio.wait(tasks, timeout=timeout)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        return {tasks[task]: "the annotation stays on the node for the next leader" for task in left}
