"""A backtest of many HPAs, in as many processes as there are processors.

Each process replays a part of the HPAs. After each cycle the parts exchange how many queries fell, so the breaker for
correlated drops judges all HPAs together, as in one process.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection

import msgspec

from hpa_scaler.decide.backtest import Counts, backtest, replayed
from hpa_scaler.decide.decision import DropCount
from hpa_scaler.decide.variants import HpaPast, Lived, Variant, World

_WORTH = 50_000
"""Judgements for which a process of its own is worth its start."""


def backtest_apart(
    pasts: Sequence[HpaPast],
    variants: Sequence[Variant],
    world: World,
    tell: Callable[[float], None] | None = None,
    processes: int | None = None,
) -> list[list[Lived]]:
    """Return what :func:`~hpa_scaler.decide.backtest.backtest` does; by default in as many *processes* as pay."""
    if processes is None:
        judgements = len(pasts) * world.count * sum(each.kind != "none" for each in variants)
        processes = min(len(os.sched_getaffinity(0)), judgements // _WORTH)
    parts = parts_of(pasts, variants, processes)
    if len(parts) < 2:
        return backtest(pasts, variants, world, tell)
    context = multiprocessing.get_context("spawn")
    workers, connections = [], []
    try:
        for part in parts:
            ours, theirs = context.Pipe()
            worker = context.Process(target=_replay, args=(theirs,), daemon=True)
            worker.start()
            theirs.close()
            workers.append(worker)
            connections.append(ours)
            drawn = msgspec.structs.replace(world, drawn=sum(each < world.drawn for each in part))
            ours.send(([pasts[number] for number in part], variants, drawn))
        for cycle in range(world.count):
            if tell is not None and cycle % max(1, world.count // 100) == 0:
                tell(cycle / world.count)
            told: list[Counts] = [each.recv() for each in connections]
            counts = [summed(each) for each in zip(*told, strict=True)]
            for connection in connections:
                connection.send(counts)
        lived: dict[int, list[Lived]] = {}
        for part, connection in zip(parts, connections, strict=True):
            lived |= zip(part, connection.recv(), strict=True)
        return [lived[number] for number in range(len(pasts))]
    except EOFError as error:
        raise ChildProcessError("a process of the backtest has died: is there enough memory?") from error
    finally:
        for worker in workers:
            worker.terminate()
            worker.join()


def parts_of(pasts: Sequence[HpaPast], variants: Sequence[Variant], most: int) -> list[list[int]]:
    """Return the numbers of *pasts* in at most so many parts of like size; equal queries are in one part."""
    if most < 2 or any(change.name.startswith("prometheus-") for each in variants for change in each.changes):
        return [list(range(len(pasts)))]
    groups: dict[object, list[int]] = {}
    for number, past in enumerate(pasts):
        queries = past.yardstick.queries if past.yardstick is not None else ()
        groups.setdefault(tuple((each.text, each.server) for each in queries), []).append(number)
    parts: list[list[int]] = [[] for _ in range(min(most, len(groups)))]
    for group in sorted(groups.values(), key=len, reverse=True):
        min(parts, key=len).extend(group)
    return [sorted(part) for part in parts]


def summed(counts: Sequence[DropCount]) -> DropCount:
    """Return the count of a fleet from those of its parts."""
    return DropCount(
        sum(each.counted for each in counts),
        sum(each.dropping for each in counts),
        sum(each.floor for each in counts),
        sum(each.lost for each in counts),
    )


def _replay(connection: Connection) -> None:
    """Replay the part that comes by *connection*."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    part = replayed(*connection.recv())
    try:
        connection.send(next(part))
        while True:
            connection.send(part.send(connection.recv()))
    except StopIteration as ended:
        connection.send(ended.value)
