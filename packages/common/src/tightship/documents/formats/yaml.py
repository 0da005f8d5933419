"""YAML, with the same data as JSON. This module is short because a format is one module."""

from __future__ import annotations

import msgspec

from tightship.documents.formats import Format

FORMAT = Format(lambda document, *_: dict(msgspec.to_builtins(document)), file=True, place=4)
