"""The order in which tests are handed out."""

from __future__ import annotations

import os

import pytest

from tightship_testkit import order, slices

pytest_plugins = ["pytester"]


@pytest.mark.parametrize(
    ("workers", "cpus", "expected"),
    [
        (1, 2, ["CVW"]),
        (2, 2, ["CVW", "WCV"]),
        (3, 2, ["CVW", "WCV", "W"]),
        (4, 2, ["CVW", "WCV", "W", "V"]),
        (2, 1, ["CVW", "W"]),
        (6, 4, ["CVW", "CVW", "WCV", "WCV", "W", "W"]),
        (8, 4, ["CVW", "CVW", "WCV", "WCV", "W", "W", "V", "V"]),
        (2, 8, ["CVW", "WCV"]),
    ],
)
def test_half_the_processors_compute_and_all_of_them_once_nothing_waits(
    workers: int, cpus: int, expected: list[str]
) -> None:
    kinds = [order.kinds(each, workers, cpus) for each in range(workers)]
    assert ["".join(kind[0].upper() for kind in each) for each in kinds] == expected


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
    assert {worker for kind, worker in said if kind == "computing"} == {"gw0"}


def test_a_worker_that_may_starve_gets_tests_on_virtual_time_alone(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "import pytest\n"
    for number in range(6):
        text += f"def test_c{number}(worker_id): print('ran', 'computing', worker_id)\n"
        text += f"@pytest.mark.waits\ndef test_w{number}(worker_id): print('ran', 'waiting', worker_id)\n"
        text += f"@pytest.mark.virtual_time\ndef test_v{number}(worker_id): print('ran', 'virtual', worker_id)\n"
    pytester.makepyfile(text)
    pytester.makeini("[pytest]\nmarkers = virtual_time")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1}, raising=False)
    ran = pytester.runpytest_inprocess(*OPTIONS, "-p", "no:asyncio", "-n4", "-rP")
    ran.assert_outcomes(passed=18)
    said = {tuple(line.split()[1:]) for line in ran.outlines if line.startswith("ran ")}
    assert {kind for kind, worker in said if worker == "gw3"} == {"virtual"}


def test_where_nothing_waits_every_worker_computes(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    pytester.makepyfile("".join(f"def test_c{number}(worker_id): print('ran', worker_id)\n" for number in range(8)))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0}, raising=False)
    ran = pytester.runpytest_inprocess(*OPTIONS, "-p", "no:asyncio", "-n2", "-rP")
    ran.assert_outcomes(passed=8)
    assert {line.split()[1] for line in ran.outlines if line.startswith("ran ")} == {"gw0", "gw1"}


def test_a_run_with_workers_lengthens_its_time_slices(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.makepyfile("def test_plain(): pass")
    asked: list[float] = []
    monkeypatch.setattr(slices, "lengthen", asked.append)
    pytester.runpytest_inprocess(*OPTIONS, "-p", "no:asyncio", "-n1").assert_outcomes(passed=1)
    assert asked == [order.SLICE]


def test_what_a_worker_starts_uses_one_processor_at_once(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("import os\ndef test_plain(): assert os.environ['GOMAXPROCS'] == '1'")
    pytester.runpytest_subprocess(*OPTIONS, "-n1").assert_outcomes(passed=1)


def test_workers_begin_to_read_at_different_folders_and_run_in_one_order(pytester: pytest.Pytester) -> None:
    for name in "abcd":
        pytester.mkdir(name).joinpath(f"test_{name}.py").write_text(f"def test_{name}(): pass\n")
    pytester.makeconftest(
        "import os\n"
        "def pytest_collect_file(file_path):\n"
        "    with open(os.environ['PYTEST_XDIST_WORKER'], 'a') as file: print(file_path.stem, file=file)\n"
    )
    ran = pytester.runpytest_subprocess(*OPTIONS, "-n2", "--import-mode=importlib")
    ran.assert_outcomes(passed=4)
    wanted = [f"test_{name}" for name in "abcd"]
    first, second = (
        [name for name in (pytester.path / worker).read_text().splitlines() if name in wanted]
        for worker in ("gw0", "gw1")
    )
    assert first == wanted
    assert sorted(second) == wanted
    assert second[0] != first[0]


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
    [(2, 24, "", 4), (8, 8, "", 4), (1, 1, "", 1), (4, 64, "", 8), (2, 24, "not controlplane and not slow", 3)],
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
