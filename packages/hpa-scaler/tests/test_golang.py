"""Texts are read and written as Go does: the table in data/go_results.txt is what Go itself answered."""

from __future__ import annotations

import ast
import json
import math
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpa_scaler.annotations.values import format_float, parse_float, parse_int32, quote

LINES = (Path(__file__).parent / "data" / "go_results.txt").read_text().splitlines()


def rows(letter: str) -> list[tuple[str, str]]:
    found = []
    for line in LINES:
        if line.startswith(f"{letter} "):
            text, _, result = line[2:].rpartition('" ') if line[2] == '"' else line[2:].partition(" ")
            found.append((ast.literal_eval(text + '"') if line[2] == '"' else text, result))
    assert found
    return found


def bits(value: float) -> str:
    return struct.pack(">d", value).hex()


@pytest.mark.parametrize(("text", "result"), rows("F"))
def test_floats_are_read_as_go_reads_them(text: str, result: str) -> None:
    value = parse_float(text)
    if result.startswith("ERR"):
        assert value is None
    elif math.isnan(struct.unpack(">d", bytes.fromhex(result))[0]):
        assert value is not None
        assert math.isnan(value)
    else:
        assert value is not None
        assert bits(value) == result


@pytest.mark.parametrize(("text", "result"), rows("I"))
def test_integers_are_read_as_go_reads_them(text: str, result: str) -> None:
    assert parse_int32(text) == (None if result == "ERR" else int(result))


@pytest.mark.parametrize(("of", "text"), rows("J"))
def test_floats_are_written_as_go_writes_them(of: str, text: str) -> None:
    assert format_float(struct.unpack(">d", bytes.fromhex(of))[0]) == text


@pytest.mark.parametrize("line", [line[2:] for line in LINES if line.startswith("S ")])
def test_texts_are_quoted_as_go_quotes_them(line: str) -> None:
    end = line.index('" "', 1) + 1
    assert quote(ast.literal_eval(line[:end])) == line[end + 1 :]


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_written_float_is_read_back(value: float) -> None:
    text = format_float(value)
    read = parse_float(text)
    assert read is not None
    assert bits(read) == bits(value)
    assert float(json.loads(text)) == value


@given(st.text())
def test_no_text_breaks_the_parsers(text: str) -> None:
    for parse in (parse_float, parse_int32):
        value = parse(text)
        assert value is None or text.isascii()


@given(st.text())
def test_a_quoted_text_is_read_back(text: str) -> None:
    assert json.loads(quote(text)) == text


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_json_has_no_form_for_is_an_error(value: float) -> None:
    with pytest.raises(ValueError, match="can't be written in JSON"):
        format_float(value)
