"""Which code may read the machine's clocks and its chance: :mod:`tightship.kube.host`, and a few with a reason."""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGES = ("tightship", "node_compactor", "node_refiner", "hpa_scaler", "tightship_simulator")

FORBIDDEN = {
    "time": {
        "clock_gettime", "gmtime", "localtime", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns",
        "process_time", "sleep", "thread_time", "time", "time_ns",
    },
    "datetime": {"now", "today", "utcnow"},
    "date": {"today"},
    "uuid": {"uuid1", "uuid4"},
    "os": {"urandom", "getrandom"},
    "random": {"SystemRandom"},
    "secrets": {"choice", "randbelow", "randbits", "token_bytes", "token_hex", "token_urlsafe"},
}  # fmt: skip

ALLOWED = {
    "tightship/kube/host.py": "the one place: everybody else asks it",
    "tightship/process/loop.py": "the thread that ends a process whose event loop hangs",
    "tightship/cli/output.py": "a line in a terminal, drawn by a thread while people wait",
    "tightship_simulator/api/store.py": "the default of a clock that is an argument",
    "tightship_simulator/ports.py": "real ports of loopback",
}
"""Files, and why."""


def found_in(source: str) -> Iterator[str]:
    """Yield what *source* reads, by its own words."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name | ast.Attribute):
            module = node.value.id if isinstance(node.value, ast.Name) else node.value.attr
            if node.attr in FORBIDDEN.get(module, ()):
                yield f"{module}.{node.attr}"
        elif isinstance(node, ast.ImportFrom) and node.module in FORBIDDEN:
            yield from (f"{node.module}.{each.name}" for each in node.names if each.name in FORBIDDEN[node.module])


@pytest.mark.parametrize("package", PACKAGES)
def test_no_code_but_the_host_reads_a_real_clock_or_takes_real_chance(package: str) -> None:
    spec = importlib.util.find_spec(package)
    assert spec.origin is not None
    root = Path(spec.origin).parent
    found = {
        f"{package}/{path.relative_to(root).as_posix()}": reads
        for path in sorted(root.rglob("*.py"))
        if (reads := sorted(set(found_in(path.read_text(encoding="utf-8")))))
    }
    assert {name: reads for name, reads in found.items() if name not in ALLOWED} == {}
    stale = [name for name in ALLOWED if name.startswith(f"{package}/") and name not in found]
    assert not stale, "allowed, and no longer needed"


def test_what_is_forbidden_is_found() -> None:
    source = "import time, datetime\nfrom time import monotonic\ntime.time()\ndatetime.datetime.now()\nuuid.uuid4()"
    assert sorted(found_in(source)) == ["datetime.now", "time.monotonic", "time.time", "uuid.uuid4"]
    assert not list(found_in("loop.time()\nself.clock()\ntime.strftime('%H')"))
