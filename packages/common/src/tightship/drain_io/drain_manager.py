"""All drains of one controller: claims new ones within the budget, and takes over those that it finds.

Every claim is first an entry in the cluster-wide ledger (:mod:`tightship.drain_io.claims`) and then one
compare-and-swap patch of the node. A crash in between leaves an entry without a claim; a crash afterwards leaves a
claim that nobody drives. :meth:`Drainer.adopt` finds and repairs both at the start of every loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

import msgspec

from tightship.core.api_errors import Conflict, KubeError, NotFound, one_line
from tightship.core.drain_record import DRAIN_ANNOTATION, DrainRecord, Finished, Phase
from tightship.core.durations import format_duration
from tightship.core.objects import Node
from tightship.core.objects.pod import DRAINING
from tightship.core.reasons import Reason, Refusal
from tightship.drain.events import News, Told
from tightship.drain.machine import claimed, undoing
from tightship.drain.steps import Change, Ending
from tightship.drain_io.claims import Allows, Claim, ClaimLedger
from tightship.drain_io.drain_task import Drive, Tools
from tightship.drain_io.history import DrainHistory
from tightship.drain_io.writing import LiveNode, claim_patch, patch_node, read_node, record_patch
from tightship.kube.host import monotonic, token
from tightship.planning.cluster import Snapshot
from tightship.planning.nodes import drain_record, owner_elsewhere

_log = logging.getLogger(__name__)

ORPHAN_AFTER = 24 * 3600.0
"""Seconds, by the server's clock, since its last phase began, after which another controller's drain is an orphan."""

ORPHAN_WATCHED = 6 * 3600.0
"""Seconds for which we must have seen the drain stand still, too: no clock alone makes an orphan."""

ELSEWHERE_WATCHED = 60.0
"""Seconds for which another controller's drain must lack a claim: node and ledger are not read at the same time."""

K = TypeVar("K")
_Still = dict[K, tuple[str, float]]


def _still(known: _Still[K], found: Mapping[K, str]) -> _Still[K]:
    """Return since when each of *found* has been unchanged, by the monotonic clock."""
    now = monotonic()
    return {key: known[key] if known.get(key, ("",))[0] == text else (text, now) for key, text in found.items()}


class _Driven(NamedTuple):
    """A drain that this replica drives, and its claim."""

    drive: Drive
    task: asyncio.Task[None]
    claim: Claim


