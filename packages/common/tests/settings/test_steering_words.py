"""How evicted pods are steered: words now, a switch once."""

from __future__ import annotations

import pytest

from tightship.app.settings.loading import SettingsError, load
from tightship.app.settings.sections import SteeringKeys


@pytest.mark.parametrize(
    ("written", "word"),
    [
        *((word, word) for word in ("off", "taints", "hints")),
        *((switch, "taints") for switch in (True, "true", "True", "on", "yes", "1")),
        *((switch, "off") for switch in (False, "false", "False", "OFF", "no", "0")),
        (" Hints ", "hints"),
    ],
)
def test_a_switch_of_older_configurations_is_a_word_now(written: object, word: str) -> None:
    assert load(SteeringKeys, {"steering": written}).steering == word


def test_soft_taints_are_the_default() -> None:
    assert load(SteeringKeys, {}).steering == "taints"


@pytest.mark.parametrize("written", ["maybe", "", None, 2, ["exact"], {"exact": True}])
def test_another_word_is_named_with_those_allowed(written: object) -> None:
    with pytest.raises(SettingsError, match=r"^steering: .*allowed are off, taints, hints, also true"):
        load(SteeringKeys, {"steering": written})


@pytest.mark.parametrize("written", ["exact", " Exact "])
def test_what_was_exact_is_hints_and_the_log_says_so(written: str, caplog: pytest.LogCaptureFixture) -> None:
    assert load(SteeringKeys, {"steering": written}).steering == "hints"
    [line] = caplog.messages
    assert line.startswith("steering: exact is no more: hints applies")
