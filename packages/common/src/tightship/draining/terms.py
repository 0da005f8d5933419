"""What a pilot may do, and what it has done. Pure."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

HINTS = "hints"
"""The mode of steering that needs the admission policy."""


class LandingFigures(Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    """What became of the replacements that this process has led, in *mode*. *expected* have not been seen yet.

    *problem* says why only soft taints steer.
    """

    mode: str
    problem: str = ""
    expected: int = 0
    target: int = 0
    elsewhere: int = 0
    unscheduled: int = 0

    @property
    def landed(self) -> int:
        """How many replacements have been led."""
        return self.target + self.elsewhere + self.unscheduled


class Terms(Struct, frozen=True, kw_only=True):
    """What this replica may do, each asked again and again.

    *steering* is the setting's word. *acting* says that drains may be begun, *leading* that anything may be changed.
    """

    steering: Callable[[], str]
    acting: Callable[[], bool]
    leading: Callable[[], bool]


__all__ = ["HINTS", "LandingFigures", "Terms"]
