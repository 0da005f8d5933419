"""What drains have saved: when a node begins to save, and what ends it."""

from __future__ import annotations

import msgspec
import pytest

from tightship.draining.claims import past_drains
from tightship.draining.lease_room import SAVINGS_ANNOTATION
from tightship.kube.leases import Lease
from tightship.objects.drain_record import Finished, PastDrains, Price
from tightship.planning.savings import APART, Saved, ended, saved, settled

HOUR = 3600.0
T0 = 1_790_000_000.0
NOTHING = PastDrains()
COSTS: Price = (500_000, "USD")


def removed(hour: float, *, pool: str = "p", price: Price = COSTS, ending: str = "handed_over") -> Finished:
    return Finished(
        node=f"n{hour}", pool=pool, controller="node-compactor", ending=ending, at=T0 + hour * HOUR, price=price
    )


def after(history: PastDrains, *hours: float) -> PastDrains:
    for hour in hours:
        history = ended(history, removed(hour))
    return history


def looked(history: PastDrains, hour: float, *added: float) -> PastDrains:
    return settled(history, [(T0 + at * HOUR, "p", f"new{at}") for at in added], T0 + hour * HOUR)


def hours(history: PastDrains, hour: float) -> float:
    return round(saved(history, T0 + hour * HOUR).get("p", Saved()).node_hours, 6)


def test_a_drained_node_that_is_gone_saves_from_then_on() -> None:
    found = saved(after(NOTHING, 0), T0 + 10 * HOUR)
    assert found == {"p": Saved(10.0, {"USD": 5_000_000})}


@pytest.mark.parametrize("ending", ["node_gone", "restored", "not_ours"])
def test_a_node_that_went_without_its_drain_done_or_stays_saves_nothing(ending: str) -> None:
    history = ended(NOTHING, removed(0, ending=ending))
    assert saved(history, T0 + 10 * HOUR) == {}
    assert len(history.finished) == 1


def test_a_drain_whose_entry_was_written_though_its_answer_was_lost_counts_once() -> None:
    drained = msgspec.structs.replace(removed(0), at=T0 + 0.0123)
    written = msgspec.structs.replace(drained, at=T0 + 0.012, reason="as it was cut")
    history = ended(NOTHING, written)
    assert ended(history, drained) == history
    assert len(ended(history, removed(1)).savings["p"].active) == 2


def test_a_node_without_a_price_saves_hours_and_no_money() -> None:
    found = saved(ended(NOTHING, removed(0, price=(0, ""))), T0 + 2 * HOUR)
    assert found == {"p": Saved(2.0, {})}


def test_an_added_node_ends_the_saving_of_the_one_that_went_last() -> None:
    history = looked(after(NOTHING, 0, 4), 8, 6)
    assert hours(history, 6) == 6 + 2
    assert hours(history, 10) == 10 + 2


def test_what_came_back_within_an_hour_saved_nothing() -> None:
    history = looked(after(NOTHING, 0, 4), 4.9, 4.8)
    assert hours(history, 10) == 10
    assert hours(after(NOTHING, 0), 0.9) == 0, "nor does what may still come back"


def test_each_added_node_counts_once_and_in_its_own_pool_only() -> None:
    history = looked(after(NOTHING, 0, 1, 2), 8, 6)
    assert looked(history, 9, 6) == history
    assert settled(history, [(T0 + 7 * HOUR, "q", "new")], T0 + 9 * HOUR) == history
    assert len(looked(history, 9, 6, 7, 7).savings["p"].active) == 0, "two of one moment are two"


def test_nodes_from_before_the_first_drain_end_nothing() -> None:
    assert looked(after(NOTHING, 5), 9, -3, 2, 4.9) == after(NOTHING, 5)


def test_a_node_that_was_added_during_the_first_drain_ends_its_saving() -> None:
    drain = msgspec.structs.replace(removed(5), began=T0 + 4.5 * HOUR)
    assert hours(looked(ended(NOTHING, drain), 9, 4.8), 9) == 0


def test_a_node_that_was_added_while_our_clock_was_ahead_ends_the_saving() -> None:
    assert hours(looked(after(NOTHING, 5), 9, 5 - 2 / 3600), 9) == 0


def test_more_nodes_than_went_save_nothing_below_zero() -> None:
    history = looked(after(NOTHING, 0), 8, 2, 3, 4)
    assert hours(history, 20) == 2
    assert hours(after(history, 10), 20) == 12


@pytest.mark.parametrize(
    "text", ["", "[]", '{"p": 7}', f'{{"p": {{"seen": "2026-01-01T00:00:00Z", "micros": {{"USD": 1{"0" * 400}}}}}}}']
)
def test_books_that_somebody_spoiled_count_as_empty(text: str) -> None:
    lease = Lease(namespace="ns", name="claims", annotations={SAVINGS_ANNOTATION: text})
    assert past_drains(lease).savings == {}


def test_books_of_many_drains_stay_small_and_lose_nothing() -> None:
    every = range(APART * 3)
    history = after(NOTHING, *every)
    assert len(history.savings["p"].active) == APART
    assert hours(history, 100) == sum(100 - hour for hour in every)
    assert saved(history, T0 + 100 * HOUR)["p"].micros["USD"] == 500_000 * sum(100 - hour for hour in every)
    back = looked(history, 99, *[90 + each / 100 for each in every])
    assert len(back.savings["p"].active) == 0
    assert hours(back, 100) == hours(back, 200)
