"""What the running controller remembers for its page: by how each write ended, of HPAs that are there, in one piece."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator

import pytest
from hpa_builder import NOW, hpa, judge, spec

from hpa_scaler.annotations.spec import FloorSpec, Rules
from hpa_scaler.documents.timeline import Timeline
from hpa_scaler.judge.decision import DropState, count_drops, judge_drops
from hpa_scaler.judge.judge import Cycle
from hpa_scaler.judge.ownership import ENDINGS, Ending
from hpa_scaler.process.status import KEPT, Timelines
from hpa_scaler.write.applying import Records

ASKED = spec(prometheus_query="q", requests_per_replica="10")
DRY = spec(prometheus_query="q", requests_per_replica="10", dry_run="true")


def cycle(rate: float, *names: str, minimum: int = 3, asked: FloorSpec = ASKED) -> Cycle:
    """A cycle of HPAs that all ask the same."""
    made = [judge(hpa(minimum, 50, 5, name=name, uid=f"uid-{name}"), asked, rate) for name in names or ("web",)]
    count = count_drops(made, Rules())
    return Cycle(tuple(made), count, judge_drops(count, DropState(), Rules(), NOW))


def kept(*, writes: bool = True) -> Timelines:
    return Timelines(Records("tightship.dev", writes=True), NOW, writes=writes)


def timeline(past: Timelines, name: str = "web") -> Timeline | None:
    return past.recent().timeline(f"shop/{name}")


@pytest.mark.parametrize("ending", ENDINGS)
def test_only_what_was_written_became_of_it(ending: Ending) -> None:
    past = kept()
    past.note(cycle(72), {"uid-web": ending}, NOW)
    found = timeline(past)
    if ending == "gone":
        assert found is None
        return
    assert found is not None
    assert found.floors == ((8,) if ending == "written" else (3,))
    assert [change.after for change in found.changes] == ([8] if ending == "written" else [])
    assert not found.dry


def test_a_change_that_it_did_not_come_to_is_none() -> None:
    past = kept()
    past.note(cycle(72), {}, NOW)
    found = timeline(past)
    assert found is not None
    assert (found.floors, found.changes) == ((3,), ())


@pytest.mark.parametrize(("writes", "asked"), [(False, ASKED), (True, DRY)])
def test_a_dry_run_of_all_or_of_one_has_what_would_be(writes: bool, asked: FloorSpec) -> None:
    past = kept(writes=writes)
    past.note(cycle(72, asked=asked), {"uid-web": "written"} if writes else {}, NOW)
    found = timeline(past)
    assert found is not None
    assert (found.floors, found.dry) == ((8,), True)


def test_what_is_gone_is_forgotten() -> None:
    records = Records("tightship.dev", writes=True)
    past = Timelines(records, NOW, writes=True)
    past.note(cycle(72, "web", "cart"), {}, NOW)
    records.retain({"uid-cart"})
    assert timeline(past) is None
    assert timeline(past, "cart") is not None


def test_who_looks_while_it_is_added_to_sees_whole_points(often: None) -> None:
    past, names = kept(), [f"web-{number}" for number in range(4)]
    cycles = [cycle(30 + 10 * number, *names) for number in range(4)]

    def note() -> None:
        for number in range(3 * KEPT.points):
            endings = {f"uid-{name}": "written" for name in names}
            past.note(cycles[number % 4], endings, NOW + 75 * number)

    noting = threading.Thread(target=note)
    noting.start()
    looks = 0
    while noting.is_alive() or not looks:
        for name in names:
            found = timeline(past, name)
            if found is not None:
                looks += 1
                assert {len(each) for each in (found.traffic, found.floors, found.maxima, found.replicas)} == {
                    len(found.times)
                }
                assert list(found.times) == sorted(set(found.times))
                assert len(found.times) <= KEPT.points
    noting.join()


@pytest.fixture
def often() -> Iterator[None]:
    """Threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)
