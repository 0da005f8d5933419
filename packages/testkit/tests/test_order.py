"""The order in which tests are handed out."""

from __future__ import annotations

import os

import pytest

from tightship_testkit import order

pytest_plugins = ["pytester"]


def test_of_both_kinds_the_longest_come_first_and_both_end_together() -> None:
    waiting = [float(n) for n in range(1, 11)]
    computing = [0.1] * 30
    found = list(order.side_by_side(waiting, computing, lambda each: each))
    assert sorted(found) == sorted(waiting + computing)
    assert [each for each in found if each >= 1] == waiting[::-1]
    for share in (0.25, 0.5, 0.75):
        cut = next(n for n in range(len(found)) if sum(found[:n]) >= share * sum(found))
        computed = found[:cut].count(0.1)
        assert share - 0.2 < computed / len(computing) < share + 0.2
    assert list(order.side_by_side([], computing, lambda each: each)) == computing
    assert list(order.side_by_side([], [], lambda each: each)) == []


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
    assert passed == ["waiting", "one", "two", "long", "waiting_briefly", "plain"]


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
    [(2, 24, "", 4), (8, 8, "", 4), (1, 1, "", 1), (4, 64, "", 8), (2, 24, "not controlplane and not slow", 2)],
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
