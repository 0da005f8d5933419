"""Manages all drains of one controller: claims new ones within the budget, and takes over those that it finds.

Every claim is first an entry in the cluster-wide ledger (:mod:`tightship.draining.claims`) and then one
compare-and-swap patch of the node. A crash in between leaves an entry without a claim; a crash afterwards leaves a
claim that nobody drives. :meth:`Drainer.adopt` finds and repairs both at the start of every loop. A drain that ends
leaves the ledger and enters the history in one write.

Drains and claims of others, watched until one of them may count as an orphan.

No clock alone makes an orphan: what others wrote must be old by the server's clock, and must also have stood still for
hours while this replica looked on.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeVar

import msgspec

from tightship.cluster import Snapshot
from tightship.cluster.installations import Beside
from tightship.drain.events import DrainEvent, EventKind
from tightship.drain.machine import NodeChange, claimed, inherited, repaired
from tightship.draining.claims import (
    Allows,
    Claim,
    ClaimRequest,
    adding,
    catching_up,
    claims_in,
    dropping,
    joined,
    rested,
    take,
)
from tightship.draining.drain_task import Drive, Tools, collected
from tightship.draining.installations import Installations
from tightship.draining.ledger import Ledger
from tightship.draining.writing import LiveNode, as_written, claim_patch, read_node, record_patch
from tightship.kube.host import monotonic, token
from tightship.kube.leases import Lease
from tightship.objects import Node, Pod
from tightship.objects.api_errors import Conflict, KubeError, NotFound, NotSent, one_line
from tightship.objects.drain_record import (
    DRAIN_ANNOTATION,
    UNDER_WAY,
    UNPRICED,
    Begun,
    DrainRecord,
    Ending,
    Finished,
    Phase,
    Price,
)
from tightship.objects.pod import DRAINING
from tightship.objects.reasons import Reason, Refusal
from tightship.objects.times import doubled, format_duration
from tightship.rules.nodes import drain_record, owner_elsewhere
from tightship.rules.rates import DAY, Rates

ORPHAN_AFTER = 24 * 3600.0
"""Seconds, by the server's clock, since its last phase began, after which another controller's drain is an orphan."""

ORPHAN_WATCHED = 6 * 3600.0
"""Seconds for which this replica must also have seen the drain stand still."""

ELSEWHERE_WATCHED = 60.0
"""Seconds for which another controller's drain must lack a claim: node and ledger are not read at the same time."""

K = TypeVar("K")
_Still = dict[K, tuple[str, float]]


def _still(known: _Still[K], found: Mapping[K, str]) -> _Still[K]:
    """Return since when each of *found* has been unchanged, by the monotonic clock."""
    now = monotonic()
    return {key: known[key] if known.get(key, ("",))[0] == text else (text, now) for key, text in found.items()}


