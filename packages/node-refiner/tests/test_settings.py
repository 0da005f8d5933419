"""What can be set, in which forms and from where, and what an error says."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml

from node_refiner.controller import REFINER, load_settings
from node_refiner.judge import RefinerJudge
from node_refiner.older import KEYS, native
from node_refiner.settings import CandidateOrder, RefinerSettings
from tightship.objects.reasons import Reason
from tightship.process.settings.loading import SWITCHABLE_RULES, BadFlagsError, Budget, SettingsError, wire_keys
from tightship.process.settings.sections import DrainKeys, NodeKeys, ScaleUpKeys, SteeringKeys

Json = dict[str, Any]

OLD = {
    "drainer_enabled": "true",
    "time_gap": "5",
    "time_since_last_addition": "30",
    "minimum_nodes": "3",
    "minimum_non_tainted_nodes": "3",
    "excess_nodes_threshold": "2",
}
"""The data of the older controller's ConfigMap, as its manifest has it."""


def problems(data: Json, environment: dict[str, str] | None = None) -> list[str]:
    with pytest.raises(SettingsError) as refused:
        REFINER.configured(data, environment or {})
    return refused.value.problems


def test_the_older_controllers_config_map_is_read_as_it_is() -> None:
    settings = REFINER.configured(OLD, {})
    assert settings.drainer_enabled
    assert (settings.time_gap, settings.time_since_last_addition) == (300, 1800)
    assert (settings.minimum_nodes, settings.minimum_non_tainted_nodes) == (3, 3)
    assert settings.excess_nodes_threshold == 2.0
    assert settings.node_timeout == settings.pod_timeout == 8 * 60 + 30


def test_the_native_form_of_the_older_config_map_means_the_same() -> None:
    told = """
        enabled: true
        clusterCoolDownAfterDrain: 5m
        clusterCoolDownAfterNodeAdded: 30m
        minimumNodeCount: 3
        minimumNonTaintedNodeCount: 3
        excessNodesThreshold: 2
        nodeDrainTimeout: 8m30s
        podEvictionTimeout: 8m30s
        backoff: 5m
        workloadPause: 0
    """
    assert REFINER.configured({"config.yaml": told}, {}) == REFINER.configured(OLD, {})


def test_a_file_of_both_dialects_is_read_key_by_key() -> None:
    settings = load_settings({"time_gap": "5", "minimumNodeCount": 3, "nodeDrainTimeout": "20m"})
    assert (settings.time_gap, settings.minimum_nodes) == (300, 3)
    assert (settings.node_timeout, settings.pod_timeout) == (1200, 510)


def test_the_defaults_are_those_of_the_older_controllers_readme() -> None:
    settings = REFINER.configured({}, {})
    assert settings == RefinerSettings()
    assert settings.drainer_enabled
    assert (settings.time_gap, settings.time_since_last_addition) == (600, 3600)
    assert (settings.minimum_nodes, settings.minimum_non_tainted_nodes) == (2, 2)
    assert (settings.excess_nodes_threshold, settings.candidate_order) == (2.0, "score")
    assert (settings.cpu_weight, settings.memory_weight) == (0.8, 0.2)
    assert (settings.node_timeout, settings.pod_timeout, settings.backoff) == (1800, 600, 300)
    assert settings.cluster_budget == Budget(count=1)


def test_a_setting_that_controllers_of_nodes_share_has_one_key_and_one_default() -> None:
    keys = wire_keys(RefinerSettings)
    for section in (DrainKeys, NodeKeys, ScaleUpKeys, SteeringKeys):
        for field in section.model_fields:
            assert keys[field] == (section.model_fields[field].alias or field)
            assert RefinerSettings.model_fields[field].default == section.model_fields[field].default


@pytest.mark.parametrize(
    ("older", "told"),
    [
        ("settle_time", "did you mean settleTime? allowed are afterCordonTimeout,"),
        ("maximum_api_failures", "did you mean maximumAPIFailures? "),
        ("count_tainted", "allowed are afterCordonTimeout,"),
    ],
)
@pytest.mark.parametrize("beside", [{}, OLD])
def test_a_key_of_ours_in_snake_case_is_unknown(older: str, told: str, beside: Json) -> None:
    [problem] = problems({older: "1", **beside})
    assert problem.startswith(f"{older}: unknown key; ")
    assert told in problem


