"""What applies when a configuration is unusable or gone, and the sentences that say so."""

from __future__ import annotations

from enum import Enum

from msgspec import Struct


class Standing(Enum):
    """Which configuration is in use."""

    STARTING = "environment and defaults apply"
    LAST_GOOD = "the last good one applies"
    OFF = "nothing new begins"


class Notice(Struct, frozen=True):
    """A message about a configuration: *about* says what happened to it, *lines* say why, one cause each."""

    about: str
    lines: tuple[str, ...] = ()

    @property
    def sentences(self) -> tuple[str, ...]:
        """One whole sentence for each line, or a single one if there are no lines."""
        return tuple(f"{self.about}: {line}" for line in self.lines) or (self.about,)

    def __str__(self) -> str:
        """Return one sentence with everything."""
        return ": ".join(each for each in (self.about, "; ".join(self.lines)) if each)


def refused(standing: Standing, problems: tuple[str, ...]) -> Notice:
    """Return the notice that *problems* make a configuration unusable; *standing* names the one in use."""
    until = " until there is a good one" if standing is Standing.OFF else ""
    return Notice(f"The configuration was refused; {standing.value}{until}", problems)


def deleted(standing: Standing, source: str) -> Notice:
    """Return the notice that *source* is gone; *standing* names the configuration in use from then on."""
    return Notice(f"{source} was deleted; {standing.value} until it is back")


def missing(standing: Standing, source: str) -> Notice:
    """Return the notice that there has been no *source* yet; *standing* names the configuration in use until then."""
    return Notice(f"{source} does not exist; {standing.value} until it does")