class Others:
    """What others than the installation *lease* of *controller* have written, and since when it is unchanged.

    *beside* tells which other installations may be alive. As long as nobody knows, only the drains under *lease* are
    ours: a dry run never knows.
    """

    def __init__(self, controller: str, lease: str, *, beside: Callable[[], Beside]) -> None:
        self._controller = controller
        self._lease = lease
        self._beside = beside
        self._drains: _Still[str] = {}
        self._claims: _Still[str] = {}
        self._unclaimed: _Still[tuple[str, str]] = {}

    @property
    def elsewhere(self) -> Sequence[tuple[str, str]]:
        """Nodes in drain by an installation that keeps its claims elsewhere, each with the name of its controller."""
        seen = monotonic() - ELSEWHERE_WATCHED
        return sorted(drain for drain, (_, since) in self._unclaimed.items() if since <= seen)

    def see_drains(self, nodes: Sequence[Node]) -> None:
        """Record the drains on *nodes*, which others own."""
        self._drains = _still(self._drains, {node.uid: node.annotations[DRAIN_ANNOTATION] for node in nodes})

    def see_claims(self, claims: Sequence[Claim], snapshot: Snapshot) -> None:
        """Record the *claims* of others, and the drains of others in *snapshot* that have no claim.

        Whoever is or was a listed installation keeps its claims here, even if the list of claims was lost.
        """
        self._claims = _still(
            self._claims, {each.op: each.holder for each in claims if each.controller != self._controller}
        )
        claimed, sharing = {each.op for each in claims}, self._beside().known
        found: dict[tuple[str, str], str] = {}
        for name, view in snapshot.nodes.items():
            record = drain_record(view.node)
            if record is None or record.op in claimed or record.lease in sharing:
                continue
            if record.controller == self._controller and record.lease == self._lease:
                continue
            # After a drain, or once an autoscaler has taken the node, the claim may go first.
            if record.phase in UNDER_WAY:
                found[name, record.controller] = record.op
        self._unclaimed = _still(self._unclaimed, found)

    def owns(self, node: Node) -> bool:
        """Whether *node* is in a drain of this installation, or of one that shared its claims and is gone."""
        record = drain_record(node)
        if record is None or not record.owns_node or record.controller != self._controller:
            return False
        if record.lease == self._lease:
            return True
        # Of an installation that keeps its claims elsewhere, nobody knows whether it is alive.
        elsewhere = self._unclaimed.get((node.name, record.controller), ("",))[0] == record.op
        beside = self._beside()
        return not (elsewhere or beside.alive is None or beside.foreign(record.lease))

    def owns_claim(self, claim: Claim) -> bool:
        """Whether *claim* is one of this installation, or of one that is gone."""
        return claim.controller == self._controller and not self._beside().foreign(claim.lease)

    def hold(self, node: Node) -> bool:
        """Whether *node* is in a drain of others."""
        record = drain_record(node)
        return record is not None and record.owns_node and not self.owns(node)

    def forsaken(self, claim: Claim, now: float, *, others: bool) -> bool:
        """Whether it is for us to see what became of *claim*; *others* says that orphans of other controllers are."""
        if claim.controller == self._controller:
            return self.owns_claim(claim)
        return others and _orphaned(self._claims.get(claim.op), claim.since, now)

    def suspicious(self, node: Node, now: float, *, others: bool, unreadable: bool) -> bool:
        """Whether it is for us to repair *node*, or to drive its drain, at *now* (seconds since 1970 by the server).

        *others* says that orphans of others are ours to take, *unreadable* that nobody's in particular are.
        """
        record = drain_record(node)
        if self.owns(node):
            return True
        if record is not None and record.phase is Phase.UNKNOWN:
            return others or unreadable  # nobody's in particular: also where others' drains don't count
        if not others:
            return False
        if record is None or not record.owns_node:
            return any(taint.key == DRAINING.key for taint in node.taints)
        if record.controller == self._controller and self._beside().foreign(record.lease):
            return False
        last = max([record.deadline or 0.0, *record.since.values()])
        return _orphaned(self._drains.get(node.uid), last, now)


def _orphaned(still: tuple[str, float] | None, last: float, now: float) -> bool:
    watched = still is not None and monotonic() >= still[1] + ORPHAN_WATCHED
    return watched and now >= last + ORPHAN_AFTER


_log = logging.getLogger(__name__)

ENDED = "this replica may begin nothing any more"

TOGETHER = 0.25
"""Seconds that the end of a drain waits for the ends of others: autoscalers delete nodes in bursts."""


class Order(NamedTuple):
    """A *node* to drain, as it was judged. *targets* are the plan's nodes for its pods, by uid.

    *allows* gets all claims of the cluster except this one, and what has begun. *evicts* counts the pods to evict,
    *workloads* those of each workload, by its mark; *waits_for* is what opens after the cordon.
    """

    node: Node
    pool: str
    plan_hash: str
    allows: Allows
    targets: Mapping[str, str] = {}
    evicts: int = 0
    workloads: Mapping[str, int] = {}
    waits_for: tuple[str, ...] = ()


class _Driven(NamedTuple):
    """A drain that this replica drives, and its claim."""

    drive: Drive
    task: asyncio.Task[None]
    claim: Claim


