"""What is in force when a configuration can't be used, or is gone, and the sentences that say so."""

from __future__ import annotations

from enum import Enum

from msgspec import Struct


class Standing(Enum):
    """Where the configuration in use comes from."""

    NOTHING = "nothing is in use"
    STARTING = "environment and defaults"
    LAST_GOOD = "the last one that could be used"
    OFF = "what was in use, but that nothing new is begun"


class Notice(Struct, frozen=True):
    """What people have to know of a configuration: *about* says what became of it, *lines* why, each for itself."""

    about: str
    lines: tuple[str, ...] = ()

    @property
    def sentences(self) -> tuple[str, ...]:
        """A whole sentence for each of the lines, one where there are none."""
        if not self.lines:
            return (self.about,)
        return tuple(f"{self.about}: {line}" if self.about else line for line in self.lines)

    def __str__(self) -> str:
        """Return all in one sentence."""
        return ": ".join(each for each in (self.about, "; ".join(self.lines)) if each)


_REFUSED = {
    Standing.NOTHING: "",
    Standing.STARTING: "The configuration was refused; environment and defaults apply",
    Standing.LAST_GOOD: "The configuration was refused; the last good one applies",
    Standing.OFF: "The configuration was refused; nothing new begins until there is a good one",
}

_DELETED = {
    Standing.NOTHING: "nothing replaces it",
    Standing.STARTING: "environment and defaults apply until it is back",
    Standing.LAST_GOOD: "the last good one applies",
    Standing.OFF: "nothing new begins until it is back",
}


def refused(standing: Standing, problems: tuple[str, ...]) -> Notice:
    """Return what is said of a configuration that can't be used because of *problems*; *standing* is what is in use."""
    return Notice(_REFUSED[standing], problems)


def deleted(standing: Standing, source: str) -> Notice:
    """Return what is said once *source* is gone; *standing* is what is in use from then on."""
    return Notice(f"{source} was deleted; {_DELETED[standing]}")


__all__ = ["Notice", "Standing", "deleted", "refused"]
