"""JSON, with its keys in the order of the schema. This module is short because a format is one module."""

from __future__ import annotations

import msgspec

from tightship.documents.formats import Format

FORMAT = Format(
    lambda document, *_: msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n",
    file=True,
    place=3,
)
