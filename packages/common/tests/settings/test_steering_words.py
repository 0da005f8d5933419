"""How evicted pods are steered."""

from __future__ import annotations

import pytest

from tightship.process.settings.loading import SettingsError, load
from tightship.process.settings.sections import SteeringKeys


@pytest.mark.parametrize(
    ("written", "word"),
    [
        *((word, word) for word in ("off", "taints", "hints")),
        *((written, "off") for written in (False, "false", "False", "OFF")),
        (" Hints ", "hints"),
    ],
)
def test_a_word_is_read_in_any_case_and_off_as_yaml_reads_it(written: object, word: str) -> None:
    assert load(SteeringKeys, {"steering": written}).steering == word


def test_soft_taints_are_the_default() -> None:
    assert load(SteeringKeys, {}).steering == "taints"


@pytest.mark.parametrize("written", ["maybe", "", None, 2, True, "on", ["hints"], {"hints": True}])
def test_another_word_is_named_with_those_allowed(written: object) -> None:
    with pytest.raises(SettingsError, match=r"^steering: .*allowed are off, taints, hints$"):
        load(SteeringKeys, {"steering": written})


@pytest.mark.parametrize("written", ["exact", " Exact "])
def test_what_was_exact_is_hints_and_the_log_says_so(written: str, caplog: pytest.LogCaptureFixture) -> None:
    assert load(SteeringKeys, {"steering": written}).steering == "hints"
    [line] = caplog.messages
    assert line.startswith("steering: exact is no more: hints applies")
