"""Changes functions of pure modules, to see which tests notice (``python -m tightship_testkit.mutants.code FOLDER``).

pytest collects the tests and runs each once, to learn which functions it enters and how long it takes. Then each mutant
has a process of its own, a fork of this one, in which the mutated function has its changed code, and the tests that
enter the function run, the fastest first, until one fails. Nothing is imported or collected again: a mutant costs what
its tests cost. Mutants of what runs at import (tables, classes' defaults) are left out for that.
"""

from __future__ import annotations

import argparse
import functools
import gc
import json
import os
import resource
import select
import signal
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from random import Random
from types import CodeType, FrameType, FunctionType

import pytest
from _pytest.runner import runtestprotocol

from tightship_testkit.mutants.changes import Mutant, mutants

SLOW = "not controlplane"
FAST = f"{SLOW} and not slow"
PATIENCE = 20.0
"""By how much longer than alone a mutant's tests may take, beside ten seconds: it may turn without end."""
_TESTS = {
    "common": ["packages/common/tests", "packages/node-compactor/tests", "packages/node-refiner/tests"],
    "node-compactor": ["packages/node-compactor/tests"],
    "node-refiner": ["packages/node-refiner/tests"],
    "hpa-scaler": ["packages/hpa-scaler/tests"],
    "simulator": ["packages/simulator/tests"],
}
"""Which folders of tests are asked about a package's modules."""


class Killing:
    """A plugin that runs the tests as the module says, and has the outcome for each mutant."""

    def __init__(self, chosen: Sequence[Mutant], *, seconds: float) -> None:
        self._chosen = chosen
        self._seconds = seconds
        self._live: dict[tuple[str, str, int], list[FunctionType]] = {}
        self._entered: dict[str, set[int]] = {}
        self._caches: list[functools._lru_cache_wrapper[object]] = []
        self.took: dict[str, float] = {}
        """Seconds of a processor by test."""
        self.killers: dict[Mutant, str] = {}
        """Which test killed a mutant: the fastest that can, if any."""
        self.tried: dict[Mutant, int] = {}
        """How many tests were run on it."""

    def pytest_configure(self) -> None:
        """Have Hypothesis try the same examples each time, and remember none."""
        # pytest rewrites its assertions first.
        from hypothesis import HealthCheck, settings

        settings.register_profile(
            "mutants", derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck)
        )
        settings.load_profile("mutants")

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Leave the browser out: it is a process that forks would share."""
        items[:] = [each for each in items if "browser" not in getattr(each, "fixturenames", ())]

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run all tests once, then those of each mutant."""
        sound = [each for number, each in enumerate(session.items) if self._run(each, session.items[number + 1 :][:1])]
        sys.stderr.write(f"{len(sound)} tests, {sum(self.took.values()):.0f} s; {len(self._chosen)} mutants\n")
        gc.unfreeze()
        for found in gc.get_objects():
            if isinstance(found, FunctionType):
                code = found.__code__
                self._live.setdefault((code.co_filename, code.co_qualname, code.co_firstlineno), []).append(found)
            elif isinstance(found, functools._lru_cache_wrapper):
                self._caches.append(found)
        gc.collect()
        gc.freeze()
        sound.sort(key=lambda each: self.took[each.nodeid])
        began = time.monotonic()
        for number, mutant in enumerate(self._chosen, 1):
            self._try(mutant, sound)
            if number % 50 == 0:
                sys.stderr.write(f"{number} of {len(self._chosen)} mutants, {time.monotonic() - began:.0f} s\n")
        return True

    def _run(self, item: pytest.Item, following: list[pytest.Item]) -> bool:
        """Run a test, note what it enters, and say whether it passed."""
        entered: set[int] = set()

        def trace(frame: FrameType, _event: str, _argument: object) -> None:
            entered.add(id(frame.f_code))

        began = time.process_time()
        threading.settrace(trace)
        sys.settrace(trace)
        try:
            reports = runtestprotocol(item, log=False, nextitem=following[0] if following else None)
        finally:
            sys.settrace(None)
            threading.settrace(None)
        self.took[item.nodeid] = time.process_time() - began
        self._entered[item.nodeid] = entered
        return all(each.passed for each in reports)

    def _try(self, mutant: Mutant, sound: Iterable[pytest.Item]) -> None:
        live = self._live.get((str(mutant.file), mutant.name, mutant.line), [])
        codes = {id(each.__code__) for each in live}
        tests: list[pytest.Item] = []
        planned = 0.0
        for each in sound:
            if planned < self._seconds and codes & self._entered[each.nodeid]:
                planned += self.took[each.nodeid]
                tests.append(each)
        self.tried[mutant] = len(tests)
        if not tests:
            return
        code = mutant.code()
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reading)
            self._mutated(code, live, tests, writing, 10 + planned * PATIENCE)
        os.close(writing)
        heard = b""
        # A busy machine gives a fraction of a processor.
        until = time.monotonic() + (10 + planned * PATIENCE) * 10
        while select.select([reading], [], [], max(0.0, until - time.monotonic()))[0]:
            found = os.read(reading, 4096)
            if not found:
                break
            heard += found
        os.close(reading)
        try:
            os.killpg(child, signal.SIGKILL)
        except ProcessLookupError:
            os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        # One that never ends, or takes its process with it, is noticed, too.
        number = int(heard or 0)
        if number < len(tests):
            self.killers[mutant] = tests[number].nodeid

    def _mutated(
        self, code: CodeType, live: Iterable[FunctionType], tests: list[pytest.Item], out: int, limit: float
    ) -> None:
        """Run *tests* on a mutant in this forked process, and write the number of each that fails, at last how many."""
        os.setpgid(0, 0)
        resource.setrlimit(resource.RLIMIT_CPU, (int(limit) + 1, int(limit) + 2))
        for each in live:
            each.__code__ = code.replace(co_freevars=each.__code__.co_freevars)
        for cache in self._caches:
            cache.cache_clear()
        for number, item in enumerate(tests):
            following = tests[number + 1] if number + 1 < len(tests) else None
            reports = runtestprotocol(item, log=False, nextitem=following)
            if any(each.failed for each in reports):
                os.write(out, b"%d" % number)
                os._exit(0)
        os.write(out, b"%d" % len(tests))
        os._exit(0)


