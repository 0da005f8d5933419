"""The command line: ``python -m tightship_testkit.disasters soak | replay | shrink``."""

from __future__ import annotations

import argparse
import json
import logging
import multiprocessing
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NoReturn

from msgspec import Struct

from tightship_testkit.disasters.known import finding
from tightship_testkit.disasters.making import make
from tightship_testkit.disasters.promises.base import Violation
from tightship_testkit.disasters.registry import PROMISES
from tightship_testkit.disasters.replay import replay
from tightship_testkit.disasters.run import run
from tightship_testkit.disasters.scenario import Scenario, StoryError, encode, read
from tightship_testkit.disasters.shrink import NothingBroken, Unfinished, shrink

USAGE = 64
"""Exit code of bad input, as in ``sysexits.h``."""
BROKEN = 1
_LARGEST = 2**53
_PROGRESS_EVERY = 30.0


class Outcome(Struct, frozen=True):
    """What came of one seed."""

    seed: int
    seconds: float
    known: dict[str, int]
    broken: list[str]
    promise: str = ""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        sys.stderr.write(f"{self.prog}: {message}\n")
        raise SystemExit(USAGE)


def _whole(least: int) -> object:
    def number(text: str) -> int:
        if not text.isascii() or not text.isdigit() or not least <= int(text) < _LARGEST:
            raise argparse.ArgumentTypeError(f"{text!r} is no whole number from {least} to {_LARGEST - 1}")
        return int(text)

    return number


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = _Parser(prog="python -m tightship_testkit.disasters", description="Disasters by seed, on virtual time.")
    commands = made.add_subparsers(dest="command", required=True, parser_class=_Parser)
    soak = commands.add_parser("soak", help="run many seeds")
    soak.add_argument("--seeds", type=_whole(1), required=True, help="how many")  # type: ignore[arg-type]
    soak.add_argument("--first", type=_whole(0), default=0, help="the first seed")  # type: ignore[arg-type]
    soak.add_argument("--processes", type=_whole(1), default=2, help="how many at a time")  # type: ignore[arg-type]
    soak.add_argument("--json", action="store_true", help="print the result as JSON")
    again = commands.add_parser("replay", help="run one seed, or a story file, and tell all of it")
    which = again.add_mutually_exclusive_group(required=True)
    which.add_argument("--seed", type=_whole(0))  # type: ignore[arg-type]
    which.add_argument("--file", type=Path, help="a story file")
    again.add_argument("--debug", action="store_true", help="the controllers' log from level debug on")
    less = commands.add_parser("shrink", help="find the shortest story that still breaks the same promise")
    which = less.add_mutually_exclusive_group(required=True)
    which.add_argument("--seed", type=_whole(0))  # type: ignore[arg-type]
    which.add_argument("--file", type=Path, help="a story file")
    less.add_argument("--promise", default="", help="the promise; the first one that is broken unless given")
    less.add_argument("--known", action="store_true", help="a known finding will do")
    less.add_argument("--tries", type=_whole(1), default=300, help="runs at most")  # type: ignore[arg-type]
    less.add_argument("--seconds", type=_whole(1), default=300, help="seconds at most")  # type: ignore[arg-type]
    less.add_argument("-o", "--output", type=Path, required=True, help="the story file to write")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command, and return its exit code."""
    chosen = parser().parse_args(arguments)
    _quiet()
    try:
        match chosen.command:
            case "soak":
                return _soak(chosen)
            case "replay":
                scenario = make(chosen.seed) if chosen.file is None else read(chosen.file)
                return BROKEN if replay(scenario, sys.stdout, debug=chosen.debug).new else 0
            case _:
                return _shrink(chosen)
    except (StoryError, NothingBroken, Unfinished) as error:
        sys.stderr.write(f"{error}\n")
        return USAGE


def _quiet() -> None:
    """The controllers' log costs time, and is for replays."""
    logging.getLogger().addHandler(logging.NullHandler())
    logging.getLogger().setLevel(logging.ERROR)


# Many seeds.


def outcome(seed: int) -> Outcome:
    """Run one seed."""
    began = time.process_time()
    try:
        result = run(make(seed))
    except Exception as error:  # the other seeds are to be run all the same
        detail = f"the engine failed: {type(error).__name__}: {error}"
        return Outcome(seed, round(time.process_time() - began, 3), {}, [detail])
    known = Counter(each.name for violation in result.violations if (each := finding(violation)) is not None)
    new = result.new
    return Outcome(
        seed,
        round(time.process_time() - began, 3),
        dict(sorted(known.items())),
        [str(each) for each in new],
        new[0].promise if new else "",
    )


def outcomes(seeds: range, processes: int) -> Iterator[Outcome]:
    """Run all *seeds*, in any order."""
    if processes == 1:
        yield from map(outcome, seeds)
        return
    with multiprocessing.get_context("spawn").Pool(processes, initializer=_quiet) as pool:
        yield from pool.imap_unordered(outcome, seeds, chunksize=4)