def test_the_adapter_reads_the_older_controllers_keys_and_no_others() -> None:
    assert KEYS.keys() == OLD.keys()
    assert set(KEYS.values()) <= set(wire_keys(RefinerSettings).values())


def test_a_native_duration_has_a_unit() -> None:
    [problem] = problems({"config.yaml": "clusterCoolDownAfterDrain: 5"})
    assert problem == (
        "config.yaml: clusterCoolDownAfterDrain: 5: has no unit; allowed is a duration such as 90s, 10m, 1h30m or 1d"
    )


@pytest.mark.parametrize(("older", "key"), sorted(KEYS.items()))
def test_two_keys_of_one_setting_contradict_each_other(older: str, key: str) -> None:
    found = native({older: "1", key: "1"})
    assert found.problems == [f"{older}: stands beside {key}, which is the same setting; allowed is one of them"]


def test_flat_data_beside_a_file_contradict_each_other() -> None:
    [problem] = problems({"time_gap": "5", "config.yaml": "enabled: true"})
    assert problem == "time_gap: stands beside config.yaml in the ConfigMap's data; allowed is one of them"


@pytest.mark.parametrize(
    ("written", "seconds"),
    [("5", 300), ("0", 0), ("0.5", 30), ("90s", 90), ("10m", 600), ("1h30m", 5400), (5, 300), (1.5, 90)],
)
@pytest.mark.parametrize(
    ("key", "field"),
    [
        ("time_gap", "time_gap"),
        ("time_since_last_addition", "time_since_last_addition"),
    ],
)
def test_a_plain_number_of_an_older_duration_is_minutes(key: str, field: str, written: object, seconds: float) -> None:
    assert getattr(load_settings({key: written}), field) == seconds


@pytest.mark.parametrize(
    ("written", "value"),
    [(text, True) for text in ("1", "t", "T", "true", "TRUE", "True", True)]
    + [(text, False) for text in ("0", "f", "F", "false", "FALSE", "False", False)],
)
def test_switches_are_read_as_go_reads_them(written: object, value: bool) -> None:
    assert load_settings({"drainer_enabled": written}).drainer_enabled is value


@pytest.mark.parametrize("written", ["yes", "on", "tRUE", "", "2", None])
def test_what_go_does_not_read_as_a_switch_is_refused(written: object) -> None:
    with pytest.raises(SettingsError, match=r"drainer_enabled: .* is not a switch; allowed are true and false"):
        load_settings({"drainer_enabled": written})


@pytest.mark.parametrize(
    "written", ["LocalStorage,NotReplicated", " NotReplicated , LocalStorage,", ["LocalStorage", "NotReplicated"]]
)
def test_a_list_is_written_with_commas(written: object) -> None:
    settings = load_settings({"disabledRules": written})
    assert settings.disabled_rules == {Reason.LOCAL_STORAGE, Reason.NOT_REPLICATED}


@pytest.mark.parametrize(
    "written",
    [
        "a=MostAllocated, b=LeastAllocated",
        {"a": "MostAllocated", "b": "LeastAllocated"},
        '{"a":"MostAllocated","b":"LeastAllocated"}',
    ],
)
def test_schedulers_are_written_with_commas_or_as_a_mapping(written: object) -> None:
    assert load_settings({"schedulers": written}).schedulers == {"a": "MostAllocated", "b": "LeastAllocated"}


@pytest.mark.parametrize("order", get_args(CandidateOrder))
def test_every_order_that_may_be_set_is_there(order: str) -> None:
    assert RefinerJudge(load_settings({"candidateOrder": order})).strategy({}).name == order


def test_a_list_may_be_empty() -> None:
    assert load_settings({"disabledRules": "", "nodePoolLabels": ""}).pool_labels == ()


def test_every_switchable_rule_is_named_by_its_reason() -> None:
    for reason in SWITCHABLE_RULES:
        assert load_settings({"disabledRules": str(reason)}).disabled_rules == {reason}


