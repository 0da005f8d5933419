"""Flags over environment over file over defaults, every form of the file, and all that is wrong at once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from node_compactor.controller import COMPACTOR, summarize
from node_compactor.settings import load_settings
from tightship.planning.plan import STRATEGIES
from tightship.process.settings.loading import BadFlagsError, SettingsError, wire

SEED = {
    "nodePools": {
        "general": {
            "enabled": True,
            "scaleDownCPURequestRatioLimit": 0.6,
            "scaleDownRequiredUnderutilizedNodeCount": 2,
        },
        "quiet": {"enabled": False},
    }
}


def written(tmp_path: Path, text: str) -> str:
    path = tmp_path / "config"
    path.write_text(text)
    return str(path)


def config_map(key: str, text: str) -> str:
    return yaml.safe_dump({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {key: text}})


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(json.dumps(SEED), id="JSON"),
        pytest.param(yaml.safe_dump(SEED), id="YAML"),
        pytest.param(
            config_map("estafette-k8s-node-compactor-config.yaml", json.dumps(SEED)), id="the older ConfigMap"
        ),
        pytest.param(config_map("config.yaml", yaml.safe_dump(SEED)), id="ConfigMap of YAML"),
        pytest.param(config_map("config.json", json.dumps(SEED)), id="ConfigMap of JSON"),
    ],
)
def test_every_form_of_the_file_is_read(tmp_path: Path, text: str) -> None:
    settings = COMPACTOR.planned(written(tmp_path, text), {})
    assert settings.pools["general"].limit == 0.6
    assert settings.pools["general"].required_count == 2
    assert not settings.pools["quiet"].enabled
    assert (settings.minimum_age, settings.marked_for) == (0, 0)


def test_without_a_file_every_pool_is_enabled() -> None:
    settings = COMPACTOR.planned(None, {})
    assert settings.pools["*"].enabled
    assert (settings.pools["*"].limit, settings.pools["*"].required_count) == (0.75, 1)
    assert summarize(settings, None) == (
        "limit 0.75, required 1, every pool (no configuration given); "
        "least utilized by the largest of CPU, memory and extended resources"
    )


def test_the_older_keys_order_by_cpu_unless_the_configuration_says_otherwise(tmp_path: Path) -> None:
    older = COMPACTOR.planned(written(tmp_path, json.dumps(SEED)), {})
    assert (older.utilization, wire(older)["utilization"]) == ("cpu", "cpu")
    assert summarize(older, "c").endswith("; least utilized by CPU")
    reported = COMPACTOR.planned(written(tmp_path, json.dumps({**SEED, "utilization": "dominant"})), {})
    assert (reported.utilization, wire(reported)["utilization"]) == ("dominant", "dominant")
    newer = COMPACTOR.planned(written(tmp_path, json.dumps({"nodePools": {"*": {"enabled": True}}})), {})
    assert newer.utilization == "dominant"
    assert COMPACTOR.planned(None, {}, {"utilization": "cpu"}).utilization == "cpu"


def test_a_measure_that_no_strategy_uses_is_not_told() -> None:
    assert "least utilized" not in summarize(COMPACTOR.planned(None, {}, {"strategy": "fewest-nodes"}), None)


def test_a_flag_wins_over_the_environment_and_that_over_the_file(tmp_path: Path) -> None:
    config = written(tmp_path, json.dumps({**SEED, "minimumNodeAge": "1h", "neededMarkedTimeForRemoval": "60s"}))
    environment = {"MINIMUM_NODE_AGE_SECONDS": "600"}
    assert COMPACTOR.planned(config, {}).minimum_age == 3600
    assert COMPACTOR.planned(config, environment).minimum_age == 600
    flags = {"minimum_age": "5m"}
    assert COMPACTOR.planned(config, environment, flags).minimum_age == 300
    assert COMPACTOR.planned(config, environment, flags).marked_for == 60


def test_a_gate_given_as_a_flag_holds_for_every_pool(tmp_path: Path) -> None:
    settings = COMPACTOR.planned(written(tmp_path, json.dumps(SEED)), {}, {"limit": "0.8"})
    assert {name: pool.limit for name, pool in settings.pools.items()} == {"general": 0.8, "quiet": 0.8}
    assert not settings.pools["quiet"].enabled


def test_all_problems_of_a_file_are_told_at_once(tmp_path: Path) -> None:
    bad = {"nodePools": {"a": {"enabled": "perhaps", "limits": 1}}, "disabledRules": ["NoPlace"], "nodePool": {}}
    config = written(tmp_path, json.dumps(bad))
    with pytest.raises(SettingsError) as caught:
        COMPACTOR.planned(config, {"MINIMUM_NODE_AGE_SECONDS": "soon"})
    detail = "\n".join(caught.value.problems)
    assert len(caught.value.problems) == 5
    assert f"{config}: nodePools.a.enabled: 'perhaps': " in detail
    assert f"{config}: nodePools.a.limits: unknown key; allowed are coolDownAfterFailure, " in detail
    assert f"{config}: nodePool: unknown key; did you mean nodePools? allowed are " in detail
    assert f"{config}: disabledRules: ['NoPlace']: NoPlace can't be switched off; allowed are " in detail
    assert "MINIMUM_NODE_AGE_SECONDS: 'soon' is not a duration" in detail


def test_a_bad_flag_is_named_as_such() -> None:
    flags = {"limit": "much", "strategy": "best", "cluster_budget": "101%"}
    with pytest.raises(BadFlagsError) as caught:
        COMPACTOR.planned(None, {}, flags)
    assert [each.partition(": ")[0] for each in caught.value.problems] == ["--cluster-budget", "--limit", "--strategy"]
    assert all(repr(each) in caught.value.problems[2] for each in STRATEGIES)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "neither JSON nor YAML: "),
        ("[1]", "holds list, not a mapping of settings"),
        (config_map("else", "{}"), "the ConfigMap has no configuration: its data keys are else; looked for are "),
    ],
)
def test_a_file_that_is_no_configuration_says_why(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(SettingsError, match=says):
        COMPACTOR.planned(written(tmp_path, text), {})


def test_a_missing_file_is_named() -> None:
    with pytest.raises(SettingsError, match="/nowhere: No such file"):
        COMPACTOR.planned("/nowhere", {})


def test_the_settings_of_a_document_read_back(tmp_path: Path) -> None:
    flags = {"budget": "10%", "disabled_rules": ["LocalStorage"]}
    settings = COMPACTOR.planned(written(tmp_path, json.dumps(SEED)), {}, flags)
    plain: Any = json.loads(json.dumps(wire(settings)))
    assert load_settings(plain) == settings.model_copy(update={"utilization": "cpu"}), "as the older keys say"


def test_a_summary_names_the_pools_of_the_file(tmp_path: Path) -> None:
    config = written(tmp_path, json.dumps(SEED))
    assert summarize(COMPACTOR.planned(config, {}), "c.json") == (
        "limit 0.6, required 2, pool general (from c.json); least utilized by CPU"
    )


def test_with_deletion_past_budgets_no_budget_keeps_a_node(cli: Any, data: Path, tmp_path: Path) -> None:
    pools = {"*": {"enabled": True, "scaleDownCPURequestRatioLimit": 0.75}}

    def budgets_named(**more: object) -> bool:
        config = written(tmp_path, json.dumps({"nodePools": pools, **more}))
        outcome = cli("plan", "-f", data / "cluster.yaml", "--config", config, "-o", "json")
        assert outcome.code == 0
        return '"Pdb' in outcome.out

    assert budgets_named()
    assert not budgets_named(evictionMethod="delete")
