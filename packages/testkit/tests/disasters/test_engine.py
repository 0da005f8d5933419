"""The engine of disasters: a story file says all of a run, stories shrink, and bad input is told."""

from __future__ import annotations

import io
import json
import logging
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tightship_testkit.disasters import command
from tightship_testkit.disasters.command import USAGE, main
from tightship_testkit.disasters.making import make
from tightship_testkit.disasters.promises.base import Violation
from tightship_testkit.disasters.registry import FAULTS, STEPS
from tightship_testkit.disasters.replay import replay
from tightship_testkit.disasters.run import Result, run
from tightship_testkit.disasters.scenario import Scenario, Step, StoryError, decode, encode, read
from tightship_testkit.disasters.shrink import NothingBroken, Unfinished, shrink


def test_a_replay_is_the_same_run_and_tells_of_it() -> None:
    scenario, reported = make(20), io.StringIO()
    assert replay(scenario, reported).digest == run(scenario).digest
    assert "judged" in reported.getvalue()
    assert "modified Node" in reported.getvalue()


def test_a_story_file_says_all_of_a_scenario_and_all_kinds_of_steps_and_faults_are_drawn() -> None:
    scenarios = [make(seed) for seed in range(400)]
    assert [decode(encode(each)) for each in scenarios[:120]] == scenarios[:120]
    assert {each.kind for scenario in scenarios for each in scenario.steps} == set(STEPS)
    assert {each.kind for scenario in scenarios for each in scenario.faults} == set(FAULTS)


# Bad input.


def _story(**changes: Any) -> bytes:
    return json.dumps({"seed": 1, **changes}).encode()


