"""What people are told of a configuration that can't be used, or is gone."""

from __future__ import annotations

import pytest

from tightship.app.settings.config_fallback import Standing, deleted, refused

SOURCE = "ConfigMap here/ours"


@pytest.mark.parametrize(
    ("standing", "about"),
    [
        (Standing.NOTHING, ""),
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
    [
        (Standing.NOTHING, "nothing replaces it"),
        (Standing.STARTING, "environment and defaults apply until it is back"),
        (Standing.LAST_GOOD, "the last good one applies"),
        (Standing.OFF, "nothing new begins until it is back"),
    ],
)
def test_what_was_deleted_is_not_called_refused(standing: Standing, stands: str) -> None:
    notice = deleted(standing, SOURCE)
    assert notice.sentences == (f"{SOURCE} was deleted; {stands}",)
    assert str(notice) == notice.sentences[0]
