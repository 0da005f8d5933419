"""A night as a file: one JSON object a line, the options first, then every moment. It can be shown again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import IO

import msgspec

from tightship_simulator.demo.observations import Moment
from tightship_simulator.demo.running import Options

_options = msgspec.json.Decoder(Options)
_moments = msgspec.json.Decoder(Moment)


class RecordError(ValueError):
    """A file that holds no record of a night; the text names it and the line."""


class Recorder:
    """Writes a record while the context lasts."""

    def __init__(self, path: Path, options: Options) -> None:
        self._file: IO[bytes] = path.open("wb")
        self._encoder = msgspec.json.Encoder()
        self._write(options)

    def take(self, moment: Moment) -> None:
        """Write one moment."""
        self._write(moment)

    def _write(self, thing: object) -> None:
        self._file.write(self._encoder.encode(thing) + b"\n")

    def __enter__(self) -> Recorder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()


def read(path: Path) -> tuple[Options, Iterator[Moment]]:
    """Return the options and the moments of a record. Raises :class:`OSError` and :class:`RecordError`."""
    lines = path.read_bytes().splitlines()
    try:
        options = _options.decode(lines[0] if lines else b"")
    except msgspec.DecodeError as error:
        raise RecordError(f"{path}: line 1: not the beginning of a record: {error}") from error
    return options, _read(path, lines[1:])


def _read(path: Path, lines: list[bytes]) -> Iterator[Moment]:
    for number, line in enumerate(lines, 2):
        try:
            yield _moments.decode(line)
        except msgspec.DecodeError as error:
            raise RecordError(f"{path}: line {number}: {error}") from error


__all__ = ["RecordError", "Recorder", "read"]
