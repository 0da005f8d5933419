"""What the process is told by flags and environment, the older controller's names included."""

from __future__ import annotations

from pathlib import Path

import pytest

from node_refiner.controller import RefinerRunSettings
from tightship.process.settings.loading import SettingsError
from tightship.process.settings.process import load_process

SETTINGS = Path(__file__).resolve().parents[3] / "docs" / "settings.md"
NOWHERE = Path("/nonexistent")


def loaded(environment: dict[str, str], **flags: object) -> RefinerRunSettings:
    return load_process(RefinerRunSettings, environment, flags, namespace_file=NOWHERE, unique=lambda: "cafe")


def test_what_is_not_set_is_as_in_the_older_controller_or_safe() -> None:
    found = loaded({})
    assert found.interval == 60
    assert (found.ports, found.probe_port) == ((8080,), 9102)
    assert (found.config_map, found.lease_name, found.claims_lease) == (
        "node-refiner-config", "node-refiner", "tightship-claims",
    )  # fmt: skip
    assert (found.leader_elect, found.dry_run) == (True, True)


@pytest.mark.parametrize(
    ("environment", "flags", "ports"),
    [
        ({"LISTENING_PORT": "8088"}, {}, (8088, 9102)),
        ({"LISTENING_PORT": "8088", "HTTP_PROBE_PORT": "7001"}, {}, (8088, 7001)),
        ({"LISTENING_PORT": "8088"}, {"ports": [7001], "probe_port": 7002}, (7001, 7002)),
    ],
)
def test_the_older_name_of_the_port_moves_metrics_and_leaves_the_probe(
    environment: dict[str, str], flags: dict[str, object], ports: tuple[int, ...]
) -> None:
    found = loaded(environment, **flags)
    assert (*found.ports, found.probe_port) == ports
    assert found.config_map == "node-refiner-cm"


def test_every_problem_names_the_variable_and_what_is_allowed() -> None:
    with pytest.raises(SettingsError) as found:
        loaded({"LISTENING_PORT": "metrics", "INTERVAL": "0", "LEASE_NAME": "No Name"})
    text = "\n".join(found.value.problems)
    assert len(found.value.problems) == 3
    assert "LISTENING_PORT: 'metrics'" in text
    assert "INTERVAL: '0'" in text
    assert "LEASE_NAME: 'No Name'" in text


def test_an_older_variable_and_the_native_one_contradict_each_other() -> None:
    with pytest.raises(SettingsError) as found:
        loaded({"LISTENING_PORT": "8088", "HTTP_PORTS": "7000"})
    assert found.value.problems == [
        "LISTENING_PORT: stands beside HTTP_PORTS, which is the same setting; allowed is one of them"
    ]


def test_every_variable_is_documented() -> None:
    text = SETTINGS.read_text()
    missing = [
        name
        for field in RefinerRunSettings.model_fields
        for name in RefinerRunSettings.variables(field)
        if name not in text
    ]
    assert missing == []
