"""The order in which tests are handed out."""

from __future__ import annotations

import os

import pytest

from tightship_testkit import order

pytest_plugins = ["pytester"]


@pytest.mark.parametrize(
    ("workers", "expected"),
    [
        (1, ["computes, then waits"]),
        (2, ["computes, then waits", "waits, then computes"]),
        (3, ["computes, then waits", "computes, then waits", "waits"]),
        (5, ["computes, then waits", "computes, then waits", "waits", "waits", "waits"]),
    ],
)
def test_as_many_workers_compute_as_there_are_processors_and_the_others_wait(workers: int, expected: list[str]) -> None:
    words = {(False, True): "computes, then waits", (True, False): "waits, then computes", (True,): "waits"}
    assert [words[order.kinds(each, workers, 2)] for each in range(workers)] == expected


OPTIONS = ("-p", "tightship_testkit.order", "-p", "no:cacheprovider", "-v", "--strict-markers")
TESTS = """
import pytest

def test_plain(): pass

@pytest.mark.takes(9)
def test_long(): pass

@pytest.mark.xdist_group("group")
@pytest.mark.takes(4)
def test_one(): pass

@pytest.mark.waits
@pytest.mark.takes(50)
def test_waiting(): pass

@pytest.mark.xdist_group(name="group")
@pytest.mark.takes(6)
def test_two(): pass

@pytest.mark.waits
def test_waiting_briefly(): pass
"""


def test_workers_get_groups_whole_and_the_longest_first(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(TESTS)
    ran = pytester.runpytest_subprocess(*OPTIONS, "-n1")
    ran.assert_outcomes(passed=6)
    passed = [line.partition("::test_")[2].split()[0] for line in ran.outlines if "PASSED" in line]
    assert passed == ["one", "two", "long", "plain", "waiting", "waiting_briefly"]


def test_workers_that_only_wait_compute_nothing(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "import pytest\n"
    for number in range(12):
        text += f"def test_c{number}(worker_id): print('ran', 'computing', worker_id)\n"
        text += f"@pytest.mark.waits\ndef test_w{number}(worker_id): print('ran', 'waiting', worker_id)\n"
    pytester.makepyfile(text)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0}, raising=False)
    ran = pytester.runpytest_inprocess(*OPTIONS, "-p", "no:asyncio", "-n2", "-rP")
    ran.assert_outcomes(passed=24)
    said = {tuple(line.split()[1:]) for line in ran.outlines if line.startswith("ran ")}
    assert {kind for kind, worker in said if worker == "gw1"} == {"waiting"}


def test_a_group_is_never_torn_apart(pytester: pytest.Pytester) -> None:
    text = "import pytest\n"
    for group, number in ((group, number) for number in range(8) for group in "ab"):
        text += f"@pytest.mark.xdist_group('{group}')\n"
        text += f"def test_{group}{number}(worker_id): print('ran', '{group}', worker_id)\n"
    pytester.makepyfile(text)
    ran = pytester.runpytest_subprocess(*OPTIONS, "-n2", "-rP")
    ran.assert_outcomes(passed=16)
    said = {tuple(line.split()[1:]) for line in ran.outlines if line.startswith("ran ")}
    assert sorted(group for group, _ in said) == ["a", "b"]


@pytest.mark.parametrize(
    ("processors", "gibibytes", "chosen", "expected"),
    [(2, 24, "", 5), (8, 8, "", 4), (1, 1, "", 1), (4, 64, "", 10), (2, 24, "not controlplane and not slow", 2)],
)
def test_there_are_as_many_workers_as_processors_and_memory_carry(
    monkeypatch: pytest.MonkeyPatch,
    pytestconfig: pytest.Config,
    processors: int,
    gibibytes: int,
    chosen: str,
    expected: int,
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(processors)), raising=False)
    monkeypatch.setattr(os, "sysconf", {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": gibibytes * 2**18}.__getitem__)
    monkeypatch.setattr(pytestconfig.option, "markexpr", chosen)
    assert order.pytest_xdist_auto_num_workers(pytestconfig) == expected
