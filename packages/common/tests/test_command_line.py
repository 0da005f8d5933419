"""Label selectors on the command line, and the line of progress."""

from __future__ import annotations

import io
import time

import pytest

from tightship.cli.output import Progress, terminal_of
from tightship.objects.selectors import SelectorError, parse_selector
from tightship.process.settings.loading import parse_ratio

LABELS = {"pool": "web", "zone": "a", "size": "4", "example.com/tier": "gold", "empty": ""}


@pytest.mark.parametrize(
    ("selector", "matches"),
    [
        ("", True),
        ("pool=web", True),
        ("pool==web,zone=a", True),
        ("pool = web , zone != b", True),
        ("pool!=web", False),
        ("absent!=x", True),
        ("pool in (web, batch)", True),
        ("pool in (batch),zone=a", False),
        ("pool notin (batch,gpu)", True),
        ("absent notin (x)", True),
        ("pool", True),
        ("!pool", False),
        ("! absent", True),
        ("example.com/tier=gold", True),
        ("empty=", True),
        ("size>3", True),
        ("size<4", False),
    ],
)
def test_a_selector_matches_as_kubectl_would(selector: str, matches: bool) -> None:
    assert parse_selector(selector).matches(LABELS) is matches


@pytest.mark.parametrize(
    "text", ["a=b,", "a=b c", "a in b", "a in (b", "=b", "a b", "a=-x", "a=x_", "!a=b", "a>b", "A b=c", "a/b/c=d"]
)
def test_a_text_that_is_no_selector_is_named_with_what_is_allowed(text: str) -> None:
    with pytest.raises(SelectorError) as caught:
        parse_selector(text)
    assert repr(text) in str(caught.value)
    assert "allowed are a=b" in str(caught.value)


class Screen(io.StringIO):
    """Memory that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_progress_is_silent_for_quick_work_and_off_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tightship.cli.output.PATIENCE", 60.0)  # quick, on a busy machine too
    quick, pipe = Screen(), io.StringIO()
    for stream in (quick, pipe):
        with Progress(stream) as progress:
            progress.say("working")
    assert (quick.getvalue(), pipe.getvalue()) == ("", "")


def test_progress_shows_on_a_terminal_and_leaves_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tightship.cli.output.PATIENCE", 0.0)
    screen = Screen()
    deadline = time.monotonic() + 30
    with Progress(screen) as progress:
        progress.say("reading pods")
        while "reading pods" not in screen.getvalue() and time.monotonic() < deadline:
            pass
    assert "reading pods" in screen.getvalue()
    assert screen.getvalue().endswith("\r\x1b[K")


def test_off_a_terminal_a_line_tells_for_which_server_a_command_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tightship.cli.output.SILENCE", 0.0)
    pipe = io.StringIO()
    deadline = time.monotonic() + 30
    with Progress(pipe) as progress:
        progress.wait("connecting to https://example")
        while "connecting" not in pipe.getvalue() and time.monotonic() < deadline:
            pass
    assert pipe.getvalue().startswith("connecting to https://example (0s)\n")


@pytest.mark.parametrize(("text", "ratio"), [("75%", 0.75), ("0.75", 0.75), ("100%", 1.0), ("0", 0.0), (".5", 0.5)])
def test_a_ratio_may_be_a_percentage(text: str, ratio: float) -> None:
    assert parse_ratio(text) == ratio


@pytest.mark.parametrize("value", [1e-05, 0.75, 1, 0, 1.01])
def test_a_number_is_a_ratio_too(value: float) -> None:
    assert parse_ratio(value) == value


@pytest.mark.parametrize(("text", "guess"), [("75", "75%"), ("2", "2%"), ("99.5", "99.5%")])
def test_a_number_that_was_meant_as_a_percentage_is_guessed(text: str, guess: str) -> None:
    with pytest.raises(ValueError, match=f"did you mean {guess}"):
        parse_ratio(text)


@pytest.mark.parametrize("text", ["nan", "inf", "-1", "101%", "%", "", "0,75", "150%", True, None])
def test_what_is_no_ratio_is_refused_with_what_is(text: object) -> None:
    with pytest.raises(ValueError, match="is not a ratio; allowed is a number from 0 to 1") as refused:
        parse_ratio(text)
    assert "did you mean" not in str(refused.value)


def test_a_pipe_has_no_width_and_no_colour_and_a_terminal_has_both() -> None:
    pipe = terminal_of(io.StringIO(), {"COLUMNS": "50"})
    assert (pipe.width, pipe.colour) == (None, False)
    screen = terminal_of(Screen(), {"COLUMNS": "50"})
    assert (screen.width, screen.colour) == (50, True)
    assert not terminal_of(Screen(), {"COLUMNS": "50", "NO_COLOR": "1"}).colour
    assert not terminal_of(Screen(), {"COLUMNS": "50", "TERM": "dumb"}).colour