class Drainer:
    """Drains nodes for *controller*; *holder* names this replica, *epoch* its term of leadership by the Lease *lease*.

    Drains under another Lease are another installation's. They are left alone while *installations* has it alive. Only
    the leader calls methods, one at a time.
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
        )
        self._drives: dict[str, _Driven] = {}
        self._hits: dict[str, float] = {}
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
        if not self._tools.guide.available:
            return {}
        found = dict(self._tools.guide.targets())
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

        Nothing is claimed any more once the cluster's budget has refused: the answers may be fewer than the orders.
        Raises ``KubeError`` if the server does not report an outcome. The entries then
        stay, and :meth:`adopt` checks their nodes.
        """
        known, now = self._installations, self._tools.clock()

        def request(order: Order) -> ClaimRequest:
            def allows(claims: tuple[Claim, ...], begun: Begun) -> Refusal | None:
                return self.pauses(order.node.name) or order.allows(claims, begun)

            def beside(lease: Lease) -> Refusal | None:
                return None if known is None else known.refuses(order.node, lease)

            counted = (order.evicts, order.workloads)
            entry = self._entry(order.node, token(16), order.pool, now, counted, waits=bool(order.waits_for))
            return ClaimRequest(entry, allows, beside)

        requests = [request(order) for order in orders]
        answers = list(await take(self._ledger, requests, lambda: [each.claim for each in self._drives.values()]))
        granted = [at for at, refusal in enumerate(answers) if refusal is None]
        in_vain: list[tuple[str, str]] = []

        async def begin(at: int) -> None:
            entry = requests[at].claim
            answers[at] = await self._claim_node(orders[at], entry.op)
            if answers[at] is not None:
                in_vain.append((entry.node, entry.op))

        outcomes = await asyncio.gather(*map(begin, granted), return_exceptions=True)
        if in_vain:
            await self._ledger.change(dropping(in_vain, now, in_vain=True))
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
        if changed or not self._tools.beginning():
            why = "the node has changed and must be judged again first" if changed else ENDED
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
            waits_for=order.waits_for,
            now=self._tools.clock(),
        )
        try:
            after = await self._tools.patch(live, claim_patch(live, record), claim=True)
        except NotFound:
            return Refusal(Reason.NODE_TERMINATING, node.name, "the node is gone")
        except NotSent:
            return Refusal(Reason.COOL_DOWN, node.name, ENDED)
        if drain_record(after.node) is None:
            self._lost.lost(node.name)  # the claim was one write, so that cordon and taint are ours
            await self._tools.patch(after, record_patch(after, None, NodeChange.RESTORE))
            return self.pauses(node.name)
        self._tools.tell(DrainEvent(EventKind.CLAIMED, after.node, record))
        self._drive(after.node, record, order.targets, order.evicts, order.workloads)
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
                await collected(self._repair_entry(entry), troubles)
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
            await self._repair_orphan(live, record)
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

    async def _repair_orphan(self, live: LiveNode, record: DrainRecord | None) -> None:
        """Repair a node with our taint, or with an unreadable annotation.

        A node that an autoscaler has taken meanwhile stays as it is until the autoscaler gives it back.
        """
        if owner_elsewhere(live.node) is not None:
            return
        repair = repaired(live.node, record, self._controller, self._tools.settings().rules, self._tools.clock())
        after = await self._tools.patch(live, record_patch(live, repair.record, repair.change))
        self._tools.tell(DrainEvent(EventKind.PHASE, after.node, repair.record, because=repair.because))

    async def _repair_entry(self, entry: Claim) -> None:
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
        edits = [dropping([(entry.node, entry.op)], self._tools.clock())]
        if ended and entry.controller == self._controller:
            edits.insert(0, catching_up(entry, record, self._tools.clock()))
        await self._ledger.change(*edits)

    def _drive(
        self,
        node: Node,
        record: DrainRecord,
        targets: Mapping[str, str] = {},
        evicts: int = 0,
        workloads: Mapping[str, int] = {},
    ) -> None:
        async def emptied(drive: Drive) -> None:
            """Let other drains evict pods of this one's workloads. Without an answer they wait until its end."""
            marks = None if drive.evicted is None else dict(drive.marks)
            await self._ledger.change(rested(node.name, record.op, marks, self._tools.clock()), linger=TOGETHER)
            drive.marks.clear()
            drive.entered.clear()

        async def enters(pods: Sequence[Pod]) -> bool:
            rules = self._tools.settings().rules
            rates = Rates(workload_pause=rules.rest, node_timeout=math.inf)
            return await joined(self._ledger, (node.name, record.op), pods, rates, self._tools.clock())

        for workload in [each for each, at in self._hits.items() if at < self._tools.clock() - DAY]:
            del self._hits[workload]
        drive = Drive(self._tools, node, record, targets, emptied, enters=enters, hits=self._hits)
        drive.entered |= workloads.keys()
        task = asyncio.create_task(self._run(drive, node, record), name=f"drain of {node.name}")
        since = record.entered(Phase.CLAIMED) or self._tools.clock()
        counted, waits = (evicts, workloads), bool(record.waits_for)
        entry = self._entry(node, record.op, self._pool_of(node), since, counted, waits=waits)
        self._drives[node.name] = _Driven(drive, task, entry)

    def _entry(
        self, node: Node, op: str, pool: str, since: float, counted: tuple[int, Mapping[str, int]], *, waits: bool
    ) -> Claim:
        return Claim(
            node=node.name,
            op=op,
            controller=self._controller,
            holder=self._holder,
            pool=pool,
            lease=self._lease,
            since=since,
            evicts=counted[0],
            workloads=counted[1],
            waits=waits,
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
                marks = None if drive.evicted is None else dict(drive.marks)
                drop = dropping([(node.name, record.op)], finished.at, evicted=drive.evicted, marks=marks)
                await self._ledger.change(adding(finished), drop, linger=TOGETHER)
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


SEEN = 5.0
"""Seconds after which the cache shows what was written."""

SOON = 60.0
"""Seconds after which a note that is still there stays, unless somebody removes it by hand."""

FIRST, LAST = 60.0, 3600.0
"""Seconds without a claim after a record has vanished, doubled from the first to the last."""


class LostRecords:
    """The records of drains that vanished soon after they were written, as where a policy cleans metadata.

    A node's back-off is a record too. So without a memory of our own, the same nodes would be cordoned and given back
    without end. Who removes a note by hand does so later, and is obeyed at once.
    """

    def __init__(self) -> None:
        self._times = 0
        self._until = 0.0
        self._node = ""
        # When the note about a drain that failed was written on each node, and until when it holds; the nodes that
        # don't show theirs.
        self._noted: dict[str, tuple[float, float]] = {}
        self._missing: set[str] = set()

    @property
    def problem(self) -> str:
        """A sentence while nothing is claimed, empty otherwise."""
        if monotonic() >= self._until:
            return ""
        return (
            f"Annotation {DRAIN_ANNOTATION} vanished from node {self._node} soon after it was written, so no drain "
            "begins for a while: exempt this annotation from what cleans the metadata of nodes."
        )

    def lost(self, node: str) -> None:
        """Record that a record vanished from *node*."""
        self._until = monotonic() + doubled(FIRST, LAST, self._times)
        self._times, self._node = self._times + 1, node

    def ended(self, node: str, *, lost: bool, backoff: float) -> None:
        """Record that a drain has ended: its record is *lost*, or a note on *node* holds for *backoff* seconds."""
        now = monotonic()
        if lost:
            self.lost(node)
        elif backoff > 0:
            self._noted[node] = now, now + backoff

    def look(self, snapshot: Snapshot) -> None:
        """See which notes are still there."""
        now = monotonic()
        self._missing.clear()
        for name, (since, until) in list(self._noted.items()):
            view = snapshot.nodes.get(name)
            record = drain_record(view.node) if view is not None else None
            if record is not None and record.phase is Phase.BACKOFF:
                if now < since + SOON:
                    continue
                self._times = 0
            elif view is not None and now < until and (record is None or not record.owns_node):
                # A mark may stand there by now.
                self._missing.add(name)
                if now < since + SEEN:
                    continue
                self.lost(name)
            del self._noted[name]

    def refusal(self, node: str) -> Refusal | None:
        """Return why *node* is not claimed now."""
        left = self._until - monotonic()
        if left <= 0:
            detail = "its last drain has just failed, and the note about that is not there"
            return Refusal(Reason.BACKOFF, node, detail) if node in self._missing else None
        detail = f"a drain's record vanished from node {self._node}; next try in {format_duration(left)}"
        return Refusal(Reason.BACKOFF, node, detail)