class Drainer:
    """Drains nodes for *controller*; *holder* names this replica, *epoch* its term of leadership by the Lease *lease*.

    While ``Tools.releasing`` is true, drains under another Lease belong to another installation and are left alone.
    Drains that name no Lease are left alone only if not *unnamed*. All methods are for the leader, one at a time.
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
        lease: str = "",
        unnamed: bool = False,
    ) -> None:
        self._tools = tools
        self._ledger = ledger
        self._history = history
        self._pool_of = pool_of
        self._controller = controller
        self._holder = holder
        self._epoch = epoch
        self._lease = lease
        self._released = frozenset({lease, ""} if unnamed else {lease})
        # What others have written, and since when it has been so before our eyes.
        self._records: _Still[str] = {}
        self._claims: _Still[str] = {}
        self._unclaimed: _Still[tuple[str, str]] = {}
        self._drives: dict[str, _Driven] = {}

    @property
    def driving(self) -> frozenset[str]:
        """Names of the nodes whose drains this replica drives."""
        return frozenset(self._drives)

    @property
    def elsewhere(self) -> Sequence[tuple[str, str]]:
        """Nodes in drain by a controller that keeps its claims elsewhere, each with that controller's name.

        The two controllers share no budget.
        """
        seen = monotonic() - ELSEWHERE_WATCHED
        return sorted(drain for drain, (_, since) in self._unclaimed.items() if since <= seen)

    def held(self, snapshot: Snapshot) -> Sequence[str]:
        """Return the names of the nodes that drains of this controller hold, as far as they belong to this drainer."""
        found = {name for name, view in snapshot.nodes.items() if self._owns(drain_record(view.node))}
        return sorted(found | set(self._drives))

    async def unfinished(self, snapshot: Snapshot) -> bool:
        """Return whether a drain of this controller is under way: driven here, on a node, or in the ledger.

        Writes nothing. Raises :class:`~tightship.core.api_errors.KubeError`.
        """
        if self._drives:
            return True
        if any(self._owns(drain_record(view.node)) for view in snapshot.nodes.values()):
            return True
        return any(entry.controller == self._controller for entry in await self._ledger.read())

    async def claim(self, node: Node, *, pool: str, plan_hash: str, allows: Allows) -> Refusal | None:
        """Claim *node* (as it was judged) and start its drain; return why not, ``None`` if the drain has started.

        *allows* gets all claims of the cluster except this one. Raises
        :class:`~tightship.core.api_errors.KubeError` if the server does not report the outcome: the entry
        stays, and :meth:`adopt` will check the node.
        """
        op = token(16)
        now = self._tools.clock()
        claim = Claim(node=node.name, op=op, controller=self._controller, holder=self._holder, pool=pool, since=now)
        refusal = await self._ledger.take(claim, allows, self._held)
        if refusal is not None:
            return refusal
        refusal = await self._claim_node(node, op, plan_hash)
        if refusal is not None:
            await self._ledger.drop(node.name, op)
        return refusal

    async def _claim_node(self, node: Node, op: str, plan_hash: str) -> Refusal | None:
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
        if live.node.annotations != node.annotations or live.node.labels != node.labels:
            return Refusal(Reason.COOL_DOWN, node.name, "the node has changed and must be judged again first")
        if not self._tools.leading():
            return Refusal(Reason.COOL_DOWN, node.name, "leadership has ended")
        record = claimed(
            live.node,
            previous,
            op=op,
            controller=self._controller,
            holder=self._holder,
            epoch=self._epoch(),
            plan_hash=plan_hash,
            now=self._tools.clock(),
        )
        record = msgspec.structs.replace(record, lease=self._lease)
        try:
            after = await patch_node(self._tools.connection, live, claim_patch(live, record))
        except Conflict:
            return Refusal(Reason.COOL_DOWN, node.name, "the node has changed and must be judged again first")
        except NotFound:
            return Refusal(Reason.NODE_TERMINATING, node.name, "the node is gone")
        self._tools.tell(News(told=Told.CLAIMED, node=after.node, record=record))
        self._drive(after.node, record)
        return None

    async def adopt(self, snapshot: Snapshot, *, others: bool = True, ledger: bool = True) -> None:
        """Take over drains that nobody drives, and repair what a crash left, on nodes and in the *ledger*.

        Without *others*, only drains with this controller's name: one that is switched off ends just its own. Raises
        :class:`~tightship.core.api_errors.KubeError`; the next call repairs the rest.
        """
        troubles: list[KubeError] = []
        self._watch_drains(snapshot)
        for name, view in snapshot.nodes.items():
            if name in self._drives or not self._tools.leading():
                continue
            if self._suspicious(view.node, others):
                try:
                    await self._adopt_node(name, others)
                except Conflict:
                    continue  # somebody else was quicker: the next loop sees what he made of it
                except KubeError as error:
                    troubles.append(error)
        entries = await self._read_claims(snapshot) if ledger else ()
        for entry in entries:
            if entry.node in self._drives or not self._tools.leading():
                continue
            forgotten = others and self._orphaned(self._claims.get(entry.op), entry.since)
            if entry.controller != self._controller and not forgotten:
                continue
            try:
                await self._mend_entry(entry)
            except Conflict:
                continue
            except KubeError as error:
                troubles.append(error)
        if troubles:
            raise troubles[0]

    def _suspicious(self, node: Node, others: bool) -> bool:
        record = drain_record(node)
        if self._owns(record):
            return True
        if not others:
            return False
        if record is None or not record.owns_node:
            return any(taint.key == DRAINING.key for taint in node.taints)
        last = max([record.deadline or 0.0, *record.since.values()])
        return record.phase is Phase.UNKNOWN or self._orphaned(self._records.get(node.uid), last)

    def _owns(self, record: DrainRecord | None) -> bool:
        if record is None or not record.owns_node or record.controller != self._controller:
            return False
        return record.lease in self._released or not self._tools.releasing()

    def _watch_drains(self, snapshot: Snapshot) -> None:
        found: dict[str, str] = {}
        for view in snapshot.nodes.values():
            record = drain_record(view.node)
            if record is not None and record.owns_node and not self._owns(record):
                found[view.node.uid] = view.node.annotations[DRAIN_ANNOTATION]
        self._records = _still(self._records, found)

    async def _read_claims(self, snapshot: Snapshot) -> Sequence[Claim]:
        """Return the claims; record those of others, and drains of others that have no claim."""
        entries = await self._ledger.read()
        theirs = {each.op: each.holder for each in entries if each.controller != self._controller}
        self._claims = _still(self._claims, theirs)
        claimed = {each.op for each in entries}
        found: dict[tuple[str, str], str] = {}
        for name, view in snapshot.nodes.items():
            record = drain_record(view.node)
            if record is None or record.controller == self._controller or record.op in claimed:
                continue
            # After a drain, and of a node that its autoscaler has taken, the claim may be the first to go.
            if record.phase in (Phase.CLAIMED, Phase.EVICTING, Phase.DRAINED):
                found[name, record.controller] = record.op
        self._unclaimed = _still(self._unclaimed, found)
        return entries

    def _orphaned(self, still: tuple[str, float] | None, last: float) -> bool:
        """Whether what others wrote at *last* is an orphan by now."""
        watched = still is not None and monotonic() >= still[1] + ORPHAN_WATCHED
        return watched and self._tools.clock() >= last + ORPHAN_AFTER

    async def _adopt_node(self, name: str, others: bool) -> None:
        live = await read_node(self._tools.connection, name)
        if live is None or not self._suspicious(live.node, others) or not self._tools.leading():
            return
        record = drain_record(live.node)
        if record is None or record.phase is Phase.UNKNOWN or not record.owns_node:
            await self._mend_orphan(live, record)
            return
        now = self._tools.clock()
        epoch = max(self._epoch(), record.epoch + 1)
        taken = msgspec.structs.replace(record, holder=self._holder, epoch=epoch, lease=self._lease)
        because: Refusal | None = None
        if record.controller != self._controller:
            last = format_duration(now - max(record.since.values(), default=now))
            because = Refusal(Reason.ORPHANED, name, f"{record.controller} has not touched the drain for {last}")
            taken = msgspec.structs.replace(
                taken,
                controller=self._controller,
                phase=Phase.RESTORING,
                since={**record.since, Phase.RESTORING.value: now},
                reason=str(because),
            )
        after = await patch_node(self._tools.connection, live, record_patch(live, taken, Change.NOTHING))
        self._tools.tell(
            News(told=Told.TAKEN_OVER, node=after.node, record=taken, before=record.phase, because=because)
        )
        self._drive(after.node, taken)

    async def _mend_orphan(self, live: LiveNode, record: DrainRecord | None) -> None:
        """Repair a node with our taint, or with an unreadable annotation: undo what is shown to be ours.

        Whoever removed the annotation wants no drain of this node, and is obeyed for as long as somebody who uncordons
        a node. If a node's annotation says that it was restored, somebody else put the taint back by writing an old
        list of taints: then a cordon is not ours. A node that an autoscaler has taken meanwhile stays as it is until
        the autoscaler gives it back.
        """
        if owner_elsewhere(live.node) is not None:
            return
        name, now, rules = live.node.name, self._tools.clock(), self._tools.settings().rules
        detail = record.reason if record is not None and record.reason else f"no readable {DRAIN_ANNOTATION} on it"
        because = Refusal(Reason.ORPHANED, name, f"left over from a drain: {detail}")
        if record is not None and not record.owns_node:
            mended, change = record, Change.UNTAINT
        else:
            change = undoing(live.node, None)
            mended = DrainRecord(
                phase=Phase.BACKOFF,
                controller=self._controller,
                since={Phase.BACKOFF.value: now},
                attempts=0 if record is None else 1,
                next_try=now + (rules.hold_off if record is None else rules.backoff_base),
                reason=str(because),
            )
        after = await patch_node(self._tools.connection, live, record_patch(live, mended, change))
        self._tools.tell(News(told=Told.PHASE, node=after.node, record=mended, because=because))

    async def _mend_entry(self, entry: Claim) -> None:
        """Drop an entry whose node carries no such drain any more.

        The entry may belong to a claim whose patch is still on its way, from a replica that was stopped. So the node is
        written first: such a patch then finds another version and fails.
        """
        live = await read_node(self._tools.connection, entry.node)
        record = drain_record(live.node) if live is not None else None
        if record is not None and record.owns_node and record.op in (entry.op, ""):
            return  # the next adopt() takes it over, or mends it
        if live is not None and (record is None or (not record.owns_node and record.op != entry.op)):
            reason = str(Refusal(Reason.ORPHANED, entry.node, "the claim was never written on the node"))
            note = record or DrainRecord(phase=Phase.BACKOFF, controller=self._controller, reason=reason)
            note = msgspec.structs.replace(note, op=entry.op)
            await patch_node(self._tools.connection, live, record_patch(live, note, Change.NOTHING))
        elif entry.controller == self._controller:
            await self._remember(entry, record)
        await self._ledger.drop(entry.node, entry.op)

    async def _remember(self, entry: Claim, record: DrainRecord | None) -> None:
        """Record a drain that ended while nobody was there to record it: pauses after drains survive a restart.

        *record* is what the drain left on its node, ``None`` if that is gone; then the drain ended now at the latest.
        """
        ending, reason, at = Ending.NODE_GONE, "", self._tools.clock()
        if record is not None:
            ended = record.entered(Phase.BACKOFF)
            if ended is None or ended < entry.since:
                return  # a note that another drain has left: this one was never written
            ending, reason, at = Ending.RESTORED, record.reason, ended
        known = await self._history.read()
        if not any(each.node == entry.node and each.at >= entry.since for each in known):
            finished = Finished(entry.node, entry.pool, self._controller, ending.value, at, reason, began=entry.since)
            await self._history.add(finished)

    def _drive(self, node: Node, record: DrainRecord) -> None:
        drive = Drive(self._tools, node, record)
        task = asyncio.create_task(self._run(drive, node, record), name=f"drain of {node.name}")
        since = record.entered(Phase.CLAIMED) or self._tools.clock()
        pool = self._pool_of(node)
        claim = Claim(
            node=node.name, op=record.op, controller=self._controller, holder=self._holder, pool=pool, since=since
        )
        self._drives[node.name] = _Driven(drive, task, claim)

    def _held(self) -> Iterable[Claim]:
        return [each.claim for each in self._drives.values()]

    async def _run(self, drive: Drive, node: Node, record: DrainRecord) -> None:
        try:
            ending = await drive.run()
            if ending is not Ending.PARKED:
                # First the history: a crash in between leaves the claim, which counts, not a drain nobody remembers.
                now, pool = self._tools.clock(), self._pool_of(node)
                finished = Finished(
                    node.name,
                    pool,
                    self._controller,
                    ending.value,
                    now,
                    drive.reason,
                    record.entered(Phase.CLAIMED),
                    displaced=drive.displaced,
                )
                await self._history.add(finished)
                await self._ledger.drop(node.name, record.op)
        except KubeError as error:
            # The entry stays: adopt() drops it.
            _log.warning("claim of node %s not dropped yet: %s", node.name, one_line(error))
        except Exception:
            # A defect, or a cache that has crashed: the node says where its drain stands.
            _log.exception("drain of node %s broke off; it resumes from the annotation on the node", node.name)
        finally:
            self._drives.pop(node.name, None)

    def wake(self) -> None:
        """Let all drains look again now: settings changed, or the controller stops."""
        for each in self._drives.values():
            each.drive.wake.set()

    async def stop(self, timeout: float) -> Mapping[str, str]:  # noqa: ASYNC109 - its end is a value
        """Let every drain finish what it must, or park; return those still running after *timeout* seconds.

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
