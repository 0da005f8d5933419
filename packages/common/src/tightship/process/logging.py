"""Log records as lines: each record is one line on stderr in the chosen format, whatever its values hold.

``log(logger, logging.INFO, "drained", node="n1", pods=12)`` passes a sentence and its values separately; the formats
join them.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import traceback
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import PurePath
from types import TracebackType
from typing import TextIO

import msgspec

from tightship.documents.terminal import clean

FORMATS: Mapping[str, str] = {
    "text": "text",
    "json": "json",
    "plaintext": "text",
    "console": "text",
    "stackdriver": "json",
    "v3": "json",
}
"""The formats by name, including the older controllers' names (``ESTAFETTE_LOG_FORMAT``)."""

LEVELS: Mapping[str, int] = {
    "trace": logging.DEBUG,
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warn": logging.WARNING,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "fatal": logging.CRITICAL,
    "critical": logging.CRITICAL,
    "panic": logging.CRITICAL,
    "disabled": logging.CRITICAL + 1,
}
"""Names of the levels, including the older controllers' (estafette-foundation's ``SetLoggingLevelFromEnv``)."""

_SHORT = {"WARNING": "WARN", "CRITICAL": "FATAL"}
_STYLES = {"DEBUG": "2", "INFO": "1;32", "WARN": "33", "ERROR": "1;31", "FATAL": "1;31"}
_DIM = "2"
_BARE = re.compile(r"[^\s\"'=]+")
_FRAMES = 4
_AT_MOST, _WINDOW = 10, 60.0


class LoggingError(ValueError):
    """An unknown format or level; the text names the value and the allowed ones."""


def log(
    logger: logging.Logger,
    level: int,
    message: str,
    /,
    *,
    exc_info: BaseException | bool | None = None,
    **fields: object,
) -> None:
    """Log *message* with *fields* beside it. *message* is taken literally, without ``%`` formatting."""
    logger.log(level, message, exc_info=exc_info, extra={"fields": fields}, stacklevel=2)


def set_up(
    format: str = "text",  # noqa: A002 - as users call it
    level: str = "info",
    *,
    stream: TextIO | None = None,
    environment: Mapping[str, str] = os.environ,
) -> None:
    """Send the process's log to *stream* (stderr by default) in *format*, from *level* on.

    Replaces any earlier setup. Raises :class:`LoggingError`.
    """
    stream = sys.stderr if stream is None else stream
    colour = stream.isatty() and not environment.get("NO_COLOR") and environment.get("TERM") != "dumb"
    threshold = LEVELS.get(level.lower())
    if threshold is None:
        raise LoggingError(f"log level {level!r} does not exist; allowed are {', '.join(LEVELS)}")
    handler = logging.StreamHandler(stream)
    handler.setFormatter(formatter(format, colour=colour))
    root = logging.getLogger()
    for old in root.handlers[:]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(threshold)
    # Without free file descriptors the event loop logs hundreds of errors a second.
    loops = logging.getLogger("asyncio")
    for each in [each for each in loops.filters if isinstance(each, _AtMost)]:
        loops.removeFilter(each)
    loops.addFilter(_AtMost())


def sparing(logger: logging.Logger) -> logging.Logger:
    """Return a logger that passes ten records a minute on to *logger*, and reports how many it dropped.

    Use it for records that strangers can cause as often as they like.
    """
    own = logging.Logger(logger.name)  # noqa: LOG001 - one of the same name that others have must not be filtered
    own.parent = logger
    own.addFilter(_AtMost())
    return own


class _AtMost(logging.Filter):
    def __init__(self) -> None:
        super().__init__()
        self._until = 0.0
        self._passed = 0

    def filter(self, record: logging.LogRecord) -> bool:
        if not 0 <= self._until - record.created <= _WINDOW:
            left_out = self._passed - _AT_MOST
            self._until, self._passed = record.created + _WINDOW, 0
            if left_out > 0:
                record.fields = {**fields_of(record), "left_out_before": left_out}
        self._passed += 1
        return self._passed <= _AT_MOST


def formatter(name: str, *, colour: bool = False) -> logging.Formatter:
    """Return the formatter called *name*. Raises :class:`LoggingError`."""
    match FORMATS.get(name):
        case "text":
            return _Text(colour=colour)
        case "json":
            return _Json()
        case _:
            raise LoggingError(f"log format {name!r} does not exist; allowed are {', '.join(FORMATS)}")


def fields_of(record: logging.LogRecord) -> Mapping[str, object]:
    """Return the values that :func:`log` gave a record; none for other records."""
    fields = getattr(record, "fields", None)
    return fields if isinstance(fields, Mapping) else {}


class _Text(logging.Formatter):
    """For people: time, level, sentence, ``key=value``."""

    def __init__(self, *, colour: bool) -> None:
        super().__init__()
        self._colour = colour

    def format(self, record: logging.LogRecord) -> str:
        level = _SHORT.get(record.levelname, record.levelname)
        parts = [_time(record), self._paint(f"{level:5}", _STYLES.get(level, "")), clean(record.getMessage())]
        values = dict(fields_of(record))
        if error := _error(record):
            values |= {"error": f"{type(error).__name__}: {error}", "at": _frames(error.__traceback__)}
        parts += [self._paint(f"{clean(str(key))}=", _DIM) + _value(value) for key, value in values.items()]
        return " ".join(parts)

    def _paint(self, text: str, style: str) -> str:
        return f"\x1b[{style}m{text}\x1b[0m" if self._colour and style else text


class _Json(logging.Formatter):
    """One object a line, with the values beside the sentence.

    ``severity`` and ``stack_trace`` are for Google Cloud, whose agents take what a container writes to stderr for an
    error unless it has a severity.
    """

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": _time(record),
            "level": _SHORT.get(record.levelname, record.levelname).lower(),
            "severity": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if error := _error(record):
            line["error"] = f"{type(error).__name__}: {error}"
            line["stack_trace"] = "".join(traceback.format_exception(error)).rstrip()
        # The line's own keys win.
        line |= {f"field_{key}" if key in line else str(key): value for key, value in fields_of(record).items()}
        try:
            return msgspec.json.encode(line, enc_hook=str).decode()
        except Exception:
            return json.dumps({key: _shown(value) for key, value in line.items()})


def _time(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _value(value: object) -> str:
    text = value if isinstance(value, str) else _shown(value)
    return text if _BARE.fullmatch(text) and clean(text) == text else clean(json.dumps(text, ensure_ascii=False))


def _shown(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    try:
        return str(value)
    except Exception:
        return f"<{type(value).__name__} that can't be shown>"


def _error(record: logging.LogRecord) -> BaseException | None:
    return record.exc_info[1] if record.exc_info else None


def _frames(trace: TracebackType | None) -> str:
    """Return the innermost frames on one line, the innermost first."""
    frames = reversed(traceback.extract_tb(trace)[-_FRAMES:])
    return " < ".join(f"{PurePath(each.filename).name}:{each.lineno} {each.name}" for each in frames)
