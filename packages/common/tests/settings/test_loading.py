"""Where a setting comes from, what each place calls it, and what its field says of its flag."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import AliasChoices, BaseModel, Field

from tightship.cli.arguments import add_flags, given
from tightship.process.settings.loading import (
    BadFlagsError,
    ConfigSource,
    DefaultSource,
    EnvironmentSource,
    Flag,
    FlagSource,
    Layered,
    OlderVariables,
    Seconds,
    SettingsError,
    SettingsSource,
    Translation,
    flags_of,
    load,
    read_config,
    resolve,
)


class Inner(BaseModel):
    model_config = {"extra": "forbid", "populate_by_name": True}

    size: Annotated[int, Flag("--size N", "how large")] = Field(default=1, alias="largeSize")


class Base(Layered):
    pause: Annotated[Seconds, Flag("--pause DURATION", "how long: 100%", "times")] = Field(
        default=60.0, validation_alias=AliasChoices("longPause", "OLD_PAUSE", "PAUSE")
    )


class Model(Base):
    inner: Mapping[str, Inner] = Field(default={}, alias="byName")
    words: Annotated[tuple[str, ...], Flag("--word WORD", "{one}; repeatable")] = ()
    on: Annotated[bool, Flag("--on", "both ways", rank=-1)] = False
    off: Annotated[bool, Flag("--no-off", "one way", sets=False)] = True
    pause: Seconds = Field(default=5.0, validation_alias=AliasChoices("longPause", "OLD_PAUSE", "PAUSE"))


PLACES: list[SettingsSource] = [
    FlagSource(Model, {"pause": "1s"}),
    EnvironmentSource(Model, {"OLD_PAUSE": "", "PAUSE": "2s"}),
    ConfigSource(Model, {"longPause": "3s"}, "c.yaml"),
    DefaultSource(Model, {"pause": 4}),
]


@pytest.mark.parametrize(("places", "seconds"), [(PLACES[number:], number + 1) for number in range(5)])
def test_a_source_comes_before_those_that_follow_it(places: list[SettingsSource], seconds: float) -> None:
    assert resolve(Model, *places).pause == seconds


def test_nothing_is_read_behind_our_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAUSE", "9")
    monkeypatch.setenv("pause", "9")
    assert Model().pause == resolve(Model).pause == 5
    assert Model(pause="7s").pause == 7


def test_what_is_nested_is_merged_and_each_problem_names_its_place() -> None:
    config = ConfigSource(
        Model, {"byName": {"a": {"largeSize": 2, "typo": 1}, "b": {"size": "big"}}, "typo": 1}, "c.yaml"
    )
    inside = {("inner", "a", "largeSize"): "huge"}
    with pytest.raises(BadFlagsError) as refused:
        resolve(Model, FlagSource(Model, {"words": [1]}, inside), EnvironmentSource(Model, {"PAUSE": "soon"}), config)
    assert [re.split(": Input|: is not a whole|; ", each)[0] for each in refused.value.problems] == [
        "--size: 'huge'",
        "--word: 1",
        "PAUSE: 'soon' is not a duration",
        "c.yaml: byName.a.typo: unknown key",
        "c.yaml: byName.b.largeSize: 'big'",
        "c.yaml: typo: unknown key",
    ]
    assert refused.value.problems[3].endswith("; allowed are largeSize")
    assert refused.value.problems[5].endswith("; allowed are byName, longPause, off, on, words")


@pytest.mark.parametrize(("key", "guess"), [("long_pause", "did you mean longPause? "), ("PAUSE", ""), ("pause", "")])
def test_a_configuration_knows_a_key_by_one_name(key: str, guess: str) -> None:
    with pytest.raises(SettingsError) as refused:
        load(Model, {key: "2s"})
    assert refused.value.problems == [f"{key}: unknown key; {guess}allowed are byName, longPause, off, on, words"]


OLDER = OlderVariables({"FORMER_PAUSE": "pause"}, implied={"words": ("former",), "on": True})


def test_an_older_variable_sets_its_field_and_what_it_implied() -> None:
    found = resolve(Model, EnvironmentSource(Model, {"FORMER_PAUSE": "7s"}, OLDER))
    assert (found.pause, found.words, found.on) == (7, ("former",), True)
    assert resolve(Model, EnvironmentSource(Model, {"PAUSE": "7s", "FORMER_PAUSE": ""}, OLDER)).words == ()


def test_an_older_variable_beside_the_native_one_names_both() -> None:
    with pytest.raises(SettingsError) as refused:
        resolve(Model, EnvironmentSource(Model, {"PAUSE": "7s", "FORMER_PAUSE": "7s"}, OLDER))
    assert refused.value.problems == [
        "FORMER_PAUSE: stands beside PAUSE, which is the same setting; allowed is one of them"
    ]


def test_a_problem_names_the_older_key_that_the_user_wrote() -> None:
    told = Translation({"longPause": "soon"}, older={("longPause",): ("former_pause",)})
    with pytest.raises(SettingsError, match=r"^c\.yaml: former_pause: 'soon' is not a duration"):
        resolve(Model, ConfigSource(Model, told, "c.yaml"))


def test_a_field_keeps_the_flag_of_the_one_it_overrides() -> None:
    assert [each.name for each in flags_of(Model).values()] == ["--on", "--word", "--no-off", "--pause"]


def test_flags_are_made_of_fields_and_given_by_field() -> None:
    parser = argparse.ArgumentParser()
    for topic in ("", "times"):
        add_flags(parser.add_argument_group(topic), Model, topic, one="one word")

    def values(*arguments: str) -> dict[str, Any]:
        return given(parser.parse_args(arguments), Model)

    assert values() == {}
    assert values("--word", "a", "--word", "b", "--no-off", "--no-on", "--pause", "3") == {
        "words": ["a", "b"],
        "off": False,
        "on": False,
        "pause": "3",
    }
    text = parser.format_help()
    assert "one word; repeatable" in text
    assert "how long: 100%" in text


@pytest.mark.parametrize("text", ['{"kind": "List", "items": []}', "kind: ClusterSnapshot\nanonymized: true\n"])
def test_a_snapshot_in_place_of_a_configuration_is_one_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "cluster.json"
    path.write_text(text)
    with pytest.raises(SettingsError) as refused:
        read_config(str(path), ("config.yaml",), flat={"drainer_enabled"})
    [problem] = refused.value.problems
    assert re.fullmatch(r".*cluster\.json: kind '\w+': allowed is ConfigMap, or keys without a kind", problem)
