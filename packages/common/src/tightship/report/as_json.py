"""A document as JSON: indented by two, keys in the order of the schema."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from tightship.report.terminal import Terminal


def render_json(document: Struct, terminal: Terminal) -> str:
    """Return *document* as JSON with a final line end; the terminal makes no difference."""
    del terminal
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"
