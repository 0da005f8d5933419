"""Changes functions of pure modules, to see which tests notice (``python -m tightship_testkit.mutants.code FOLDER``).

pytest imports and collects the tests once. Each module of tests then runs in a fork of this process, to learn which
blocks of statements each test enters and how long it takes. What was learned is kept in a cache until the tests, or a
file that they enter, change. Then each mutant has a fork of its own, in which the mutated function has its changed
code, and the tests that enter its block run, the fastest first, until one fails: a mutant costs what its tests cost.
Mutants of what runs at import (tables, classes' defaults) are left out for that.
"""

from __future__ import annotations

import argparse
import functools
import gc
import hashlib
import os
import resource
import select
import signal
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from random import Random
from types import CodeType, FunctionType

import msgspec
import pytest
from _pytest.runner import runtestprotocol
from msgspec import Struct

from tightship_testkit.mutants.changes import ENTERED, Mutant, become, live_functions, mutants, probed

FAST = "not controlplane and not slow"
PATIENCE = 5.0
"""How many times as long as alone a test of a mutant may take, beside three seconds: it may turn without end."""
LONGEST = 600.0
"""Seconds of a processor for one module of tests, and for one mutant."""
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tightship" / "mutants"
_TESTS = {
    "common": [f"packages/{each}/tests" for each in ("common", "node-compactor", "node-refiner", "tightship-cli")],
    "node-compactor": ["packages/node-compactor/tests"],
    "node-refiner": ["packages/node-refiner/tests"],
    "hpa-scaler": ["packages/hpa-scaler/tests"],
    "simulator": ["packages/simulator/tests"],
}
"""Which folders of tests are asked about a package's modules."""


class Traced(Struct, frozen=True):
    """What a test that passes does: *seconds* of a processor, and the first lines of blocks that it enters by file."""

    seconds: float
    entered: dict[str, list[int]]


class Trace(Struct, frozen=True):
    """What the tests of one module do, and the digests of the *files* that they enter."""

    files: dict[str, str]
    tests: dict[str, Traced]


class Killing:
    """A plugin that runs the tests as the module says, and has the outcome for each mutant."""

    def __init__(self, chosen: Sequence[Mutant], *, sources: Iterable[Path], seconds: float) -> None:
        self._chosen = chosen
        self._sources = list(sources)
        self._seconds = seconds
        self._live: dict[tuple[str, str], list[FunctionType]] = {}
        self._caches: list[functools._lru_cache_wrapper[object]] = []
        self._probes: dict[str, dict[tuple[str, int], CodeType]] = {}
        self.traced: dict[str, Traced] = {}
        """What is known of each test."""
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
        """Trace the modules of tests that are not known yet, then run each mutant's tests."""
        gc.unfreeze()
        self._live = live_functions()
        # Here, once: whoever looks at all objects in a fork has all memory copied.
        self._caches = [each for each in gc.get_objects() if isinstance(each, functools._lru_cache_wrapper)]
        gc.freeze()
        modules: dict[Path, list[pytest.Item]] = {}
        for each in session.items:
            modules.setdefault(each.path, []).append(each)
        for number, (path, items) in enumerate(modules.items(), 1):
            self.traced |= self._trace(path, items)
            _progress("modules of tests traced", number, len(modules))
        items = [each for each in session.items if each.nodeid in self.traced]
        items.sort(key=lambda each: self.traced[each.nodeid].seconds)
        for number, mutant in enumerate(self._chosen, 1):
            self._try(mutant, items)
            if mutant not in self.killers:
                sys.stdout.write(f"{mutant}: survived {self.tried[mutant]} tests\n{mutant.diff()}\n\n")
                sys.stdout.flush()
            _progress("mutants", number, len(self._chosen))
        return True

    def _trace(self, path: Path, items: list[pytest.Item]) -> dict[str, Traced]:
        helpers = (each for each in path.parent.glob("*.py") if not each.name.startswith("test_"))
        key = _digest(
            *(each.read_bytes() for each in (path, *sorted(helpers))),
            _relative(path).encode(),
            b"with what functions make",
        )
        kept = CACHE / f"{key}.json"
        if kept.exists():
            trace = msgspec.json.decode(kept.read_bytes(), type=Trace)
            current = all(Path(each).exists() and _of_file(each) == digest for each, digest in trace.files.items())
            if current and trace.tests.keys() >= {each.nodeid for each in items}:
                return trace.tests
        self._probes = self._probes or {str(each): probed(each) for each in self._sources}
        CACHE.mkdir(parents=True, exist_ok=True)
        kept.unlink(missing_ok=True)
        _forked(functools.partial(self._write_trace, items, kept), LONGEST)
        if not kept.exists():
            sys.stderr.write(f"{path}: no trace, left out\n")
            return {}
        return msgspec.json.decode(kept.read_bytes(), type=Trace).tests

    def _write_trace(self, items: list[pytest.Item], kept: Path, _out: int) -> None:
        lines: dict[str, set[int]] = {file: set() for file in self._probes}
        for file, codes in self._probes.items():
            for (name, _), code in codes.items():
                for each in become(self._live.get((file, name), ()), code):
                    each.__globals__[ENTERED] = lines[file].add
        tests: dict[str, Traced] = {}
        for item, following in zip(items, [*items[1:], None], strict=True):
            for entered in lines.values():
                entered.clear()
            began = time.process_time()
            reports = runtestprotocol(item, log=False, nextitem=following)
            if all(each.passed for each in reports):
                found = {_relative(file): sorted(entered) for file, entered in lines.items() if entered}
                tests[item.nodeid] = Traced(time.process_time() - began, found)
        files = {file for each in tests.values() for file in each.entered}
        trace = Trace({file: _of_file(file) for file in sorted(files)}, tests)
        writing = kept.with_suffix(f".{os.getpid()}")
        writing.write_bytes(msgspec.json.encode(trace))
        writing.replace(kept)

    def _try(self, mutant: Mutant, items: Iterable[pytest.Item]) -> None:
        tests: list[pytest.Item] = []
        planned, file = 0.0, _relative(mutant.file)
        for each in items:
            traced = self.traced[each.nodeid]
            if planned < self._seconds and mutant.block in traced.entered.get(file, ()):
                planned += traced.seconds
                tests.append(each)
        self.tried[mutant] = len(tests)
        if tests:
            heard = _forked(functools.partial(self._run_mutated, mutant, tests), LONGEST)
            # One that never ends, or takes its process with it, is noticed, too.
            number = int(heard or 0)
            if number < len(tests):
                self.killers[mutant] = tests[number].nodeid

    def _run_mutated(self, mutant: Mutant, tests: list[pytest.Item], out: int) -> None:
        """Run *tests* on a mutant, and write the number of the first that fails, else how many there are."""
        become(self._live.get((str(mutant.file), mutant.name), ()), mutant.code())
        for cache in self._caches:
            cache.cache_clear()
        for number, item in enumerate(tests):
            following = tests[number + 1] if number + 1 < len(tests) else None
            limit = time.process_time() + 3 + self.traced[item.nodeid].seconds * PATIENCE
            resource.setrlimit(resource.RLIMIT_CPU, (int(limit) + 1, resource.RLIM_INFINITY))
            reports = runtestprotocol(item, log=False, nextitem=following)
            if any(each.failed for each in reports):
                os.write(out, b"%d" % number)
                return
        os.write(out, b"%d" % len(tests))


