"""Which installation may touch what: the order of the list decides, and nobody alive is taken for dead."""

from __future__ import annotations

import pytest

from tightship.cluster.installations import EVERY_OTHER, Beside, Installation, short
from tightship.objects.reasons import Reason
from tightship_testkit.builders import node, snapshot

TOY = "node-toy"
ALL = {EVERY_OTHER: True}


def listed(*entries: tuple[str, dict[str, bool]], controller: str = TOY) -> tuple[Installation, ...]:
    return tuple(Installation(lease=lease, controller=controller, pools=pools) for lease, pools in entries)


@pytest.mark.parametrize(
    ("entries", "holder"),
    [
        ((), ""),
        ((("a/x", ALL),), ""),
        ((("a/x", ALL), ("me/x", ALL)), "a/x"),
        ((("me/x", ALL), ("a/x", ALL)), ""),
        ((("a/x", {"alpha": True}), ("me/x", ALL)), "a/x"),
        ((("a/x", {"beta": True}), ("me/x", ALL)), ""),
        ((("a/x", {**ALL, "alpha": False}), ("me/x", ALL)), ""),
        ((("a/x", ALL), ("me/x", {"beta": True})), ""),
        ((("a/x", {}), ("b/x", ALL), ("me/x", ALL)), "b/x"),
        ((("a/x", ALL), ("b/x", ALL)), ""),
    ],
)
def test_the_first_in_the_list_that_drains_a_pool_holds_it(
    entries: tuple[tuple[str, dict[str, bool]], ...], holder: str
) -> None:
    beside = Beside(TOY, "me/x", listed(*entries), None)
    [view] = snapshot(node("n", labels={"nodepool": "alpha"})).nodes.values()
    found = beside.holder(view.node)
    assert (found.lease if found is not None else "") == holder
    refusal = beside.refusal(view.node)
    assert (refusal is None) is (holder == "")
    assert refusal is None or (refusal.reason is Reason.OTHER_INSTALLATION and holder in refusal.detail)


def test_pools_that_others_tell_by_other_labels_overlap_all_the_same() -> None:
    [view] = snapshot(node("n", labels={"nodepool": "alpha", "team": "blue"})).nodes.values()
    other = Installation(lease="a/x", controller=TOY, pools={"blue": True}, labels=("team",))
    own = Installation(lease="me/x", controller=TOY, pools={"alpha": True})
    assert Beside(TOY, "me/x", (other, own), None).holder(view.node) is other


def test_another_controller_holds_nothing() -> None:
    [view] = snapshot(node("n")).nodes.values()
    both = (*listed(("a/x", ALL), controller="node-other"), *listed(("me/x", ALL)))
    assert Beside(TOY, "me/x", both, None).holder(view.node) is None


@pytest.mark.parametrize(
    ("alive", "lease", "foreign"),
    [
        (None, "a/x", True),
        (frozenset({short("a/x")}), "a/x", True),
        (frozenset[str](), "a/x", False),
        (None, "me/x", False),
        (None, "", False),
    ],
)
def test_what_somebody_wrote_who_may_be_alive_is_theirs(
    alive: frozenset[str] | None, lease: str, foreign: bool
) -> None:
    beside = Beside(TOY, "me/x", (), alive)
    assert beside.foreign(lease) is foreign
    assert beside.ours(Beside(TOY, lease).mark) is not foreign
    assert not beside.ours(Beside("node-other", lease).mark)
    assert Beside(TOY).ours(Beside(TOY, lease).mark), "a plan on the command line is nobody's"


def test_the_mark_is_the_value_of_a_taint() -> None:
    mark = Beside("node-compactor", f"{'n' * 63}/{'l' * 253}").mark
    assert len(mark) <= 63
    assert mark.replace("-", "").replace(".", "").isalnum()
