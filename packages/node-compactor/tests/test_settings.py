"""What can be set, in which forms, and what an error says."""

from __future__ import annotations

from typing import Any

import pytest

from node_compactor.settings import CompactorSettings, load_settings
from tightship.cluster.pools import KNOWN_POOL_LABELS
from tightship.objects.reasons import Reason
from tightship.process.settings.loading import SWITCHABLE_RULES, Budget, SettingsError, parse_budget
from tightship.rules.evictability import SWITCHABLE as POD_RULES
from tightship.rules.nodes import SWITCHABLE as NODE_RULES

Json = dict[str, Any]

LIMIT = "cpuRequestRatioLimit"
REQUIRED = "requiredUnderutilizedNodeCount"


def problems(values: Json) -> list[str]:
    with pytest.raises(SettingsError) as refused:
        load_settings(values)
    return refused.value.problems


def test_the_older_controllers_json_is_read_as_it_is() -> None:
    settings = load_settings(
        {
            "nodePools": {
                "my-node-pool": {
                    "enabled": True,
                    "scaleDownCPURequestRatioLimit": 0.4,
                    "scaleDownRequiredUnderutilizedNodeCount": 3,
                },
                "another-pool": {
                    "enabled": False,
                    "scaleDownCPURequestRatioLimit": 0.2,
                    "scaleDownRequiredUnderutilizedNodeCount": 1,
                },
            }
        }
    )
    assert settings.utilization == "cpu"
    mine, another = settings.pool("my-node-pool"), settings.pool("another-pool")
    assert mine is not None
    assert (mine.enabled, mine.limit, mine.required_count) == (True, 0.4, 3)
    assert another is not None
    assert not another.enabled


def test_what_is_not_set_is_as_in_the_older_controller() -> None:
    settings = load_settings({"nodePools": {"p": {}}})
    assert (settings.minimum_age, settings.marked_for) == (1200.0, 300.0)
    assert settings.strategy == "least-utilized"
    assert settings.pool_labels == KNOWN_POOL_LABELS
    assert (settings.cluster_budget, settings.max_nodes, settings.disabled_rules) == (None, None, frozenset())
    assert (settings.ignore_daemonsets, settings.ignore_mirror_pods) == (False, False)
    found = settings.pool("p")
    assert found is not None
    assert (found.enabled, found.limit, found.required_count, found.minimum_nodes, found.budget) == (
        False,
        0,
        0,
        0,
        None,
    )


@pytest.mark.parametrize(
    ("pools", "name", "limit"),
    [
        ({"a": 0.1, "*": 0.9}, "a", 0.1),
        ({"a": 0.1, "*": 0.9}, "b", 0.9),
        ({"a": 0.1, "*": 0.9}, "", 0.9),
        ({"a": 0.1}, "b", None),
        ({}, "a", None),
    ],
    ids=["named", "not named", "of no pool", "no * entry", "nothing configured"],
)
def test_the_star_entry_stands_for_every_pool_that_is_not_named(pools: Json, name: str, limit: float | None) -> None:
    settings = load_settings({"nodePools": {pool: {LIMIT: value} for pool, value in pools.items()}})
    found = settings.pool(name)
    assert (found.limit if found else None) == limit


@pytest.mark.parametrize(
    ("written", "seconds"),
    [("20m", 1200), ("1h30m", 5400), ("90s", 90), (0, 0), ("0", 0), ("1d", 86400), ("1.5s", 1.5)],
)
@pytest.mark.parametrize(
    ("key", "field"),
    [
        ("minimumNodeAge", "minimum_age"),
        ("neededMarkedTimeForRemoval", "marked_for"),
        ("blockingSystemPodTimeout", "system_pod_timeout"),
    ],
)
def test_durations_have_units(key: str, field: str, written: object, seconds: float) -> None:
    assert getattr(load_settings({key: written}), field) == seconds


@pytest.mark.parametrize(
    ("written", "budget"),
    [
        (3, Budget(count=3)),
        ("3", Budget(count=3)),
        ("10%", Budget(percent=10)),
        ("2.5%", Budget(percent=2.5)),
        (0, Budget(count=0)),
    ],
)
def test_a_budget_is_a_count_or_a_percentage(written: object, budget: Budget) -> None:
    assert parse_budget(written) == budget
    assert load_settings({"maximumNodesInDrain": written}).cluster_budget == budget


@pytest.mark.parametrize(
    ("budget", "nodes", "allowed"),
    [
        (Budget(count=3), 1, 3),
        (Budget(percent=10), 10, 1),
        (Budget(percent=10), 11, 2),
        (Budget(percent=10), 1, 1),
        (Budget(percent=10), 0, 0),
        (Budget(percent=0), 10, 0),
    ],
)
def test_what_a_budget_allows(budget: Budget, nodes: int, allowed: int) -> None:
    assert budget.allows(nodes) == allowed


@pytest.mark.parametrize(
    "written", [-1, "-1", "110%", "ten", "", "%", True, None, 1.5, "1.5", "1.2.3%", "\u0661\u0660%"]
)
def test_what_is_no_budget_is_refused(written: object) -> None:
    with pytest.raises(ValueError, match="is not a budget; allowed is a number of nodes such as 3, or a percentage"):
        parse_budget(written)


def test_every_switchable_rule_is_named_by_its_reason() -> None:
    rules = NODE_RULES | POD_RULES
    assert load_settings({"disabledRules": sorted(map(str, rules))}).disabled_rules == rules