def _forked(work: Callable[[int], None], limit: float) -> bytes:
    """Run *work* in a fork, and return what it wrote; it has *limit* seconds of a processor, on the clock ten times."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        os.setpgid(0, 0)
        resource.setrlimit(resource.RLIMIT_CPU, (int(limit), resource.RLIM_INFINITY))
        try:
            work(writing)
        finally:
            os._exit(0)
    os.close(writing)
    heard = b""
    until = time.monotonic() + limit * 10
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
    return heard


def _relative(file: str | Path) -> str:
    return str(Path(file).relative_to(_ROOT))


def _digest(*parts: bytes) -> str:
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:32]


@functools.cache
def _of_file(name: str) -> str:
    return _digest(Path(name).read_bytes())


def _progress(what: str, number: int, of: int) -> None:
    if number % 20 == 0 or number == of:
        sys.stderr.write(f"{number} of {of} {what}, {time.monotonic() - _BEGAN:.0f} s\n")


_BEGAN = time.monotonic()
_ROOT = Path.cwd()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; 1 where a mutant survives."""
    parser = argparse.ArgumentParser(prog="python -m tightship_testkit.mutants.code", description=__doc__)
    parser.add_argument("paths", nargs="+", type=Path, help="folders and modules to change")
    parser.add_argument("--sample", type=int, default=200, help="mutants, drawn by the seed; 0: all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tests", nargs="*", default=[], help="instead of the folders of the packages' tests")
    parser.add_argument("--marked", default=FAST, help="which tests, as in pytest's -m")
    parser.add_argument("--seconds", type=float, default=20.0, help="of tests on one mutant at most")
    parser.add_argument("--needless", action="store_true", help="name tests that kill nothing of their own")
    given = parser.parse_args(arguments)
    files = sorted(
        {file.resolve() for path in given.paths for file in ([path] if path.is_file() else path.rglob("*.py"))}
    )
    chosen = [each for file in files for each in mutants(file)]
    total = len(chosen)
    if given.sample and given.sample < total:
        chosen = Random(given.seed).sample(chosen, given.sample)  # noqa: S311 - a sample
    parts = {file: file.parts.index("packages") for file in files}
    packages = {Path(*file.parts[: at + 2]) for file, at in parts.items()}
    tests = given.tests or sorted({folder for each in packages for folder in _TESTS[each.name]})
    sources = [file for each in packages for file in sorted((each / "src").rglob("*.py"))]
    killing = Killing(chosen, sources=sources, seconds=given.seconds)
    pytest.main(["-q", "-n", "0", "-m", given.marked, "-p", "no:cacheprovider", "--no-summary", *tests], [killing])
    if given.needless:
        for test in sorted(killing.traced.keys() - set(killing.killers.values())):
            sys.stdout.write(f"{killing.traced[test].seconds:8.2f} s  kills nothing of its own: {test}\n")
    for folder in sorted({each.parent for each in files}):
        drawn = [each for each in chosen if each.file.parent == folder]
        _tell(_relative(folder), drawn, killing)
    _tell(f"drawn from {total}", chosen, killing)
    return 1 if len(killing.killers) < len(chosen) else 0


def _tell(name: str, drawn: Sequence[Mutant], killing: Killing) -> None:
    killed = sum(each in killing.killers for each in drawn)
    if drawn:
        sys.stdout.write(f"{killed:5} of {len(drawn):4} mutants killed ({killed / len(drawn):4.0%})  {name}\n")


if __name__ == "__main__":
    sys.exit(main())
