"""The file of the decision log: each cycle appends to it, and it is rotated before it fills the disk."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path

from tightship.app.observability.logging import log
from tightship.core.api_errors import one_line

_log = logging.getLogger(__name__)


class Journal:
    """Appends to the file *path*; at *largest* bytes the file becomes ``path.1``. Not thread-safe.

    If the file can't be written, that is reported once, and each cycle tries again: no decision waits for the file.
    """

    def __init__(self, path: Path, largest: float) -> None:
        self._path = path
        self._largest = largest
        self._failing = False

    def append(self, lines: Iterable[bytes]) -> None:
        """Write *lines*, all of one cycle, into one file."""
        try:
            if self._path.exists() and self._path.stat().st_size >= self._largest:
                self._path.replace(self._path.with_name(self._path.name + ".1"))
            with self._path.open("ab") as file:
                file.writelines(lines)
        except OSError as error:
            if not self._failing:
                log(_log, logging.ERROR, "decision log not written", file=str(self._path), error=one_line(error))
            self._failing = True
        else:
            self._failing = False


__all__ = ["Journal"]
