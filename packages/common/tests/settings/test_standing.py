"""What people are told of a configuration that can't be used, or is gone."""

from __future__ import annotations

import pytest

from tightship.process.settings.live import Standing, deleted, refused


@pytest.mark.parametrize(
    ("standing", "about"),
    [
        (Standing.STARTING, "The configuration was refused; environment and defaults apply: "),
        (Standing.LAST_GOOD, "The configuration was refused; the last good one applies: "),
        (Standing.OFF, "The configuration was refused; nothing new begins until there is a good one: "),
    ],
)
def test_what_was_refused_is_said_with_what_stands(standing: Standing, about: str) -> None:
    notice = refused(standing, ("a: 1", "b: 2"))
    assert notice.sentences == (f"{about}a: 1", f"{about}b: 2")
    assert str(notice) == f"{about}a: 1; b: 2"


@pytest.mark.parametrize(
    ("standing", "stands"),
    [(Standing.STARTING, "environment and defaults apply"), (Standing.OFF, "nothing new begins")],
)
def test_what_was_deleted_is_not_called_refused(standing: Standing, stands: str) -> None:
    notice = deleted(standing, "ConfigMap here/ours")
    assert notice.sentences == (f"ConfigMap here/ours was deleted; {stands} until it is back",)
    assert str(notice) == notice.sentences[0]
