"""Leaves out what keeps the edges safe, to see which disaster notices (``python -m tightship_testkit.mutants.edges``).

Each :class:`Edge` takes one precaution out of the product: a precondition, a compare-and-swap, a fence, a second look.
Disasters run with it, seed after seed, until one breaks a promise. A mutant that no seed finds means that the disasters
would not notice if somebody removed the precaution by mistake.
"""

from __future__ import annotations

import argparse
import ast
import gc
import importlib
import logging
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FunctionType

from msgspec import Struct

from tightship_testkit.disasters.covering import chosen
from tightship_testkit.disasters.making import make
from tightship_testkit.disasters.run import run
from tightship_testkit.mutants.changes import code_of, first_line, functions

NODES = tuple(each for each in range(10) if each not in (3, 6))
FLOORS = (3, 6, 9)
"""The last digits of the seeds whose disasters have drains, and floors (``disasters/making.py``)."""


class Edge(Struct, frozen=True):
    """A precaution that is left out: in *function* of *module*, *instead* stands for *text*, which is there once.

    *test* notices what disasters do not show: a leader whose clock stood still, or who led no more when its request to
    an HPA left.
    """

    name: str
    module: str
    function: str
    text: str
    instead: str
    seeds: tuple[int, ...] = NODES
    test: str = ""

    def left_out(self) -> CodeType:
        """Return the function without it. Raises :class:`LookupError` where the product has it in other words."""
        file = Path(str(importlib.import_module(self.module).__file__))
        source = file.read_text()
        found = next((each for name, each in functions(ast.parse(source)) if name == self.function), None)
        if found is None:
            raise LookupError(f"{self.name}: {self.module} has no function {self.function}")
        line, lines = first_line(found), source.split("\n")
        body = "\n".join(lines[line - 1 : found.end_lineno])
        if body.count(self.text) != 1:
            raise LookupError(
                f"{self.name}: {self.function} of {self.module} has {self.text!r} {body.count(self.text)} times"
            )
        lines[line - 1 : found.end_lineno] = body.replace(self.text, self.instead).split("\n")
        code = code_of(compile("\n".join(lines), str(file), "exec"), self.function, line)
        assert code is not None, self
        return code

    @contextmanager
    def removed(self) -> Iterator[None]:
        """Run without it. Raises what :meth:`left_out` does."""
        code = self.left_out()
        live = [
            each
            for each in gc.get_objects()
            if isinstance(each, FunctionType)
            and (each.__code__.co_filename, each.__code__.co_qualname) == (code.co_filename, self.function)
        ]
        assert live, self
        before = [each.__code__ for each in live]
        for each in live:
            each.__code__ = code
        try:
            yield
        finally:
            for each, old in zip(live, before, strict=True):
                each.__code__ = old


_DRIVE = "tightship.draining.drain_task"
_MANAGER = "tightship.draining.drain_manager"
_WRITING = "tightship.draining.writing"
_CLAIMS = "tightship.draining.claims"
_ELECTION = "tightship.kube.leases"
_OWNERSHIP = "hpa_scaler.judge.ownership"
_APPLYING = "hpa_scaler.write.applying"

