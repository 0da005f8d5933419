"""What applies when a configuration is unusable or gone, and the sentences that say so."""

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
    """A message about a configuration: *about* says what happened to it, *lines* say why, one cause each."""

    about: str
    lines: tuple[str, ...] = ()

    @property
    def sentences(self) -> tuple[str, ...]:
        """One whole sentence for each line, or a single one if there are no lines."""
        if not self.lines:
            return (self.about,)
        return tuple(f"{self.about}: {line}" if self.about else line for line in self.lines)

    def __str__(self) -> str:
        """Return one sentence with everything."""
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
    """Return the notice that *problems* make a configuration unusable; *standing* names the one in use."""
    return Notice(_REFUSED[standing], problems)


def deleted(standing: Standing, source: str) -> Notice:
    """Return the notice that *source* is gone; *standing* names the configuration in use from then on."""
    return Notice(f"{source} was deleted; {_DELETED[standing]}")


__all__ = ["Notice", "Standing", "deleted", "refused"]
