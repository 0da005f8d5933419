"""Lines that fit the terminal. This module is short because a format is one module."""

from __future__ import annotations

from tightship.documents.formats import Format
from tightship.documents.presentation import written

FORMAT = Format(lambda document, view, terminal: written(view.printout(document), terminal), place=1)
