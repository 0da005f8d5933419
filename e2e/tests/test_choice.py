"""Which cluster a run is on, and what becomes of a scenario that its cluster can't do."""

from __future__ import annotations

import argparse
import os
import signal
from collections.abc import Callable

import pytest

from tightship_e2e.options import SUFFIX_VARIABLE, name_run, problems
from tightship_e2e.providers import ImpossibleError, UnavailableError
from tightship_e2e.providers.choice import available
from tightship_e2e.providers.existing import RefusedError

SKIPPED = pytest.skip.Exception
FAILED = pytest.fail.Exception


def options(**given: object) -> argparse.Namespace:
    """The options of a run, those not *given* being their defaults."""
    defaults = {"provider": "controlplane", "yes_use_this_cluster": None, "existing_nodes": None, "numprocesses": None}
    return argparse.Namespace(**{**defaults, **given})


@pytest.mark.parametrize(
    ("ci", "provider", "error", "outcome"),
    [
        ("", "kind", UnavailableError, SKIPPED),
        ("true", "kind", UnavailableError, FAILED),
        ("true", "kind", ImpossibleError, SKIPPED),
        ("true", "existing", UnavailableError, SKIPPED),
        ("true", "controlplane", UnavailableError, FAILED),
        ("true", "existing", RefusedError, pytest.exit.Exception),
    ],
)
def test_what_can_not_be_done_is_skipped_and_fails_in_ci_if_it_could_be(
    monkeypatch: pytest.MonkeyPatch, ci: str, provider: str, error: type[Exception], outcome: type[BaseException]
) -> None:
    monkeypatch.setenv("CI", ci)
    with pytest.raises(outcome, match="an outage: why not"), available(provider):
        raise error("an outage: why not")


def test_what_somebodys_cluster_needs_is_said_all_at_once_and_is_for_it_alone() -> None:
    assert problems(options()) == []
    chosen = {"yes_use_this_cluster": "mine", "existing_nodes": "a=b"}
    assert problems(options(provider="existing", **chosen)) == []
    assert len(problems(options(provider="existing"))) == 2
    assert len(problems(options(provider="kind", **chosen))) == 2
    [reported] = problems(options(provider="kind", numprocesses=2))
    assert reported == "--provider kind is one cluster: scenarios on it can't run beside each other (-n)"
    assert problems(options(numprocesses=2)) == []


def test_only_a_run_on_somebodys_cluster_has_a_suffix(monkeypatch: pytest.MonkeyPatch) -> None:
    handlers: dict[int, Callable[..., None]] = {}
    raised: list[int] = []
    monkeypatch.setattr("signal.signal", handlers.__setitem__)
    # Who starts a run in the background has it ignore SIGINT.
    monkeypatch.setattr("signal.raise_signal", raised.append)
    monkeypatch.setattr(os, "environ", given := {SUFFIX_VARIABLE: ""})
    name_run(options(provider="kind"))
    assert given == {SUFFIX_VARIABLE: ""}
    names = set()
    for _ in range(2):
        name_run(options(provider="existing"))
        names.add(given[SUFFIX_VARIABLE])
    assert len(names) == 2
    assert [*handlers] == [signal.SIGTERM]  # told to end it cleans up, as after Ctrl-C
    handlers[signal.SIGTERM](signal.SIGTERM, None)
    assert raised == [signal.SIGINT]
    assert all(each.startswith("-") and len(each) == 7 for each in names)