@pytest.mark.parametrize(
    ("data", "backoff"),
    [
        ({}, 300),
        ({"time_gap": "5"}, 300),
        ({"time_gap": "0"}, 0),
        ({"time_gap": "5", "backoff": "20m"}, 1200),
        ({"time_gap": "7h"}, 6 * 3600),
        ({"time_gap": "10", "backoffLimit": "90s"}, 90),
    ],
)
def test_a_node_whose_drain_failed_waits_for_the_gap_unless_told_otherwise(data: Json, backoff: float) -> None:
    assert REFINER.configured(data, {}).backoff == backoff


REFUSED: list[tuple[str, Json, tuple[str, ...]]] = [
    ("an unknown key", {"time_gaps": "5"}, ("time_gaps: unknown key; allowed are afterCordonTimeout,",)),
    ("a field's name", {"settle": "5s"}, ("settle: unknown key", "settleTime")),
    ("a misspelt key", {"nodeDrainTimout": "5m"}, ("nodeDrainTimout: unknown key; did you mean nodeDrainTimeout? ",)),
    ("a share above 1", {"maximumNotReadyNodePercentage": "150%"}, ("Percentage: '150%': is not a ratio",)),
    ("a bare percentage", {"maximumNotReadyNodePercentage": "10"}, ("did you mean 10%?",)),
    ("no duration", {"time_gap": "soon"}, ("time_gap: 'soon'", "90s, 10m, 1h30m")),
    ("a negative duration", {"time_gap": "-5"}, ("time_gap: '-5'", "is not a duration")),
    ("nothing", {"time_gap": ""}, ("time_gap: ''", "is not a duration")),
    ("a negative count", {"minimum_nodes": "-1"}, ("minimum_nodes: '-1'", "0 or more")),
    ("a fraction for a count", {"minimum_nodes": "1.5"}, ("minimum_nodes: '1.5'", "whole number")),
    ("a word for a number", {"excess_nodes_threshold": "two"}, ("excess_nodes_threshold: 'two'", "number")),
    ("no number at all", {"excess_nodes_threshold": "nan"}, ("excess_nodes_threshold: 'nan'", "is not a number")),
    ("without an end", {"cpuWeight": "inf"}, ("cpuWeight: 'inf'", "is not a number")),
    ("a negative weight", {"memoryWeight": "-0.2"}, ("memoryWeight: '-0.2'", "0 or more")),
    (
        "weights that weigh nothing",
        {"cpuWeight": "0", "memoryWeight": "0"},
        ("memoryWeight: '0'", "allowed is at least one above 0"),
    ),
    ("no order", {"candidateOrder": "random"}, ("candidateOrder: 'random'", "'score', 'fewest-evictions'")),
    ("a placement of older releases", {"placement": "certain"}, ("placement: 'certain'", "'possible' or 'likely'")),
    ("no budget", {"maximumNodesInDrain": "some"}, ("maximumNodesInDrain: 'some'", "percentage")),
    (
        "a plan of no nodes",
        {"maximumNodesInPlan": "0"},
        ("maximumNodesInPlan: '0'", "1 or more"),
    ),
    (
        "the control plane",
        {"disabledRules": "ControlPlane"},
        ("ControlPlane can't be", "can't be mended"),
    ),
    ("a rule that is none", {"disabledRules": "Nonsense"}, ("Nonsense can't be switched off", "LocalStorage")),
    ("a scheduler that scores in no known way", {"schedulers": "packer=Random"}, ("schedulers.packer: 'Random'",)),
    ("schedulers that are no JSON", {"schedulers": "{packer"}, ("schedulers: '{packer'",)),
    ("a scheduler without a strategy", {"schedulers": "packer"}, ("schedulers.packer: 'packer'", "'MostAllocated'")),
    ("limits the wrong way round", {"backoff": "10m", "backoffLimit": "5m"}, ("backoffLimit: '5m'", "600 s or more")),
    ("a default in the way", {"backoff": "7h"}, ("backoffLimit: ", "is below backoff; allowed is 25200 s or more")),
    ("none of two ways", {"evictionMethod": "kill"}, ("evictionMethod: 'kill'", "'evict' or 'delete'")),
]