EDGES = (
    Edge("an eviction takes any pod of the name", _WRITING, "send_away",
         '"deleteOptions": {"preconditions": {"uid": pod.uid}}', '"deleteOptions": {}'),
    Edge("an eviction takes the pod's grace away", _WRITING, "send_away",
         '"deleteOptions": {"preconditions": {"uid": pod.uid}}',
         '"deleteOptions": {"preconditions": {"uid": pod.uid}, "gracePeriodSeconds": 0}'),
    Edge("pods are deleted past their budgets", _WRITING, "send_away", "if past_budgets:", "if True:"),
    Edge("a node is patched whatever its version", _WRITING, "patch_node",
         '"resourceVersion": live.version, ', ""),
    Edge("a claim drops the taints of others", _WRITING, "claim_patch", "(*_others(live), ours)", "(ours,)"),
    Edge("a node given back stays cordoned", _WRITING, "record_patch",
         "prior if change is NodeChange.RESTORE and live.node.unschedulable != prior else None", "None"),
    Edge("an eviction leaves whoever leads", _DRIVE, "Drive._evict", "only_if=tools.beginning", "only_if=lambda: True",
         test="packages/common/tests/drain/test_driving.py"
              "::test_an_eviction_is_left_whose_replica_leads_no_longer_when_its_turn_comes"),
    Edge("a request leaves whatever only_if says", "tightship.kube.connection", "_Guarded.write_with_length",
         "if not self._only_if():", "if False:"),
    Edge("a drive goes on after a takeover", _DRIVE, "Drive._ask",
         "if record is not None and record.op == self._op and (record.holder, record.epoch) != self._term:",
         "if False:",
         test="packages/common/tests/drain/test_drainer.py::test_another_leader_takes_over_and_the_first_one_stops"),
    Edge("pods are evicted without a second look at the node", _DRIVE, "Drive._evict",
         "if not sure or not await", "if not await"),
    Edge("a step is judged by the cache alone", _DRIVE, "Drive._decide",
         "live = await read_node(self._tools.connection, self._name)",
         "live = LiveNode(node, node.resource_version, ()) if node is not None else None"),
    Edge("a node is claimed twice", _CLAIMS, "take",
         "(each.claim for each in present if each.claim.node == claim.node)", "iter(())"),
    Edge("a claim is allowed unasked", _CLAIMS, "take",
         "request.beside(lease) or request.allows(tuple(each.claim for each in counted), begun)", "None"),
    Edge("claims are forgotten with their Lease", _CLAIMS, "take",
         "for each in held() if each.op not in known", "for each in ()"),
    Edge("a claim never written on its node is dropped without writing the node", _MANAGER, "Drainer._repair_entry",
         "await self._tools.patch(live, record_patch(live, note, NodeChange.NOTHING))", "pass"),
    Edge("a drain that nobody drives is left", _MANAGER, "Drainer._suspicious",
         "return self._others", "return False and self._others"),
    Edge("a drain of another installation is taken over", "tightship.draining.drain_manager", "Others.owns",
         "return not (elsewhere or beside.alive is None or beside.foreign(record.lease))", "return True"),
    Edge("a Lease is written whatever its version", "tightship.kube.leases", "encode_lease",
         '_raws.decode(document["metadata"])',
         '{key: raw for key, raw in _raws.decode(document["metadata"]).items() if key != "resourceVersion"}'),
    Edge("a candidate does not wait for the holder", _ELECTION, "Elector._is_free",
         "max(self._timing.duration, judged.duration)", "1.0"),
    Edge("a term never ends", _ELECTION, "Elector.remaining", "max(0.0, until - self._clock())", "5.0"),
    Edge("a Lease is given up though it is another's", _ELECTION, "Elector._release",
         "lease is None or not self._is_ours(lease)", "lease is None"),
    Edge("a drain evicts pods of workloads that rest", "tightship.drain.assessment", "Assessment._next",
         "if name in resting and", "if False and"),
    Edge("a node is claimed whose workloads rest", "tightship.rules.rates", "rate_checks",
         "yield from (*crowded(each, pods), *_rest(each, begun, pods))", "yield from crowded(each, pods)"),
    Edge("a node is claimed beyond the rate of an hour", "tightship.rules.rates", "rate_checks",
         "yield from _checks(each, begun, len(pods))", "yield from ()"),
    Edge("a drain goes on after its windows have closed", "tightship.rules.windows", "stopped_by",
         "if each and each.hard_stop is not None:", "if False:",
         test="packages/node-compactor/tests/test_windows.py"
              "::test_a_drain_under_way_is_given_back_at_the_hard_stop_only"),
    Edge("bounds are set whatever they are by now", _OWNERSHIP, "_patch",
         'ops += [{"op": "test", "path": path, "value": now} for path, now, _ in moves]', "pass", FLOORS),
    Edge("bounds are set on a new HPA of the same name", _OWNERSHIP, "_patch",
         '{"op": "test", "path": "/metadata/uid", "value": about.uid}',
         '{"op": "test", "path": "/metadata/name", "value": about.name}', FLOORS),
    Edge("bounds are set by whoever leads no longer", _APPLYING, "_patched", "only_if=only_if", "only_if=None", FLOORS,
         test="packages/hpa-scaler/tests/test_writing.py"
              "::test_a_write_is_left_whose_sender_leads_no_longer_when_its_turn_comes"),
    Edge("a return drops what the user had", _OWNERSHIP, "restoration", "minimum = min(own.minimum, maximum)",
         "minimum = hpa.min_replicas", FLOORS),
    Edge("our own floor counts as the user's after a lost answer", _OWNERSHIP, "valid_history",
         "newer = then.evaluated is not None and then.evaluated >= before", "newer = False", FLOORS),
)  # fmt: skip


def found_by(edge: Edge, pinned: Sequence[int], count: int, seconds: float) -> tuple[int | None, int, str]:
    """Return the seed that finds *edge* removed, how many were tried, and what it broke; at most *count* seeds.

    The *pinned* ones of ``make test`` come first: it would notice, too.
    """
    began, tried = time.process_time(), 0
    with edge.removed():
        for seed in (*pinned, *(each for each in range(count * 10) if each not in pinned)):
            if seed % 10 not in edge.seeds:
                continue
            if tried == count or time.process_time() - began > seconds:
                break
            tried += 1
            try:
                new = run(make(seed)).new
            except Exception as error:  # the mutant broke the engine: that is noticed, too
                return seed, tried, f"{type(error).__name__}: {error}"
            if new:
                return seed, tried, str(new[0])
    return None, tried, ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; 1 where something is not found."""
    parser = argparse.ArgumentParser(prog="python -m tightship_testkit.mutants.edges", description=__doc__)
    parser.add_argument("--seeds", type=int, default=60, help="disasters for each at most")
    parser.add_argument("--seconds", type=float, default=120.0, help="of a processor for each at most")
    parser.add_argument("--only", default="", help="those whose names contain this")
    given = parser.parse_args(arguments)
    logging.getLogger().addHandler(logging.NullHandler())
    logging.getLogger().setLevel(logging.ERROR)
    missed, pinned = 0, chosen()
    for edge in (each for each in EDGES if given.only in each.name):
        seed, tried, broken = found_by(edge, pinned, given.seeds, given.seconds)
        missed += seed is None and not edge.test
        detail = f"seed {seed} (number {tried}): {broken[:150]}"
        if seed is None:
            detail = f"NOT FOUND by {tried} seeds" + (f"; only {edge.test} notices" if edge.test else "")
        sys.stdout.write(f"{edge.name}: {detail}\n")
        sys.stdout.flush()
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
