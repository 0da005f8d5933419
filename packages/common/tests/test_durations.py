"""Durations."""

import pytest

from tightship.objects.times import DurationError, format_duration, parse_duration


@pytest.mark.parametrize(
    ("text", "plain", "seconds"),
    [
        ("10m", "", 600),
        ("1h30m", "", 5400),
        ("90s", "m", 90),
        ("5", "m", 300),
        ("300", "s", 300),
        ("0", "", 0),
        ("1d", "", 86400),
    ],
)
def test_durations(text: str, plain: str, seconds: float) -> None:
    assert parse_duration(text, plain) == seconds


@pytest.mark.parametrize("text", ["", "10", "m", "-5m", "5 m", "10min", "1h-5m", "abc"])
def test_what_is_no_duration_is_refused_with_what_is_allowed(text: str) -> None:
    with pytest.raises(DurationError, match="allowed is a duration such as 90s"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("seconds", "text"), [(5, "5s"), (119, "119s"), (180, "3m"), (7500, "2h5m"), (277200, "3d5h"), (2e6, "23d")]
)
def test_ages_read_as_kubectl_prints_them(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text
