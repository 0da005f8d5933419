"""What pools learn from drains after which nodes were added again."""

from __future__ import annotations

import msgspec
import pytest

from tightship.objects.drain_record import Addition, Finished, PastDrains
from tightship.objects.reasons import Reason
from tightship.process.settings.sections import RegretKeys
from tightship.rules.waiting import after_additions, learned

HOUR = 3600.0
NOW = 1_790_000_000.0
KEYS = RegretKeys()


def drained(
    ago: float, *, node: str = "old", pool: str = "p", ending: str = "handed_over", lasted: float = 60
) -> Finished:
    return Finished(
        node=node, pool=pool, controller="node-compactor", ending=ending, at=NOW - ago, began=NOW - ago - lasted
    )


def history(*finished: Finished, **levels: int) -> PastDrains:
    return PastDrains(finished, {pool: regret(level, 10 * HOUR, "x") for pool, level in levels.items()})


def regret(level: int, ago: float, node: str = "new") -> Addition:
    return Addition(level=level, regretted_at=NOW - ago, regretted=node)


def levels(found: PastDrains) -> dict[str, int]:
    return {pool: each.level for pool, each in found.additions.items() if each.level}


@pytest.mark.parametrize("ending", ["handed_over", "node_gone", "restored"])
def test_a_node_added_within_the_window_is_after_additions(ending: str) -> None:
    found = learned(history(drained(1800, ending=ending)), [(NOW - 60, "p", "new")], KEYS, NOW)
    assert found.additions == {"p": regret(1, 60)}
    assert [each.came for each in found.finished] == ["new"]
    assert learned(found, [(NOW - 60, "p", "new")], KEYS, NOW + 60) == found, "once"


def test_one_added_while_pods_were_still_evicted_is_too() -> None:
    assert levels(learned(history(drained(10, lasted=300)), [(NOW - 100, "p", "new")], KEYS, NOW)) == {"p": 1}


def test_other_nodes_are_none_that_came_back() -> None:
    nodes = [(NOW - 5 * HOUR, "p", "before"), (NOW - 60, "q", "elsewhere"), (NOW, "p", "late")]
    assert levels(learned(history(drained(HOUR + 60)), nodes[:2], KEYS, NOW)) == {}
    assert levels(learned(history(drained(HOUR + 1)), nodes, KEYS, NOW)) == {}
    assert levels(learned(history(drained(60, ending="not_ours")), [(NOW, "p", "new")], KEYS, NOW)) == {}


def test_each_node_regrets_one_drain() -> None:
    drains = [drained(50 * 60, node="a"), drained(40 * 60, node="b"), drained(30 * 60, node="c")]
    nodes = [(NOW - 600, "p", "new-1"), (NOW - 500, "p", "new-2")]
    found = learned(history(*drains), nodes, KEYS, NOW)
    assert levels(found) == {"p": 2}
    assert [each.came for each in found.finished] == ["", "new-2", "new-1"]


def test_a_drain_that_stays_halves_the_pause_and_counts_once() -> None:
    found = learned(history(drained(HOUR + 1), p=3), [], KEYS, NOW)
    assert levels(found) == {"p": 2}
    assert found.finished[0].stayed
    assert learned(found, [], KEYS, NOW) == found
    assert levels(learned(history(drained(HOUR + 1), p=1), [], KEYS, NOW)) == {}
    assert levels(learned(history(drained(HOUR - 1), p=1), [], KEYS, NOW)) == {"p": 1}, "it may yet come back"
    assert levels(learned(history(drained(HOUR + 1, ending="restored"), p=1), [], KEYS, NOW)) == {"p": 1}


@pytest.mark.parametrize(("level", "hours"), [(1, 1), (2, 2), (3, 4), (5, 16), (6, 24), (60, 24), (2000, 24)])
def test_the_pause_doubles_up_to_a_day(level: int, hours: float) -> None:
    regrets = PastDrains((), {"p": regret(level, 10, "new-7")})
    found = after_additions(regrets, KEYS, NOW + hours * HOUR - 11)["p"].refusal
    assert found.reason is Reason.COOL_DOWN
    assert "node new-7 was added to pool p" in found.detail
    assert after_additions(regrets, KEYS, NOW + hours * HOUR) == {}


