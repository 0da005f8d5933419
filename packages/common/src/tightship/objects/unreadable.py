"""What decoding a text from outside raises if the text is not what it should be."""

from __future__ import annotations

import msgspec

UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""No JSON of the type, no UTF-8, or thousands of brackets in brackets."""