def test_no_other_rule_can_be_switched_off() -> None:
    for reason in set(Reason) - SWITCHABLE_RULES:
        [problem] = problems({"disabledRules": [str(reason)]})
        assert f"{reason} can't be switched off; allowed are" in problem
        assert all(each in problem for each in SWITCHABLE_RULES)


REFUSED: list[tuple[str, Json, tuple[str, ...]]] = [
    ("an unknown key", {"nodePool": {}}, ("nodePool: unknown key", "nodePools", "minimumNodeAge")),
    (
        "an unknown key of a pool",
        {"nodePools": {"p": {"enable": True}}},
        ("nodePools.p.enable: unknown key", LIMIT, REQUIRED),
    ),
    ("a word for a number", {"nodePools": {"p": {LIMIT: "half"}}}, (f"nodePools.p.{LIMIT}: 'half'", "number")),
    (
        "a negative limit",
        {"nodePools": {"p": {LIMIT: -0.1}}},
        (f"nodePools.p.{LIMIT}: -0.1", "allowed is a number from 0 to 1"),
    ),
    (
        "a negative count",
        {"nodePools": {"p": {REQUIRED: -1}}},
        (f"nodePools.p.{REQUIRED}: -1", "0 or more"),
    ),
    (
        "a fraction for a count",
        {"nodePools": {"p": {"minimumNodeCount": 1.5}}},
        ("nodePools.p.minimumNodeCount: 1.5", "whole number"),
    ),
    (
        "no duration",
        {"minimumNodeAge": "soon"},
        ("minimumNodeAge", "'soon'", "90s, 10m, 1h30m"),
    ),
    ("a duration without a unit", {"minimumNodeAge": 1200}, ("minimumNodeAge: 1200: has no unit; allowed is",)),
    (
        "a pool's duration without a unit",
        {"nodePools": {"p": {"coolDownAfterFailure": "600"}}},
        ("nodePools.p.coolDownAfterFailure: '600': has no unit",),
    ),
    (
        "an older key beside the native one",
        {"nodePools": {"p": {"scaleDownCPURequestRatioLimit": 0.5, LIMIT: 0.5}}},
        (f"nodePools.p.scaleDownCPURequestRatioLimit: stands beside nodePools.p.{LIMIT}",),
    ),
    (
        "a bad value of an older key",
        {"nodePools": {"p": {"scaleDownCPURequestRatioLimit": "150%"}}},
        ("nodePools.p.scaleDownCPURequestRatioLimit: '150%': is not a ratio",),
    ),
    ("a misspelt key", {"nodePools": {"p": {"minimumNodes": 2}}}, ("did you mean minimumNodeCount?",)),
    ("a negative duration", {"minimumNodeAge": -5}, ("minimumNodeAge", "-5", "is not a duration")),
    ("no strategy", {"strategy": "random"}, ("strategy: 'random'", "'least-utilized'", "'fewest-nodes'")),
    ("a placement of older releases", {"placement": "certain"}, ("placement: 'certain'", "'possible' or 'likely'")),
    (
        "no budget",
        {"nodePools": {"p": {"maximumNodesInDrain": "some"}}},
        ("nodePools.p.maximumNodesInDrain: 'some'", "percentage"),
    ),
    ("a plan of no nodes", {"maximumNodesInPlan": 0}, ("maximumNodesInPlan: 0", "1 or more")),
    (
        "rules that are no list",
        {"disabledRules": "NotReplicated"},
        ("disabledRules: 'NotReplicated'", "list of reasons"),
    ),
    (
        "the control plane",
        {"disabledRules": ["ControlPlane"]},
        ("disabledRules: ['ControlPlane']", "ControlPlane can't be switched off", "can't be mended"),
    ),
    (
        "a rule that is none",
        {"disabledRules": ["Nonsense"]},
        ("disabledRules: ['Nonsense']", "Nonsense can't be switched off", "LocalStorage"),
    ),
    (
        "a scheduler that scores in no known way",
        {"schedulers": {"packer": "Random"}},
        ("schedulers.packer: 'Random'", "'LeastAllocated' or 'MostAllocated'"),
    ),
    ("pools that are no mapping", {"nodePools": []}, ("nodePools: []",)),
]


def test_schedulers_are_known_besides_those_known_by_name() -> None:
    rules = load_settings({"schedulers": {"packer": "MostAllocated", "default-scheduler": "MostAllocated"}})
    known = rules.eviction_rules.schedulers
    assert (known["packer"], known["default-scheduler"]) == ("MostAllocated", "MostAllocated")
    assert known["gke.io/optimize-utilization-scheduler"] == "MostAllocated"


@pytest.mark.parametrize(("values", "words"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_an_error_names_key_value_and_what_is_allowed(values: Json, words: tuple[str, ...]) -> None:
    [problem] = problems(values)
    for word in words:
        assert word in problem
    assert "\n" not in problem


def test_all_errors_are_told_at_once() -> None:
    everything: Json = {
        "nodePools": {"p": {LIMIT: "half", "typo": 1}, "q": {REQUIRED: -1}},
        "minimumNodeAge": "soon",
        "strategy": "random",
    }
    found = problems(everything)
    assert sorted(each.partition(":")[0] for each in found) == [
        "minimumNodeAge",
        f"nodePools.p.{LIMIT}",
        "nodePools.p.typo",
        f"nodePools.q.{REQUIRED}",
        "strategy",
    ]


def test_settings_can_not_be_changed() -> None:
    settings = load_settings({})
    with pytest.raises(ValueError, match="frozen"):
        settings.minimum_age = 1
    assert settings == CompactorSettings()
