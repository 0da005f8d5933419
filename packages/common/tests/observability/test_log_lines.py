"""One record is one line, in every format, whatever its values hold."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from tightship.process.logging import FORMATS, LoggingError, fields_of, formatter, log, set_up, sparing

LOGGER = logging.getLogger("tightship.test_log_lines")
NASTY = 'two\nlines\r\nand\u2028a "quote" \x1b[31m'


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Unprintable:
    def __str__(self) -> str:
        raise RuntimeError("no")


@pytest.fixture(autouse=True)
def root() -> Iterator[None]:
    """The process's own set-up comes back."""
    logger = logging.getLogger()
    handlers, level = logger.handlers[:], logger.level
    yield
    logger.handlers[:], logger.level = handlers, level


def lines(name: str, *, level: str = "info", to: io.StringIO | None = None, **environment: str) -> io.StringIO:
    stream = to or io.StringIO()
    set_up(name, level, stream=stream, environment=environment)
    return stream


def crash() -> BaseException:
    try:
        raise ValueError("first\nsecond")
    except ValueError as error:
        return error


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({}, id="none"),
        pytest.param({"node": "n1", "pods": 12, "ratio": 0.25, "on": True, "none": None}, id="plain"),
        pytest.param({NASTY: NASTY}, id="line breaks"),
        pytest.param({"half": "\ud800", "error": ValueError(NASTY)}, id="what JSON can't hold"),
        pytest.param({"broken": Unprintable(), "nan": float("nan"), "many": {1: {2, 3}}}, id="defects"),
        pytest.param({"message": "mine", "level": "mine", "time": 1, "severity": 2, "source": 3}, id="taken names"),
    ],
)
def test_a_record_is_one_line(name: str, fields: dict[str, Any]) -> None:
    stream = lines(name)
    log(LOGGER, logging.WARNING, "100% of\nit", **fields, exc_info=crash())
    LOGGER.info("the next of %d", 2)
    first, second = stream.getvalue().split("\n")[:-1]
    assert "100% of" in first
    assert "the next of 2" in second
    if FORMATS[name] == "json":
        assert json.loads(first)["message"] == "100% of\nit"


def decoded(name: str, error: BaseException | None = None, **fields: object) -> dict[str, Any]:
    stream = lines(name)
    log(LOGGER, logging.WARNING, "drained", exc_info=error, **fields)
    found: dict[str, Any] = json.loads(stream.getvalue())
    return found


def test_json_has_the_values_beside_the_sentence() -> None:
    line = decoded("json", node="n1", message="not the sentence")
    assert line.pop("time").endswith("Z")
    assert line == {
        "level": "warn",
        "severity": "WARNING",
        "logger": LOGGER.name,
        "message": "drained",
        "node": "n1",
        "field_message": "not the sentence",
    }


def test_json_has_the_stack_where_error_reporting_looks_for_it() -> None:
    line = decoded("json", crash())
    assert line["error"] == "ValueError: first\nsecond"
    assert line["stack_trace"].startswith("Traceback")


@pytest.mark.parametrize(
    ("older", "name"), [("plaintext", "text"), ("console", "text"), ("stackdriver", "json"), ("v3", "json")]
)
def test_the_older_controllers_names_of_formats_still_work(older: str, name: str) -> None:
    assert type(formatter(older)) is type(formatter(name))


def test_text_quotes_what_a_reader_could_mistake() -> None:
    stream = lines("text")
    log(LOGGER, logging.INFO, "drained", node="n1", why="no place", empty="", part=1 / 3)
    assert stream.getvalue().partition("Z ")[2] == 'INFO  drained node=n1 why="no place" empty="" part=0.333333\n'


def test_text_names_the_error_and_where_it_came_from() -> None:
    stream = lines("text")
    log(LOGGER, logging.ERROR, "failed", exc_info=crash())
    assert 'error="ValueError: first\\nsecond" at="test_log_lines.py:' in stream.getvalue()
    assert stream.getvalue().partition("Z ")[2].startswith("ERROR failed")


@pytest.mark.parametrize(
    ("stream", "environment", "coloured"),
    [
        pytest.param(Terminal(), {}, True, id="terminal"),
        pytest.param(Terminal(), {"NO_COLOR": "1"}, False, id="NO_COLOR"),
        pytest.param(Terminal(), {"TERM": "dumb"}, False, id="dumb terminal"),
        pytest.param(io.StringIO(), {}, False, id="pipe"),
    ],
)
def test_colour_is_for_terminals_that_want_it(stream: io.StringIO, environment: dict[str, str], coloured: bool) -> None:
    lines("text", to=stream, **environment)
    log(LOGGER, logging.INFO, "drained", node="n1")
    assert ("\x1b[" in stream.getvalue()) is coloured


@pytest.mark.parametrize(
    ("level", "shown"),
    [("trace", 4), ("debug", 4), ("INFO", 3), ("warn", 2), ("fatal", 1), ("Panic", 1), ("disabled", 0)],
)
def test_a_level_hides_what_is_below_it(level: str, shown: int) -> None:
    stream = lines("text", level=level)
    for each in (logging.DEBUG, logging.INFO, logging.WARNING, logging.CRITICAL):
        log(LOGGER, each, "x")
    assert len(stream.getvalue().splitlines()) == shown


def test_an_unknown_format_or_level_is_named_with_what_is_allowed() -> None:
    with pytest.raises(LoggingError, match="'logfmt' does not exist; allowed are text, json, plaintext"):
        formatter("logfmt")
    with pytest.raises(LoggingError, match="'loud' does not exist; allowed are trace, debug, info"):
        lines("json", level="loud")


def test_a_sparing_logger_passes_ten_records_a_minute_and_counts_the_rest(caplog: pytest.LogCaptureFixture) -> None:
    def record(at: float) -> logging.LogRecord:
        made = logging.LogRecord("loud", logging.WARNING, "", 0, "again", (), None)
        made.created = at
        return made

    loud = sparing(logging.getLogger("loud"))
    for at in (*(1000.0 + number for number in range(30)), 1061.0, 1062.0):
        loud.handle(record(at))
    assert len(caplog.records) == 12
    assert [fields_of(each).get("left_out_before") for each in caplog.records[-2:]] == [20, None]