def test_after_the_pause_one_drain_at_a_time_shows_whether_it_stays() -> None:
    regrets = {"p": regret(1, 2 * HOUR)}
    waits = after_additions(PastDrains((drained(600, node="n9"),), regrets), KEYS, NOW)["p"]
    assert "n9" in waits.detail
    assert after_additions(PastDrains((drained(600, pool="q"),), regrets), KEYS, NOW) == {}
    assert after_additions(PastDrains((drained(600),)), KEYS, NOW) == {}, "where nothing was regretted"


def test_a_node_whose_clock_is_ahead_pauses_no_longer() -> None:
    ahead = PastDrains((), {"p": regret(1, -5 * HOUR)})
    assert "1h left" in after_additions(ahead, KEYS, NOW)["p"].detail


def test_a_window_of_nothing_switches_it_off() -> None:
    off = RegretKeys(regret_window=0)
    known = history(drained(60), p=4)
    assert learned(known, [(NOW, "p", "new")], off, NOW) is known
    assert after_additions(known, off, NOW) == {}


def test_a_node_that_was_added_pauses_its_pool_even_once_it_is_gone() -> None:
    """Where loads rise and fall together, the autoscaler removes in the trough what it added at the peak."""
    nodes = [(NOW - 9 * HOUR, "p", "base"), (NOW - 9 * HOUR, "q", "other"), (NOW - 600, "p", "peak")]
    found = learned(PastDrains(), nodes, KEYS, NOW)
    assert found.additions == {"p": Addition(NOW - 600, "peak")}
    assert learned(found, nodes, KEYS, NOW + 60) == found
    gone = learned(found, nodes[:2], KEYS, NOW + 1800)
    assert set(after_additions(gone, KEYS, NOW + 1800)) == {"p"}
    pause = after_additions(gone, KEYS, NOW + HOUR - 601)["p"].refusal
    assert (pause.reason, pause.subject) == (Reason.COOL_DOWN, "p")
    assert "node peak was added to pool p 59m" in pause.detail
    assert after_additions(gone, KEYS, NOW + HOUR - 600) == {}
    assert learned(gone, nodes[:2], KEYS, NOW + HOUR - 600) == PastDrains()


def test_a_pool_that_has_just_begun_does_not_wait_for_its_first_nodes() -> None:
    young = [(NOW - 50 * 60, "p", "a"), (NOW - 60, "p", "b")]
    assert learned(PastDrains(), young, KEYS, NOW) == PastDrains()


def test_a_node_whose_clock_is_ahead_was_added_now_and_is_written_down_once() -> None:
    nodes = [(NOW - 9 * HOUR, "p", "base"), (NOW + 5 * HOUR, "p", "ahead")]
    found = learned(PastDrains(), nodes, KEYS, NOW)
    assert found.additions == {"p": Addition(NOW, "ahead")}
    assert learned(found, nodes, KEYS, NOW + 60) == found


def test_of_a_regret_and_a_later_addition_the_pause_that_lasts_longer_is_told() -> None:
    both = Addition(NOW - 60, "peak", level=1, regretted_at=NOW - 1800, regretted="new")
    assert "node peak" in after_additions(PastDrains((), {"p": both}), KEYS, NOW)["p"].detail
    both = msgspec.structs.replace(both, level=3)
    assert "node new" in after_additions(PastDrains((), {"p": both}), KEYS, NOW)["p"].detail


def test_a_regret_outlasts_the_addition_and_the_addition_the_regret() -> None:
    known = PastDrains((drained(HOUR + 1),), {"p": Addition(NOW - 60, "peak", 1, NOW - 5 * HOUR, "new")})
    assert learned(known, [], KEYS, NOW).additions == {"p": Addition(NOW - 60, "peak")}
    assert learned(known, [], KEYS, NOW + HOUR).additions == {}
    still = msgspec.structs.replace(known, finished=())
    assert learned(still, [], KEYS, NOW + HOUR).additions == {"p": regret(1, 5 * HOUR)}