def needless(killing: Killing) -> list[str]:
    """Return the tests that kill no mutant which no faster test kills, the slowest first."""
    return sorted(killing.took.keys() - set(killing.killers.values()), key=lambda each: -killing.took[each])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; 1 where a mutant survives."""
    parser = argparse.ArgumentParser(prog="python -m tightship_testkit.mutants.code", description=__doc__)
    parser.add_argument("paths", nargs="+", type=Path, help="folders and modules to change")
    parser.add_argument("--sample", type=int, default=200, help="mutants, drawn by the seed; 0: all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tests", nargs="*", default=[], help="instead of the folders of the packages' tests")
    parser.add_argument("--seconds", type=float, default=30.0, help="of tests on one mutant at most")
    parser.add_argument("--needless", action="store_true", help="name tests that kill nothing of their own")
    parser.add_argument("--slow", action="store_true", help="with the slow tests")
    parser.add_argument("--json", type=Path, help="a file for all results")
    given = parser.parse_args(arguments)
    files = sorted(
        {file.resolve() for path in given.paths for file in ([path] if path.is_file() else path.rglob("*.py"))}
    )
    chosen = [each for file in files for each in mutants(file)]
    total = len(chosen)
    if given.sample and given.sample < total:
        chosen = Random(given.seed).sample(chosen, given.sample)  # noqa: S311 - a sample
    packages = {
        part for file in files for before, part in zip(file.parts, file.parts[1:], strict=False) if before == "packages"
    }
    tests = given.tests or sorted({folder for package in packages for folder in _TESTS.get(package, [])})
    killing = Killing(chosen, seconds=given.seconds)
    options = ["-q", "-n", "0", "-m", SLOW if given.slow else FAST, "-p", "no:cacheprovider", "--no-summary"]
    pytest.main([*options, *tests], plugins=[killing])
    survivors = [each for each in chosen if not killing.killers.get(each)]
    for each in survivors:
        sys.stdout.write(f"{each}: survived {killing.tried.get(each, 0)} tests\n{each.diff()}\n\n")
    if given.needless:
        for test in needless(killing):
            sys.stdout.write(f"{killing.took[test]:8.2f} s  kills nothing of its own: {test}\n")
    if given.json:
        found = [[str(each), each.diff(), killing.tried.get(each, 0), killing.killers.get(each)] for each in chosen]
        given.json.write_text(json.dumps({"took": killing.took, "mutants": found}))
    killed = len(chosen) - len(survivors)
    sys.stdout.write(f"{killed} of {len(chosen)} mutants killed ({killed / len(chosen):.1%}), drawn from {total}\n")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