@pytest.mark.parametrize(("data", "words"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_an_error_names_key_value_and_what_is_allowed(data: Json, words: tuple[str, ...]) -> None:
    [problem] = problems(data)
    for word in words:
        assert word in problem
    assert "\n" not in problem


def test_all_errors_are_told_at_once() -> None:
    found = problems({"time_gap": "soon", "typo": "1", "minimum_nodes": "-1", "drainer_enabled": "maybe"})
    assert [each.partition(":")[0] for each in found] == ["drainer_enabled", "minimum_nodes", "time_gap", "typo"]


def test_settings_can_not_be_changed() -> None:
    with pytest.raises(ValueError, match="frozen"):
        RefinerSettings().time_gap = 1


def test_blanks_and_line_ends_around_a_value_are_no_part_of_it() -> None:
    spaced = {key: f" {value}\n" for key, value in {**OLD, "candidateOrder": "pods-priority"}.items()}
    assert REFINER.configured(spaced, {}) == REFINER.configured({**OLD, "candidateOrder": "pods-priority"}, {})


# -- where they come from


def written(tmp_path: Path, text: str) -> str:
    path = tmp_path / "config"
    path.write_text(text)
    return str(path)


def manifest(data: object) -> str:
    return yaml.safe_dump(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "node-refiner-cm"}, "data": data}
    )


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(manifest(OLD), id="a ConfigMap manifest"),
        pytest.param(json.dumps(OLD), id="flat JSON"),
        pytest.param(
            "time_gap: 5\ntime_since_last_addition: 30m\nminimum_nodes: 3\nminimum_non_tainted_nodes: 3\n",
            id="flat YAML",
        ),
    ],
)
def test_every_form_of_the_file_is_read(tmp_path: Path, text: str) -> None:
    assert REFINER.planned(written(tmp_path, text), {}) == REFINER.configured(OLD, {})


@pytest.mark.parametrize("data", [None, {}])
def test_a_config_map_without_data_is_all_defaults(tmp_path: Path, data: object) -> None:
    assert REFINER.planned(written(tmp_path, manifest(data)), {}) == RefinerSettings()


def test_a_mounted_file_may_have_any_name() -> None:
    for name, text in {
        "refiner.yaml": "time_gap: 5",
        "settings": "time_gap: 5\nminimum_nodes: 3\n",
        "c.yaml": manifest(OLD),
    }.items():
        assert REFINER.configured({name: text}, {}).time_gap == 300
    assert problems({"refiner.yaml": "time_gaps: 5"})[0].startswith("refiner.yaml: time_gaps: unknown key")
    assert problems({"refiner.yaml": "[1]"}) == ["refiner.yaml: holds list, not a mapping of settings"]


def test_a_flag_wins_over_the_file(tmp_path: Path) -> None:
    config = written(tmp_path, manifest(OLD))
    assert REFINER.planned(config, {}).time_gap == 300
    assert REFINER.planned(config, {}, {"time_gap": "90s"}).time_gap == 90


def test_an_error_says_where_the_value_is_from(tmp_path: Path) -> None:
    config = written(tmp_path, manifest({"minimum_nodes": "many", "typo": "1"}))
    with pytest.raises(SettingsError) as refused:
        REFINER.planned(config, {})
    assert [re.split(": | is not", each)[:2] for each in refused.value.problems] == [
        [config, "minimum_nodes"],
        [config, "typo"],
    ]
    assert not isinstance(refused.value, BadFlagsError)
    with pytest.raises(BadFlagsError, match="--threshold: 'much'"):
        REFINER.planned(None, {}, {"excess_nodes_threshold": "much"})


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "neither JSON nor YAML: "),
        ("[1]", "holds list, not a mapping of settings"),
        (manifest(["time_gap"]), "the ConfigMap's data is list, not a mapping of settings"),
    ],
)
def test_a_file_that_is_no_configuration_says_why(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(SettingsError, match=says):
        REFINER.planned(written(tmp_path, text), {})


def test_a_missing_file_is_named() -> None:
    with pytest.raises(SettingsError, match="/nowhere: No such file"):
        REFINER.planned("/nowhere", {})