@pytest.mark.parametrize(
    ("raw", "reported"),
    [
        (_story(steps=[{"at": 1, "kind": "meteor"}]), "step 0 is of unknown kind 'meteor'; allowed are "),
        (_story(faults=[{"at": 1, "until": 2, "kind": "moth"}]), "fault 0 is of unknown kind 'moth'; allowed are "),
        (_story(steps=[{"at": 1, "kind": "scale", "args": {"workload": "w"}}]), "kind, replicas must be given"),
        (
            _story(steps=[{"at": 1, "kind": "scale", "args": {"kind": "D", "workload": "w", "replicas": "two"}}]),
            "replicas='two' must be of type int",
        ),
        (
            _story(steps=[{"at": 1, "kind": "delete-node", "args": {"pod": "x"}}]),
            "'pod' is no argument; allowed are node",
        ),
        (_story(controllers=[{"program": "node-mover"}]), "controller 'node-mover' is unknown; allowed are "),
        (_story(format=7), "format 7; allowed is 1"),
        (b"{", "Input data was truncated"),
        (_story(bogus=1), "Object contains unknown field `bogus`"),
    ],
)
def test_a_story_file_that_cannot_be_used_is_told(raw: bytes, reported: str) -> None:
    with pytest.raises(StoryError) as error:
        decode(raw, "night.json")
    assert reported in str(error.value)
    assert str(error.value).startswith("night.json: ")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("arguments", "reported"),
    [
        (["replay", "--seed", "seven"], "argument --seed: 'seven' is no whole number from 0 to 9007199254740991"),
        (["replay", "--seed", "-1"], "argument --seed: '-1' is no whole number from 0"),
        (["soak", "--seeds", "0"], "argument --seeds: '0' is no whole number from 1"),
        (["soak", "--seeds", "many"], "argument --seeds: 'many' is no whole number from 1"),
        (["replay", "--file", "absent.json"], "absent.json: No such file or directory"),
        (["replay"], "one of the arguments --seed --file is required"),
        (
            ["shrink", "--seed", "4", "-o", "x.json", "--promise", "world-peace"],
            "unknown promise 'world-peace'; allowed are ",
        ),
        (["shake"], "invalid choice: 'shake'"),
    ],
)
def test_bad_input_is_one_line_and_64(arguments: list[str], reported: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        code = main(arguments)
    except SystemExit as end:
        code = int(str(end.code))
    out, said = capsys.readouterr()
    assert code == USAGE
    assert reported in said
    assert said.count("\n") == 1
    assert out == ""


# Shrinking, with a run that is none.


def _broken_by(*kinds: str) -> Any:
    """Return a run in which a promise is broken when steps of all *kinds* are in the story."""

    def play(scenario: Scenario) -> Result:
        there = {each.kind for each in scenario.steps}
        found = [Violation("no-crash", "all", 1.0, "it broke")] if there.issuperset(kinds) else []
        return Result(violations=found, digest="", seconds=1.0, changes=1, faults=0)

    return play


def _long() -> Scenario:
    kinds = ["scale", "kill", "cordon", "freeze", "rollout", "restart"]
    steps = [Step(at=20.0 + number, kind=kind) for number, kind in enumerate(kinds * 3)]
    return msgspec.structs.replace(make(4), steps=steps)


def test_a_story_shrinks_to_what_breaks_the_promise() -> None:
    short = shrink(_long(), "no-crash", play=_broken_by("kill", "rollout"))
    assert sorted(each.kind for each in short.steps) == ["kill", "rollout"]
    assert (short.faults, short.nodes, short.workloads, short.controllers) == ([], [], [], [])
    assert short.story < _long().story


def test_what_breaks_nothing_cannot_be_shrunk() -> None:
    with pytest.raises(NothingBroken, match="seed 4: no-crash is not broken"):
        shrink(make(4), "no-crash", play=_broken_by("meteor"))


def test_a_shrink_that_cannot_finish_says_so_and_keeps_the_shortest_story() -> None:
    with pytest.raises(Unfinished, match="seed 4: not shrunk to the end within 5 tries") as error:
        shrink(_long(), "no-crash", tries=5, play=_broken_by("kill"))
    assert len(encode(error.value.scenario)) < len(encode(_long()))


def test_the_shortest_story_of_a_shrink_that_cannot_finish_is_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def unfinished(scenario: Scenario, *_: object, **__: object) -> Scenario:
        raise Unfinished("seed 4: not shrunk", msgspec.structs.replace(scenario, steps=[]))

    monkeypatch.setattr(command, "shrink", unfinished)
    output = tmp_path / "s.json"
    assert main(["shrink", "--seed", "4", "--promise", "no-crash", "-o", str(output)]) == USAGE
    assert capsys.readouterr().err == f"seed 4: not shrunk; the shortest story until then is in {output}\n"
    assert read(output).steps == []


def test_a_story_without_workloads_can_still_get_one() -> None:
    bare = {"workloads": [], "budgets": [], "objects": [], "controllers": [], "faults": [], "floors": None}
    late = Step(at=1.0, kind="add-workload", args={"name": "late", "replicas": 1, "cpu": "1", "seconds": 5.0})
    assert run(msgspec.structs.replace(make(4), steps=[late], story=5.0, quiet=5.0, **bare)).violations == []


def test_seeds_go_on_if_the_engine_fails_while_it_shrinks(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: object, **__: object) -> Scenario:
        raise LookupError("shop")

    broken = [command.Outcome(seed, 0.1, {}, ["it broke"], "no-crash") for seed in (4, 5)]
    monkeypatch.setattr(command, "outcomes", lambda *_: iter(broken))
    monkeypatch.setattr(command, "shrink", failing)
    assert main(["soak", "--seeds", "2", "--first", "4", "--processes", "1"]) == command.BROKEN
    reported = capsys.readouterr().out
    assert reported.count("not shrunk: the engine failed: LookupError: shop") == 2
    assert "2 seeds from 4, 2 failed" in reported


def test_what_is_not_shrunk_to_the_end_is_bad_input(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # What controllers log is no part of the answer; handlers of commands that ran before write to closed streams.
    monkeypatch.setattr(logging.getLogger(), "handlers", [logging.NullHandler()])
    assert main(["shrink", "--seed", "15", "--promise", "no-crash", "-o", str(tmp_path / "s.json")]) == USAGE
    assert capsys.readouterr().err == "seed 15: no-crash is not broken; there is nothing to shrink\n"