def _soak(chosen: argparse.Namespace) -> int:
    seeds = range(chosen.first, chosen.first + chosen.seeds)
    began = reported = time.monotonic()
    done: list[Outcome] = []
    for each in outcomes(seeds, chosen.processes):
        done.append(each)
        if each.broken and not chosen.json:
            _tell_failure(each)
        if time.monotonic() - reported > _PROGRESS_EVERY:
            reported = time.monotonic()
            sys.stderr.write(f"{len(done)} of {len(seeds)} seeds, {reported - began:.0f} s\n")
    failed = sorted(each.seed for each in done if each.broken)
    known: dict[str, list[int]] = {}
    for each in sorted(done, key=lambda each: each.seed):
        for name in each.known:
            known.setdefault(name, []).append(each.seed)
    taken = time.monotonic() - began
    if chosen.json:
        known_findings = {name: {"seeds": len(found), "first": found[0]} for name, found in sorted(known.items())}
        failures = [{"seed": each.seed, "broken": each.broken} for each in done if each.broken]
        report = {"first": seeds.start, "seeds": len(seeds), "seconds": round(taken, 1), "known": known_findings}
        sys.stdout.write(json.dumps({**report, "failed": failures}, indent=1) + "\n")
    else:
        for name, found in sorted(known.items()):
            sys.stdout.write(f"known: {name}: {len(found)} seeds, the first {found[0]}\n")
        sys.stdout.write(
            f"{len(seeds)} seeds from {seeds.start}, {len(failed)} failed, {taken:.0f} s, "
            f"{len(seeds) / taken * 60:.0f} a minute\n"
        )
    return BROKEN if failed else 0


def _tell_failure(each: Outcome) -> None:
    sys.stdout.write(f"seed {each.seed} broke {each.promise or 'the engine'}\n")
    for line in each.broken:
        sys.stdout.write(f"  {line}\n")
    if not each.promise:
        return
    scenario = make(each.seed)
    try:
        scenario = shrink(scenario, each.promise, tries=80, seconds=60)
        sys.stdout.write("the shortest story that breaks it:\n")
    except Unfinished as error:
        scenario = error.scenario
        sys.stdout.write(f"a shorter story that breaks it ({error}):\n")
    except NothingBroken as error:
        sys.stdout.write(f"{error}\n")
    except Exception as error:  # the other seeds are to be told of all the same
        sys.stdout.write(f"not shrunk: the engine failed: {type(error).__name__}: {error}\n")
    sys.stdout.write(_described(scenario) + f"again: make replay SEED={each.seed}\n")
    sys.stdout.flush()


def _described(scenario: Scenario) -> str:
    lines = [
        f"  {len(scenario.nodes)} nodes, {len(scenario.workloads)} workloads, {len(scenario.budgets)} budgets, "
        + ", ".join(f"{len(each.skews)} {each.program}" for each in scenario.controllers)
    ]
    if scenario.floors is not None:
        lines += [
            f"  HPA {each.name} of {each.app}, {each.least} to {each.most}: {json.dumps(each.notes)}"
            for each in scenario.floors.autoscalers
        ]
    timed = [(each.at, f"{each.kind} {json.dumps(each.args)}") for each in scenario.steps]
    timed += [
        (each.at, f"fault {each.kind} {json.dumps(each.args)} until {each.until:g} s, share {each.share:g}")
        for each in scenario.faults
    ]
    return "\n".join(lines + [f"  {at:7.1f} s  {text}" for at, text in sorted(timed)]) + "\n"


def _shrink(chosen: argparse.Namespace) -> int:
    if chosen.promise and chosen.promise not in PROMISES:
        allowed = ", ".join(sorted(PROMISES))
        raise StoryError(f"unknown promise {chosen.promise!r}; allowed are {allowed}")
    scenario = make(chosen.seed) if chosen.file is None else read(chosen.file)
    promise = chosen.promise or _first_broken(scenario, known=chosen.known).promise
    try:
        shorter = shrink(scenario, promise, known=chosen.known, tries=chosen.tries, seconds=chosen.seconds)
    except Unfinished as error:
        chosen.output.write_bytes(encode(error.scenario))
        raise Unfinished(f"{error}; the shortest story until then is in {chosen.output}", error.scenario) from error
    chosen.output.write_bytes(encode(shorter))
    sys.stdout.write(f"{promise} is broken by the story in {chosen.output}:\n{_described(shorter)}")
    return 0


def _first_broken(scenario: Scenario, *, known: bool) -> Violation:
    result = run(scenario)
    found = result.violations if known else result.new
    if not found:
        raise NothingBroken(f"seed {scenario.seed}: no promise is broken; there is nothing to shrink")
    return found[0]


__all__ = ["USAGE", "main"]
