"""Manages all drains of one controller: claims new ones within the budget, and takes over those that it finds.

Every claim is first an entry in the cluster-wide ledger (:mod:`tightship.draining.claims`) and then one
compare-and-swap patch of the node. A crash in between leaves an entry without a claim; a crash afterwards leaves a
claim that nobody drives. :meth:`Drainer.adopt` finds and repairs both at the start of every loop. A drain that ends
leaves the ledger and enters the history in one write.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from tightship.cluster import Snapshot
from tightship.cluster.installations import Beside
from tightship.drain.events import DrainEvent, EventKind
from tightship.drain.machine import claimed, inherited, mended
from tightship.drain.steps import NodeChange
from tightship.draining.claims import Allows, Claim, Wish, claims_in, dropping, take
from tightship.draining.drain_task import Drive
from tightship.draining.history import adding, catching_up
from tightship.draining.installations import Installations
from tightship.draining.ledger import Ledger
from tightship.draining.lost_records import LostRecords
from tightship.draining.orphans import Others
from tightship.draining.tools import Tools, collected
from tightship.draining.writing import LiveNode, as_written, claim_patch, read_node, record_patch
from tightship.kube.host import token
from tightship.kube.leases import Lease
from tightship.objects import Node
from tightship.objects.api_errors import Conflict, KubeError, NotFound, one_line
from tightship.objects.drain_record import UNPRICED, DrainRecord, Ending, Finished, Phase, Price
from tightship.objects.reasons import Reason, Refusal
from tightship.rules.nodes import drain_record, owner_elsewhere

_log = logging.getLogger(__name__)

TOGETHER = 0.25
"""Seconds that the end of a drain waits for the ends of others: autoscalers delete nodes in bursts."""


class Order(NamedTuple):
    """A *node* to drain, as it was judged. *targets* are the plan's nodes for its pods, by uid.

    *allows* gets all claims of the cluster except this one.
    """

    node: Node
    pool: str
    plan_hash: str
    allows: Allows
    targets: Mapping[str, str] = {}


class _Driven(NamedTuple):
    """A drain that this replica drives, and its claim."""

    drive: Drive
    task: asyncio.Task[None]
    claim: Claim


class Drainer:
    """Drains nodes for *controller*; *holder* names this replica, *epoch* its term of leadership by the Lease *lease*.

    Drains under another Lease are another installation's. They are left alone while *installations* has it alive, and
    while ``Tools.releasing`` is true. Only the leader calls methods, one at a time.
    """

    def __init__(
        self,
        tools: Tools,
        ledger: Ledger,
        *,
        controller: str,
        holder: str,
        epoch: Callable[[], int],
        pool_of: Callable[[Node], str],
        price_of: Callable[[Node], Price] = lambda _: UNPRICED,
        lease: str = "",
        installations: Installations | None = None,
    ) -> None:
        self._tools = tools
        self._ledger = ledger
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
        return tuple(each for each in (self._ledger.problem, self._lost.problem) if each)

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

        Writes nothing. Raises :class:`~tightship.objects.api_errors.KubeError`.
        """
        if self.held(snapshot):
            return True
        return any(self._others.owns_claim(each) for each in claims_in(await self._ledger.read()))

    async def claim(self, orders: Sequence[Order]) -> Sequence[Refusal | None]:
        """Claim the nodes of *orders*, and start their drains: ``None`` where the drain has started, else why not.

        Nothing is claimed any more after a refusal for want of a budget: the answers may be fewer than the orders.
        Raises ``KubeError`` if the server does not report an outcome. The entries then
        stay, and :meth:`adopt` checks their nodes.
        """
        known, now = self._installations, self._tools.clock()

        def wish(order: Order) -> Wish:
            def allows(claims: tuple[Claim, ...]) -> Refusal | None:
                return self.pauses(order.node.name) or order.allows(claims)

            def beside(lease: Lease) -> Refusal | None:
                return None if known is None else known.refuses(order.node, lease)

            return Wish(self._entry(order.node, token(16), order.pool, now), allows, beside)

        wishes = [wish(order) for order in orders]
        answers = list(await take(self._ledger, wishes, lambda: [each.claim for each in self._drives.values()]))
        granted = [at for at, refusal in enumerate(answers) if refusal is None]
        in_vain: list[tuple[str, str]] = []

        async def begin(at: int) -> None:
            entry = wishes[at].claim
            answers[at] = await self._claim_node(orders[at], entry.op)
            if answers[at] is not None:
                in_vain.append((entry.node, entry.op))

        outcomes = await asyncio.gather(*map(begin, granted), return_exceptions=True)
        if in_vain:
            await self._ledger.change(dropping(in_vain))
        for error in outcomes:
            if error is not None:
                raise error
        return answers

    async def _claim_node(self, order: Order, op: str) -> Refusal | None:
        """Write the claim on the node as the cache has it, or, if that is outdated, as the server has it."""
        node = order.node
        view = self._tools.cache.snapshot().nodes.get(node.name)
        live = as_written(view.node) if view is not None else None
        if live is not None:
            with contextlib.suppress(Conflict):
                return await self._claim_live(order, op, live)
        try:
            return await self._claim_live(order, op, await read_node(self._tools.connection, node.name))
        except Conflict:
            return Refusal(Reason.COOL_DOWN, node.name, "the node has changed and must be judged again first")

    async def _claim_live(self, order: Order, op: str, live: LiveNode | None) -> Refusal | None:
        """Claim *live*, unless it is not as it was judged. Raises :class:`~tightship.objects.api_errors.Conflict`."""
        node = order.node
        if live is None or live.node.uid != node.uid:
            return Refusal(Reason.NODE_TERMINATING, node.name, "the node is gone")
        node_refusals = self._tools.settings().node_refusals(self._tools.cache.snapshot(), live.node)
        refusal = owner_elsewhere(live.node) or min(node_refusals, default=None)
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
            plan_hash=order.plan_hash,
            now=self._tools.clock(),
        )
        try:
            after = await self._tools.patch(live, claim_patch(live, record))
        except NotFound:
            return Refusal(Reason.NODE_TERMINATING, node.name, "the node is gone")
        if drain_record(after.node) is None:
            self._lost.lost(node.name)  # the claim was one write, so that cordon and taint are ours
            await self._tools.patch(after, record_patch(after, None, NodeChange.RESTORE))
            return self.pauses(node.name)
        self._tools.tell(DrainEvent(EventKind.CLAIMED, after.node, record))
        self._drive(after.node, record, order.targets)
        return None

    async def adopt(self, snapshot: Snapshot, *, others: bool = True, ledger: bool = True) -> None:
        """Take over drains that nobody drives, and repair what a crash left, on nodes and in the *ledger*.

        Without *others*, only this controller's drains count: a controller that is switched off ends just its own. An
        annotation that nobody can read is anybody's to repair, but a dry run, which has no *ledger*, leaves it.
        Raises :class:`~tightship.objects.api_errors.KubeError`; the next call repairs the rest.
        """
        troubles: list[KubeError] = []
        self._lost.look(snapshot)
        nodes = [view.node for view in snapshot.nodes.values()]
        theirs = [node for node in nodes if self._others.hold(node)]
        self._others.see_drains(theirs)
        for name, view in snapshot.nodes.items():
            if self._may_adopt(name) and self._suspicious(view.node, others, unreadable=ledger):
                await collected(self._adopt_node(name, others, unreadable=ledger), troubles)
        for entry in await self._read_claims(snapshot) if ledger else ():
            if self._may_adopt(entry.node) and self._others.forsaken(entry, self._tools.clock(), others=others):
                await collected(self._mend_entry(entry), troubles)
        if troubles:
            raise troubles[0]

    def _may_adopt(self, name: str) -> bool:
        return name not in self._drives and self._tools.leading()

    async def _read_claims(self, snapshot: Snapshot) -> Sequence[Claim]:
        claims = claims_in(await self._ledger.recent())
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
        ended = live is None or (record is not None and (record.owns_node or record.op == entry.op))
        if live is not None and not ended:
            reason = str(Refusal(Reason.ORPHANED, entry.node, "the claim was never written on the node"))
            note = record or DrainRecord(phase=Phase.BACKOFF, controller=self._controller, reason=reason)
            note = msgspec.structs.replace(note, op=entry.op)
            await self._tools.patch(live, record_patch(live, note, NodeChange.NOTHING))
        edits = [dropping([(entry.node, entry.op)])]
        if ended and entry.controller == self._controller:
            edits.insert(0, catching_up(entry, record, self._tools.clock()))
        await self._ledger.change(*edits)

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
                finished = Finished(
                    node=node.name,
                    pool=self._pool_of(node),
                    controller=self._controller,
                    ending=ending.value,
                    at=self._tools.clock(),
                    reason=drive.reason,
                    began=record.entered(Phase.CLAIMED),
                    displaced=drive.displaced,
                    price=self._price_of(node),
                )
                await self._ledger.change(adding(finished), dropping([(node.name, record.op)]), linger=TOGETHER)
        except KubeError as error:
            # The entry stays: adopt() drops it.
            _log.warning("claim of node %s not dropped yet: %s", node.name, one_line(error))
        except Exception:
            _log.exception("drain of node %s broke off; it resumes from the annotation on the node", node.name)
        finally:
            self._drives.pop(node.name, None)

    async def noted(self, timeout: float) -> bool:  # noqa: ASYNC109 - its end is a value
        """Wait until the ends of drains whose nodes are gone are in the history; return whether they are."""
        nodes = self._tools.cache.snapshot().nodes
        ending = [each.task for name, each in self._drives.items() if name not in nodes]
        return not ending or not (await asyncio.wait(ending, timeout=timeout))[1]

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
