"""Kinds of values in settings."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import Field

from tightship.process.settings.fields import Budget, GoBool, Minutes, Seconds, is_duration, plain
from tightship.process.settings.loading import Layered, SettingsError, load


class Model(Layered):
    pause: Seconds = 60.0
    longest: Seconds = Field(default=90.0, alias="longestPause", validate_default=True)
    on: GoBool = True
    count: int = 0


@pytest.mark.parametrize(
    ("unit", "written", "seconds"),
    [(str, "5", 5), (Minutes, "5", 300), (Minutes, "90s", 90), (int, 5, 5), (float, 1.5, 1.5), (Minutes, "0.5", 30)],
)
def test_a_plain_number_in_a_text_has_the_unit_of_the_text(unit: Any, written: object, seconds: float) -> None:
    """One that is no text is seconds already, so that defaults are never read again in another unit."""
    loaded = load(Model, {"pause": unit(written)})
    assert (loaded.pause, loaded.longest) == (seconds, 90)


def test_the_error_names_the_unit() -> None:
    with pytest.raises(SettingsError, match=r"pause: 'soon'.* or a plain number of minutes"):
        load(Model, {"pause": Minutes("soon")})


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
