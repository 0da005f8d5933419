"""Kinds of values in settings."""

from __future__ import annotations

import pytest
from pydantic import Field

from tightship.objects.times import parse_duration, spell_duration
from tightship.process.settings.loading import (
    Budget,
    GoBool,
    Layered,
    Seconds,
    SettingsError,
    is_duration,
    load,
    plain,
    wire,
)


class Model(Layered):
    pause: Seconds = 60.0
    longest: Seconds = Field(default=90.0, alias="longestPause", validate_default=True)
    on: GoBool = True
    count: int = 0


@pytest.mark.parametrize(
    ("written", "seconds"), [("90s", 90), ("8m30s", 510), ("0.5m", 30), ("0", 0), (0, 0), ("1h30m", 5400)]
)
def test_a_duration_of_a_configuration_has_a_unit(written: object, seconds: float) -> None:
    assert load(Model, {"pause": written}).pause == seconds


@pytest.mark.parametrize("written", ["5", 5, 1.5, " 10 "])
def test_a_plain_number_is_no_duration_in_a_configuration(written: object) -> None:
    with pytest.raises(SettingsError) as refused:
        load(Model, {"pause": written})
    [problem] = refused.value.problems
    assert problem.startswith(f"pause: {written!r}: has no unit; allowed is a duration such as 90s, 10m")


@pytest.mark.parametrize("seconds", [0, 0.5, 5, 75, 510, 5400, 86400, 90061.25])
def test_a_duration_is_spelt_so_that_it_reads_back(seconds: float) -> None:
    assert parse_duration(spell_duration(seconds)) == seconds
    assert load(Model, {"pause": wire(Model(pause=seconds))["pause"]}).pause == seconds


def test_fields_of_durations_are_known() -> None:
    assert [name for name, field in Model.model_fields.items() if is_duration(field)] == ["pause", "longest"]


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (1.5, 1.5),
        (2.0, 2),
        (True, True),
        (None, None),
        ("word", "word"),
        (("b", "a"), ["b", "a"]),
        (frozenset({"b", "a"}), ["a", "b"]),
        (Budget(count=3), 3),
        (Budget(percent=10), "10%"),
    ],
)
def test_settings_are_shown_as_plain_data(value: object, shown: object) -> None:
    assert plain(value) == shown
    assert type(plain(value)) is type(shown)
